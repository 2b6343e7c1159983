"""Makes proofs of rescues and verifies them with the script that third parties use, under a key of the tests."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import proof
from tests.proof_verifier import verifier

KEY_ID = "tests"

_key = Ed25519PrivateKey.generate()
KEYS = {KEY_ID: _key.public_key()}


def sign(statements: dict[str, Any]) -> dict[str, Any]:
    """The signed document with these statements, whatever they are."""
    signature = base64.b64encode(_key.sign(verifier.canonical(statements))).decode()
    return {"proof": statements, "key_id": KEY_ID, "signature": signature}


def broken_claim(rescue: Rescue) -> str:
    """The first claim that the proof of a rescue breaks; "" if it is valid. ``bench.rescue_proofs`` has the times."""
    text = json.dumps(sign(proof.unsigned(rescue)))
    try:
        verifier.verify(verifier.read(text), KEYS)
    except verifier.Broken as broken:
        return f"{broken.code}: {broken}"
    return ""


def refusal(document: dict[str, Any], heads: list[dict[str, Any]] | None = None) -> str:
    """The code of the first claim that a document breaks; "" if it is valid."""
    try:
        verifier.verify(document, KEYS, heads)
    except verifier.Broken as broken:
        return str(broken.code)
    return ""
