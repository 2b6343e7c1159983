"""Calls to the OpenID Connect provider: discovery, keys, tokens, userinfo.

Discovery and keys are remembered in the process for CACHE_SECONDS. A token with an unknown key causes one new look at
the keys, at most once in KEYS_REFETCH_SECONDS, so that forged tokens cause no flood of calls.
"""

import base64
import functools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

from joserfc import errors, jwk

from kcover import reasons
from kcover_portal.accounts.services.oidc.problems import SignOnRefused, place
from kcover_portal.config import setting_values
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.lib import outgoing

CACHE_SECONDS = 600.0
KEYS_REFETCH_SECONDS = 60.0
CALL_SECONDS = 10.0
MAX_KEYS = 100
KEY_TYPES = ("RSA", "EC", "OKP")  # symmetric keys verify nothing: everybody who may verify could sign
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
OPTIONAL_ENDPOINTS = ("userinfo_endpoint", "end_session_endpoint")
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The part of the discovery document that the portal uses. An optional endpoint is "" if the provider has none."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    names_itself: bool = False  # sends its issuer with the code (RFC 9207)
    secret_in_body: bool = False  # accepts client_secret_post, but not client_secret_basic


class _Cache:
    """The last answers of one provider. ``at`` and ``keys_at`` are on the monotonic clock."""

    def __init__(self) -> None:
        self.metadata: Metadata | None = None
        self.keys: jwk.KeySet | None = None
        self.at = self.keys_at = 0.0


@functools.lru_cache(maxsize=1)
def _cache_of(issuer: str) -> _Cache:
    return _Cache()


def forget() -> None:
    """Drops what is remembered, so that the next call asks the provider."""
    _cache_of.cache_clear()


def metadata(client: Oidc) -> Metadata:
    """Returns the provider's endpoints. Raises SignOnRefused and Busy."""
    cache = _cache_of(client.issuer)
    if cache.metadata is None or time.monotonic() - cache.at > CACHE_SECONDS:
        url = client.issuer.rstrip("/") + "/.well-known/openid-configuration"
        cache.metadata, cache.at = _metadata(client, _json("GET", url, part="discovery")), time.monotonic()
    return cache.metadata


def keys(client: Oidc, *, again: bool = False) -> jwk.KeySet:
    """Returns the provider's keys; ``again``: a token names a key that is not among the remembered ones."""
    cache = _cache_of(client.issuer)
    age = time.monotonic() - cache.keys_at
    if cache.keys is None or age > CACHE_SECONDS or (again and age > KEYS_REFETCH_SECONDS):
        cache.keys = _keys(_json("GET", metadata(client).jwks_uri, part="jwks"))
        cache.keys_at = time.monotonic()
    return cache.keys


def exchange(client: Oidc, *, code: str, verifier: str) -> Mapping[str, Any]:
    """Exchanges a code for tokens. Raises SignOnRefused if the provider does not accept it, and Busy."""
    known = metadata(client)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": client.callback,
        "client_id": client.client_id,
        "code_verifier": verifier,
    }
    headers = dict(FORM)
    if client.client_secret and known.secret_in_body:
        form["client_secret"] = client.client_secret
    elif client.client_secret:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"  # RFC 6749, 2.3.1
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return _json("POST", known.token_endpoint, part="token", body=urlencode(form).encode(), headers=headers)


def userinfo(client: Oidc, access_token: str) -> Mapping[str, Any]:
    """Returns the claims of the userinfo endpoint; none if the provider has no such endpoint."""
    url = metadata(client).userinfo_endpoint
    if not url:
        return {}
    headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
    return _json("GET", url, part="userinfo", headers=headers)


def error_code(text: object) -> str:
    """Returns an error code of OAuth. Other text is not shown: anybody could put it into an address."""
    known = isinstance(text, str) and text.replace("_", "").isalpha() and text.isascii() and len(text) <= 60
    return str(text) if known else "unknown"


def _metadata(client: Oidc, document: Mapping[str, Any]) -> Metadata:
    if document.get("issuer") != client.issuer:
        named = ascii(document.get("issuer"))[:200].strip("'")
        raise SignOnRefused(reasons.of("oidc_issuer_wrong", issuer=named), status=502)
    found = {name: document[name] for name in (*ENDPOINTS, *OPTIONAL_ENDPOINTS) if document.get(name)}
    for name in ENDPOINTS:
        if name not in found:
            raise _invalid(name)
    for name, url in found.items():
        if not isinstance(url, str):
            raise _invalid(name)
        if not _is_secure(url):
            raise SignOnRefused(reasons.of("oidc_endpoint_insecure", endpoint=name), status=502)
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    if not isinstance(methods, list):
        raise _invalid("token_endpoint_auth_methods_supported")
    return Metadata(
        **found,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        secret_in_body="client_secret_basic" not in methods and "client_secret_post" in methods,
    )


def _is_secure(url: str) -> bool:
    try:
        return url.isascii() and url.isprintable() and setting_values.is_secure(url)
    except ValueError:
        return False


def _keys(document: Mapping[str, Any]) -> jwk.KeySet:
    """The signature keys of a JWKS; keys of unknown kinds are left out."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise _invalid("jwks")
    found: list[Any] = []
    for one in listed[:MAX_KEYS]:
        if isinstance(one, dict) and one.get("kty") in KEY_TYPES and one.get("use", "sig") == "sig":
            try:
                found.append(jwk.import_key(one))
            except (errors.JoseError, ValueError, TypeError, KeyError):
                continue
    return jwk.KeySet(found)


def _json(
    method: str,
    url: str,
    *,
    part: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = outgoing.NO_HEADERS,
) -> Mapping[str, Any]:
    """Calls the provider and returns the JSON object of its answer. ``part`` names the call in errors."""
    try:
        with place():
            reply = outgoing.request(method, url, seconds=CALL_SECONDS, body=body, headers=headers)
    except outgoing.NoResponse as silence:
        raise SignOnRefused(reasons.of("oidc_unreachable", problem=silence.reason), status=503) from silence
    if len(reply.data) > outgoing.MAX_RESPONSE_BYTES:
        raise _invalid(part)
    try:
        answer = json.loads(reply.data)
    except (ValueError, RecursionError):
        answer = None
    if part == "token" and 400 <= reply.status < 500:
        error = error_code(answer.get("error") if isinstance(answer, dict) else None)
        raise SignOnRefused(reasons.of("oidc_code_refused", error=error))
    if reply.status >= 500:
        problem = reasons.of("host_answered", host=url.split("/")[2], status=str(reply.status))
        raise SignOnRefused(reasons.of("oidc_unreachable", problem=problem), status=503)
    if reply.status != 200 or not isinstance(answer, dict):
        raise _invalid(part)
    return answer


def _invalid(part: str) -> SignOnRefused:
    return SignOnRefused(reasons.of("oidc_answer_invalid", part=part), status=502)
