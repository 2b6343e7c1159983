"""Authentication by a program's bearer token. DRF's session authentication, with CSRF, handles signed-in people."""

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User


class TokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer ...`` with a token of kind decision, operator or viewer."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiToken] | None:
        """Returns the token as ``request.auth``; None without a bearer header, so that a session is tried next.

        Raises AuthenticationFailed for an invalid token, and PermissionDenied for an agent token unless the view sets
        ``agents_too``.
        """
        scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != self.keyword.lower():
            return None
        token = services.find_token(secret.strip(), now=timezone.now())
        if token is None:
            raise exceptions.AuthenticationFailed("The token is unknown, revoked or expired.", code="token_invalid")
        view = request.parser_context.get("view") if request.parser_context else None
        if token.kind == ApiToken.Kind.AGENT and not getattr(view, "agents_too", False):
            raise exceptions.PermissionDenied(
                "Agent tokens can only be used for /api/v1/agent/ and preflight reports.", code="agent_token"
            )
        return AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        """Returns the WWW-Authenticate header of a 401."""
        return f'{self.keyword} realm="kcover portal"'


def principal(request: Request) -> queries.Principal:
    """Returns the token or user of an authenticated request; AnonymousUser without one."""
    if isinstance(request.auth, ApiToken):
        return request.auth
    user: User | AnonymousUser | None = request.user  # None without a session (settings: UNAUTHENTICATED_USER)
    return user if user is not None else AnonymousUser()
