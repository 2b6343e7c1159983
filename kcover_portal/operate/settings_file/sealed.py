"""Encrypts the secrets of a file with a passphrase: scrypt (RFC 7914) and AES-256-GCM.

The secrets are bound to the sections of the file. So nobody who can change an address in the file, but does not know
the passphrase, has a secret sent there.
"""

import base64
import os
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from kcover_portal.encryption.envelope import NONCE_BYTES

METHOD: Final = "scrypt+aes-256-gcm"
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32
N, R, P = 2**17, 8, 1  # OWASP's parameters: 128 MiB of memory
SHORTEST: Final = 12  # characters of a passphrase


class SealBroken(ValueError):
    """The secrets cannot be decrypted. The message says why."""


def seal(plain: bytes, passphrase: str, *, of: bytes) -> dict[str, Any]:
    """The encrypted bytes as JSON, bound to ``of``."""
    salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
    data = AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, of)
    return {"method": METHOD, "salt": _text(salt), "nonce": _text(nonce), "data": _text(data)}


def unseal(found: dict[str, Any], passphrase: str, *, of: bytes) -> bytes:
    """The bytes that ``seal`` encrypted. Raises SealBroken."""
    if found.get("method") != METHOD:
        raise SealBroken(f"the method is unknown; this portal reads {METHOD}")
    try:
        salt, nonce, data = (base64.b64decode(found[name], validate=True) for name in ("salt", "nonce", "data"))
    except (KeyError, TypeError, ValueError) as error:
        raise SealBroken("salt, nonce and data must be Base64; export again") from error
    if len(salt) != SALT_BYTES or len(nonce) != NONCE_BYTES:
        raise SealBroken("salt or nonce is damaged; export again")
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, data, of)
    except InvalidTag as error:
        raise SealBroken(
            "the passphrase is another one, or the file was changed after its export; give the right passphrase and"
            " the unchanged file, or import it with --without-secrets"
        ) from error


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, n=N, r=R, p=P).derive(passphrase.encode())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
