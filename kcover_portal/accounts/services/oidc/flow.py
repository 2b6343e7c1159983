"""The authorization code flow with PKCE, state and nonce, and the ways out of a session.

The browser keeps state, nonce and verifier in a signed cookie for FLOW_LIFETIME. A state is accepted once.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.conf import settings
from django.core import signing
from django.db import transaction

from kcover import audit, reasons
from kcover_portal.accounts.models import Identity, Session
from kcover_portal.accounts.services import challenges, failed_attempts
from kcover_portal.accounts.services.oidc import id_tokens, identities, provider
from kcover_portal.accounts.services.oidc.problems import SignOnRefused
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

FLOW_LIFETIME = timedelta(minutes=10)
SALT = "kcover_portal.accounts.oidc"
MAX_TARGET = 2000  # characters of the page to open after the sign-in; cookies hold 4096 bytes
MAX_CODE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSignOn:
    """A single sign-on that has begun: where the browser goes, and the cookie that it keeps."""

    address: str
    cookie: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSignOn:
    """A successful single sign-on. ``id_token`` identifies the session when the person signs out there."""

    identity: Identity
    target: str
    id_token: str
    provider_session: str


def configured() -> Oidc:
    """Returns the settings. Raises SignOnRefused if single sign-on is off."""
    client: Oidc | None = settings.KCOVER_OIDC
    if client is None:
        raise SignOnRefused(reasons.of("oidc_off"), status=404)
    return client


def begin(target: str, *, now: datetime) -> StartedSignOn:
    """Starts a single sign-on that leads to the page ``target``. Raises SignOnRefused and Busy."""
    client = configured()
    endpoint = urlsplit(provider.metadata(client).authorization_endpoint)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.callback,
        "scope": " ".join(client.scopes),
        "state": state,
        "nonce": nonce,
        "code_challenge": base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    asked = "&".join(part for part in (endpoint.query, urlencode(query)) if part)
    kept = [state, nonce, verifier, target if len(target) <= MAX_TARGET else "", int(now.timestamp())]
    return StartedSignOn(address=urlunsplit(endpoint._replace(query=asked)), cookie=signing.dumps(kept, salt=SALT))


def complete(answer: Mapping[str, str], *, cookie: str, address: str, now: datetime) -> CompletedSignOn:
    """Finishes a single sign-on with the parameters of the provider's redirect.

    The caller asks the person for a second factor if one is due, and logs them in. Raises SignOnRefused and Busy.
    """
    client = configured()
    state, nonce, verifier, target = _kept(cookie, answer.get("state", ""), now=now)
    try:
        if not challenges.spend(state.encode(), now=now):
            raise SignOnRefused(reasons.of("oidc_state_used"))
        code = _code(client, answer)
        tokens = provider.exchange(client, code=code, verifier=verifier)
        access_token = tokens.get("access_token")
        access_token = access_token if isinstance(access_token, str) else ""
        id_token = tokens.get("id_token")
        claims = id_tokens.verify(client, id_token, nonce=nonce, access_token=access_token, now=now)
        claims = _with_userinfo(client, claims, access_token)
        groups = identities.groups_of(claims, client.groups_claim)
        identity = identities.account_of(claims, issuer=client.issuer, groups=groups, now=now)
    except SignOnRefused as refusal:
        log.warning("%s: %s, address %s", audit.SingleSignOnFailed.VERB, refusal.reason.code, address or "unknown")
        failed_attempts.note(audit.SingleSignOnFailed, "", address=address, refused=False, now=now)
        raise
    log.info("identity accepted: user %s, address %s, %s", identity.user, address or "unknown", client.issuer)
    session = claims.get("sid", "")
    return CompletedSignOn(
        identity=identity,
        target=target,
        id_token=str(id_token),
        provider_session=session if id_tokens.is_name(session) else "",
    )


def sign_out_address(id_token: str) -> str:
    """Returns where the browser ends the session at the provider (RP-Initiated Logout); "" if it cannot."""
    client: Oidc | None = settings.KCOVER_OIDC
    if client is None or not id_token:
        return ""
    try:
        address = provider.metadata(client).end_session_endpoint
    except Refused:
        return ""
    if not address:
        return ""
    query = {
        "id_token_hint": id_token,
        "client_id": client.client_id,
        "post_logout_redirect_uri": f"{client.portal}/sign-in/",
    }
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def end_by_provider(logout_token: object, *, now: datetime) -> int:
    """Ends the sessions that a logout token of the provider names. Returns how many. Raises SignOnRefused and Busy."""
    client = configured()
    subject, session = id_tokens.verify_logout(client, logout_token, now=now)
    rows = Session.objects.filter(identity__issuer=client.issuer)
    rows = rows.filter(identity__subject=subject) if subject else rows
    rows = rows.filter(provider_session=session) if session else rows
    with transaction.atomic(), ledger.last():
        ended = list(rows.select_related("user"))
        Session.objects.filter(pk__in=[row.pk for row in ended]).delete()
        names = [row.user.username for row in ended if row.user]
        for name in sorted(set(names)):
            act = audit.SignedOutByProvider(user=name, issuer=client.issuer, count=names.count(name))
            ledger.record("", act, actor=identities.actor(client.issuer), now=now)
    return len(ended)


def _kept(cookie: str, state: str, *, now: datetime) -> tuple[str, str, str, str]:
    """The state, nonce, verifier and target in the browser's cookie. Raises SignOnRefused."""
    missing = SignOnRefused(reasons.of("oidc_state_missing", wait=reasons.span(FLOW_LIFETIME)))
    try:
        kept, nonce, verifier, target, begun = signing.loads(cookie, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise missing from error
    if not begun <= now.timestamp() <= begun + FLOW_LIFETIME.total_seconds():
        raise missing
    if not hmac.compare_digest(kept.encode(), state.encode()):
        raise SignOnRefused(reasons.of("oidc_state_wrong"))
    return kept, nonce, verifier, target


def _code(client: Oidc, answer: Mapping[str, str]) -> str:
    """The code in the provider's redirect. Raises SignOnRefused for an error, or for another provider's answer."""
    named = answer.get("iss", "")
    if (named or provider.metadata(client).names_itself) and named != client.issuer:
        raise SignOnRefused(reasons.of("oidc_issuer_mixed_up"))
    if "error" in answer:
        raise SignOnRefused(reasons.of("oidc_refused", error=provider.error_code(answer["error"])), status=403)
    code = answer.get("code", "")
    if not 0 < len(code) <= MAX_CODE:
        raise SignOnRefused(reasons.of("oidc_code_missing"))
    return code


def _with_userinfo(client: Oidc, claims: Mapping[str, Any], access_token: str) -> Mapping[str, Any]:
    """The claims, with those of the userinfo endpoint if the ID token lacks the groups. Raises SignOnRefused."""
    if client.groups_claim in claims or not access_token:
        return claims
    more = provider.userinfo(client, access_token)
    if more and more.get("sub") != claims["sub"]:
        raise SignOnRefused(reasons.of("oidc_userinfo_mixed_up"))
    return {**more, **claims}
