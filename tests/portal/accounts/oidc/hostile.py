"""A provider over real HTTP, with real keys, whose answers the test sets: for attacks and faults."""

import base64
import functools
import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwk, jwt

from kcover_portal.config.oidc_settings import Oidc

CLIENT, SECRET = "kcover", "a secret with spaces & colons:"
PORTAL = "http://testserver"


@functools.cache
def key() -> jwk.RSAKey:
    """One key for all tests: making one takes a second."""
    return jwk.RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


class Provider:
    """``claims``, ``document`` and ``token`` are merged into what an honest provider would send; None removes a key."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.key = key()
        self.published = [self.key.as_dict(private=False)]
        self.claims: dict[str, Any] = {}
        self.document: dict[str, Any] = {}
        self.token: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.status: dict[str, int] = {}
        self.raw: dict[str, bytes] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.challenge = self.nonce = ""
        self.issuer = ""

    @property
    def client(self) -> Oidc:
        return Oidc(issuer=self.issuer, client_id=CLIENT, client_secret=SECRET, portal=PORTAL)

    def authorize(self, address: str) -> dict[str, str]:
        """What the browser asks for; returns the parameters of an honest redirect."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        self.challenge, self.nonce = query["code_challenge"], query["nonce"]
        return {"code": "the-code", "state": query["state"], "iss": self.issuer}

    def id_token(self) -> str:
        now = self.now
        claims = {
            "iss": self.issuer,
            "sub": "person-1",
            "aud": CLIENT,
            "iat": int(now.timestamp()),
            "exp": int((now + timedelta(minutes=5)).timestamp()),
            "nonce": self.nonce,
            "preferred_username": "anna",
            "groups": [],
            **self.claims,
        }
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def sign(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)

    def logout_token(self, **more: Any) -> str:
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": int(self.now.timestamp()),
            "exp": int((self.now + timedelta(minutes=2)).timestamp()),
            "jti": "x",
            "sub": "person-1",
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
            **more,
        }
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def answer(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        if path.endswith("/.well-known/openid-configuration"):
            honest = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "end_session_endpoint": f"{self.issuer}/end",
            }
            return {name: value for name, value in {**honest, **self.document}.items() if value is not None}
        if path.endswith("/jwks"):
            return {"keys": self.published}
        if path.endswith("/userinfo"):
            return {"sub": "person-1", **self.userinfo}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != self.challenge:
            return {"error": "invalid_grant"}
        answer = {"access_token": "at", "token_type": "Bearer", "id_token": self.id_token(), **self.token}
        return {name: value for name, value in answer.items() if value is not None}


def unsigned(claims: dict[str, Any]) -> str:
    """A token with the algorithm none."""
    parts = ({"alg": "none", "kid": "one"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def signed_with_public_key(provider: Provider, claims: dict[str, Any]) -> str:
    """A token signed by HMAC with the provider's public key as the secret."""
    head, body, _ = unsigned(claims).split(".")
    head = base64.urlsafe_b64encode(b'{"alg": "HS256", "kid": "one"}').rstrip(b"=").decode()
    digest = hmac.digest(provider.key.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@contextmanager
def running(now: datetime) -> Iterator[Provider]:
    provider = Provider(now)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._do({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._do({name: values[0] for name, values in parse_qs(body).items()})

        def _do(self, form: dict[str, str]) -> None:
            provider.asked.append((self.path, form, dict(self.headers)))
            name = self.path.rsplit("/", 1)[1]
            answer = provider.answer(self.path, form)
            status = provider.status.get(name, 400 if "error" in answer else 200)
            data = provider.raw.get(name) or json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Location", f"{provider.issuer}/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_address[1]}/realm"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
