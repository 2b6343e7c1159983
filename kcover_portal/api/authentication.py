"""Authentication: a program's bearer token, or the session of a signed-in person."""

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.api import http_errors


class TokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer ...`` with a token of kind decision, operator or viewer."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiToken] | None:
        """Returns the token as ``request.auth``; None without a bearer header, so that a session is tried next.

        Raises Unauthorized for an invalid token, Forbidden from an address outside of its networks, for an agent token
        unless the view sets ``agents_too``, for a source's token unless it sets ``sources_too``, and for a wall's.
        """
        scheme, _, secret = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != self.keyword.lower():
            return None
        try:
            address = services.client_address(request)
            token = services.find_token(secret.strip(), now=timezone.now(), address=address)
        except services.WrongAddress as refusal:
            raise http_errors.Forbidden(refusal.reason) from refusal
        if token is None:
            raise http_errors.Unauthorized(reasons.of("token_invalid"))
        view = request.parser_context.get("view") if request.parser_context else None
        if token.kind == ApiToken.Kind.AGENT and not getattr(view, "agents_too", False):
            raise http_errors.Forbidden(reasons.of("agent_token"))
        if token.kind == ApiToken.Kind.WALL:
            raise http_errors.Forbidden(reasons.of("wall_token"))
        if token.kind == ApiToken.Kind.SOURCE and not getattr(view, "sources_too", False):
            raise http_errors.Forbidden(reasons.of("source_token"))
        return AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        """Returns the WWW-Authenticate header of a 401."""
        return f'{self.keyword} realm="kcover portal"'


class SessionAuthentication(authentication.SessionAuthentication):
    """The session of a signed-in person. Requests that change something need the CSRF token."""

    def enforce_csrf(self, request: Request) -> None:
        """Raises Forbidden."""
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied as error:
            raise http_errors.Forbidden(reasons.of("csrf_failed")) from error


def principal(request: Request) -> queries.Principal:
    """Returns the token or user of an authenticated request; AnonymousUser without one."""
    if isinstance(request.auth, ApiToken):
        return request.auth
    user: User | AnonymousUser | None = request.user  # None without a session (settings: UNAUTHENTICATED_USER)
    return user if user is not None else AnonymousUser()
