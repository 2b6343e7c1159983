"""A software authenticator: makes passkeys and signs challenges as a browser would, or as an attacker would."""

import hashlib
import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils.http import urlsafe_base64_encode

ORIGIN, RP_ID = "http://testserver", "testserver"
PRESENT, VERIFIED, ATTESTED = 1, 4, 64


@dataclass(frozen=True, kw_only=True)
class Authenticator:
    """``verifies``: it checks the person. ``counter`` is what it reports."""

    credential: bytes = b"credential-1"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    origin: str = ORIGIN
    rp_id: str = RP_ID
    counter: int = 0
    verifies: bool = True

    def but(self, **other: Any) -> "Authenticator":
        return replace(self, **other)

    def register(self, asked: dict[str, Any]) -> dict[str, str]:
        """The fields of the form that adds the passkey."""
        numbers = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + struct.pack(">H", len(self.credential)) + self.credential + cbor2.dumps(cose)
        attestation = {"fmt": "none", "attStmt": {}, "authData": self._data(ATTESTED) + attested}
        response = {
            "clientDataJSON": _text(self._client("webauthn.create", asked)),
            "attestationObject": _text(cbor2.dumps(attestation)),
        }
        return {"credential": self._answer(response), "state": asked["state"], "name": "key"}

    def sign(self, asked: dict[str, Any]) -> dict[str, str]:
        """The fields of the form that gives a factor."""
        data, client = self._data(0), self._client("webauthn.get", asked)
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        response = {"clientDataJSON": _text(client), "authenticatorData": _text(data), "signature": _text(signature)}
        return {"factor_code": "", "factor_credential": self._answer(response), "factor_state": asked["state"]}

    def _data(self, more: int) -> bytes:
        flags = PRESENT | more | (VERIFIED if self.verifies else 0)
        return hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", flags, self.counter)

    def _client(self, kind: str, asked: dict[str, Any]) -> bytes:
        return json.dumps({"type": kind, "challenge": asked["options"]["challenge"], "origin": self.origin}).encode()

    def _answer(self, response: dict[str, str]) -> str:
        own = _text(self.credential)
        return json.dumps({"id": own, "rawId": own, "type": "public-key", "response": response})


def _text(data: bytes) -> str:
    return urlsafe_base64_encode(data)
