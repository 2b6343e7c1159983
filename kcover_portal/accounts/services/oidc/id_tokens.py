"""Verification of the provider's signed tokens (OpenID Connect Core 1.0, 3.1.3.7; Back-Channel Logout 1.0, 2.6)."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from joserfc import errors, jws, jwt

from kcover import reasons
from kcover_portal.accounts.services.oidc import provider
from kcover_portal.accounts.services.oidc.problems import SignOnRefused
from kcover_portal.config.oidc_settings import Oidc

# Only asymmetric algorithms: with a symmetric one, everybody who knows the client's secret could sign.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
MAX_CLOCK_DIFFERENCE = timedelta(seconds=60)  # between the clocks of provider and portal
LOGOUT_TOKEN_LIFETIME = timedelta(minutes=5)
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}
MAX_TOKEN = 128 * 1024  # characters
MAX_SUBJECT = 255

Claims = Mapping[str, Any]


def verify(client: Oidc, token: object, *, nonce: str, access_token: str, now: datetime) -> Claims:
    """Returns the claims of an ID token. Raises SignOnRefused with the first check that fails."""
    header, claims = _signed(client, token)
    own = {"sub": {"essential": True}, "exp": {"essential": True}, "nonce": {"essential": True, "value": nonce}}
    _validate(client, claims, own, now=now)
    _check_party(client, claims)
    _subject(claims)
    if "at_hash" in claims and not _is_hash(claims["at_hash"], access_token, header["alg"]):
        raise SignOnRefused(reasons.of("oidc_token_access"))
    return claims


def verify_logout(client: Oidc, token: object, *, now: datetime) -> tuple[str, str]:
    """Returns the subject and the session id of a logout token; one of them may be "". Raises SignOnRefused."""
    _header, claims = _signed(client, token)
    _validate(client, claims, {"jti": {"essential": True}}, now=now)
    subject, session = claims.get("sub", ""), claims.get("sid", "")
    events = claims.get("events")
    fresh = now.timestamp() - claims["iat"] <= (LOGOUT_TOKEN_LIFETIME + MAX_CLOCK_DIFFERENCE).total_seconds()
    named = is_name(subject) and is_name(session) and (subject or session)
    is_logout = isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict) and "nonce" not in claims
    if not (fresh and named and is_logout):
        raise SignOnRefused(reasons.of("logout_token_invalid"))
    return subject, session


def is_name(value: object) -> bool:
    """Returns whether a claim can be a name in the database: text of at most MAX_SUBJECT printable characters."""
    return isinstance(value, str) and len(value) <= MAX_SUBJECT and value.isprintable()


def _signed(client: Oidc, token: object) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The header and the claims of a token with a valid signature."""
    if not isinstance(token, str) or not token.isascii() or len(token) > MAX_TOKEN:
        raise SignOnRefused(reasons.of("oidc_answer_invalid", part="id_token"), status=502)
    registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    try:
        try:
            decoded = jwt.decode(token, provider.keys(client), registry=registry)
        except (errors.InvalidKeyIdError, errors.BadSignatureError):
            decoded = jwt.decode(token, provider.keys(client, again=True), registry=registry)
    except (errors.InvalidKeyIdError, errors.BadSignatureError) as error:
        raise SignOnRefused(reasons.of("oidc_token_signature")) from error
    except errors.UnsupportedAlgorithmError as error:
        raise SignOnRefused(reasons.of("oidc_token_unsigned", algorithm=_algorithm(token))) from error
    except (errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SignOnRefused(reasons.of("oidc_answer_invalid", part="id_token"), status=502) from error
    return decoded.header, decoded.claims


def _algorithm(token: str) -> str:
    """The algorithm that a refused token names, as letters, digits and hyphens."""
    try:
        name = str(jws.extract_compact(token.encode()).headers().get("alg", ""))
    except (errors.JoseError, ValueError):
        name = ""
    return "".join(letter for letter in name if letter.isalnum() or letter == "-")[:20] or "none"


def _validate(client: Oidc, claims: dict[str, Any], own: Mapping[str, Any], *, now: datetime) -> None:
    """Checks the claims that every token has, and this kind's ``own``. Raises SignOnRefused."""
    registry = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=int(MAX_CLOCK_DIFFERENCE.total_seconds()),
        iss={"essential": True, "value": client.issuer},
        aud={"essential": True, "value": client.client_id},
        iat={"essential": True},
        **own,
    )
    try:
        registry.validate(claims)
    except errors.ExpiredTokenError as error:
        raise SignOnRefused(reasons.of("oidc_token_expired")) from error
    except errors.MissingClaimError as error:
        raise SignOnRefused(_incomplete(error.claim)) from error
    except errors.InvalidClaimError as error:
        raise SignOnRefused(WRONG.get(error.claim, _incomplete)(error.claim)) from error
    except (errors.JoseError, ValueError, TypeError, OverflowError) as error:
        raise SignOnRefused(reasons.of("oidc_answer_invalid", part="id_token"), status=502) from error
    if claims["iat"] < 0:  # as far back as no float goes
        raise SignOnRefused(reasons.of("oidc_answer_invalid", part="id_token"), status=502)


def _incomplete(claim: str) -> reasons.Reason:
    return reasons.of("oidc_token_incomplete", claim=claim)


def _early(_claim: str) -> reasons.Reason:
    return reasons.of("oidc_token_early", skew=reasons.span(MAX_CLOCK_DIFFERENCE))


WRONG: Mapping[str, Callable[[str], reasons.Reason]] = {
    "iss": lambda _claim: reasons.of("oidc_token_issuer"),
    "aud": lambda _claim: reasons.of("oidc_token_audience"),
    "nonce": lambda _claim: reasons.of("oidc_token_nonce"),
    "iat": _early,
    "nbf": _early,
}


def _check_party(client: Oidc, claims: Claims) -> None:
    """A token for several audiences, or with ``azp``, must have been issued to this client."""
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if ("azp" in claims or several) and claims.get("azp") != client.client_id:
        raise SignOnRefused(reasons.of("oidc_token_audience"))


def _subject(claims: Claims) -> None:
    if not claims["sub"] or not is_name(claims["sub"]):
        raise SignOnRefused(_incomplete("sub"))


def _is_hash(value: object, token: str, algorithm: str) -> bool:
    """Returns whether ``value`` is the left half of the token's hash; the hash function is that of the algorithm."""
    make = HASHES.get(algorithm[-3:], hashlib.sha512)  # EdDSA with Ed25519 hashes with SHA-512
    digest = make(token.encode()).digest()
    half = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=")
    return isinstance(value, str) and value.isascii() and hmac.compare_digest(value.encode(), half)
