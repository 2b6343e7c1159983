"""Ed25519 signatures of the audit log. The private key is a file, so that nobody can sign with the database alone.

Two PEM files belong together: the private key (``KCOVER_SIGNING_KEY``) and, beside it with the suffix ``.pub``, all
public keys, oldest first. A rotation replaces the private key and adds a public key, so that old signatures stay
verifiable. Running processes notice a new file.

Sign documents that name their kind, so that a signature of one kind is never valid for another.
"""

import base64
import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings

from kcover import reasons
from kcover_portal.config import private_files

PUBLIC_SUFFIX = ".pub"
PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----\s*", re.DOTALL)


class SigningKeyUnusable(reasons.ExplainedError):
    """The signing key is missing, unreadable, or not an Ed25519 key."""


class SigningKeyExists(reasons.ExplainedError):
    """A key would be overwritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature (base64 of 64 bytes) and the id of the key that made it."""

    key_id: str
    signature: str


def canonical(document: Mapping[str, Any]) -> bytes:
    """Returns the JSON document as the bytes to sign: sorted keys, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sign(data: bytes) -> Signature:
    """Signs with the configured key. Raises SigningKeyUnusable."""
    key = _private_key(_content(settings.KCOVER_SIGNING_KEY))
    return Signature(key_id=key_id(key.public_key()), signature=base64.b64encode(key.sign(data)).decode())


def verify(data: bytes, signature: Signature, keys: Mapping[str, str] | None = None) -> bool:
    """Returns whether one of the keys (id to PEM; default: ``public_keys()``) made the signature of these bytes.

    Raises SigningKeyUnusable if a public key cannot be read.
    """
    pem = (public_keys() if keys is None else keys).get(signature.key_id)
    if pem is None:
        return False
    try:
        _public_key(pem.encode()).verify(base64.b64decode(signature.signature, validate=True), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def current_key_id() -> str:
    """Returns the id of the key that signs. Raises SigningKeyUnusable."""
    return key_id(_private_key(_content(settings.KCOVER_SIGNING_KEY)).public_key())


def public_keys() -> dict[str, str]:
    """Returns the PEM of every public key by its id, oldest first. Empty: there was never a key.

    Raises SigningKeyUnusable if the public file has another content.
    """
    path: Path = settings.KCOVER_SIGNING_KEY
    known = read_public_keys(_public_file(path)) if _public_file(path).exists() else {}
    try:
        current = _private_key(_content(path)).public_key()
    except SigningKeyUnusable:
        return known
    return known | {key_id(current): _pem(current).decode()}


def read_public_keys(path: Path) -> dict[str, str]:
    """Returns the public keys of a file by id. Raises SigningKeyUnusable if it has none or one of another kind."""
    found = PUBLIC_KEY.findall(_content(path))
    if not found:
        raise SigningKeyUnusable(reasons.of("public_keys_missing", path=str(path)))
    return {key_id(_public_key(pem)): pem.decode() for pem in found}


def key_id(key: Ed25519PublicKey) -> str:
    """Returns the first 16 hex digits of the SHA-256 of the raw public key."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:16]


def create_key(path: Path) -> str:
    """Creates a private key that only the portal's user can read, and its public file. Returns the key's id.

    Raises SigningKeyExists if there is a private key, OSError if the folder cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private_files.make_folder(path.parent)
    if path.exists():
        raise SigningKeyExists(reasons.of("signing_key_exists", path=str(path)))
    _publish(path, key)
    try:
        private_files.write_new(path, _private_pem(key))
    except FileExistsError as error:
        raise SigningKeyExists(reasons.of("signing_key_exists", path=str(path))) from error
    return key_id(key.public_key())


def rotate_key(path: Path) -> str:
    """Replaces the private key and keeps its public key for verification. Returns the new key's id.

    Raises SigningKeyUnusable if there is no key to replace, OSError if the folder cannot be written.
    """
    old = _private_key(_content(path))
    new = Ed25519PrivateKey.generate()
    _publish(path, old)
    _publish(path, new)  # before the first signature with it
    private_files.replace(path, _private_pem(new))
    return key_id(new.public_key())


def _publish(path: Path, key: Ed25519PrivateKey) -> None:
    """Adds the public key to the public file, unless it is there."""
    public = _public_file(path)
    present = read_public_keys(public) if public.exists() else {}
    if key_id(key.public_key()) not in present:
        pems = "".join(present.values()).encode() + _pem(key.public_key())
        private_files.replace(public, pems, mode=0o644)


def _public_file(path: Path) -> Path:
    return path.with_name(path.name + PUBLIC_SUFFIX)


def _content(path: Path) -> bytes:
    try:
        state = path.stat()
        return _read(path, (state.st_mtime_ns, state.st_ino, state.st_size))
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or 0)
        raise SigningKeyUnusable(reasons.of("signing_key_unreadable", path=str(path), error=why)) from error


@functools.lru_cache(maxsize=8)
def _read(path: Path, _version: tuple[int, ...]) -> bytes:
    return path.read_bytes()


@functools.lru_cache(maxsize=2)
def _private_key(pem: bytes) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise SigningKeyUnusable(reasons.of("signing_key_invalid", error=str(error))) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyUnusable(reasons.of("signing_key_invalid", error=reasons.of("signing_key_kind")))
    return key


@functools.lru_cache(maxsize=64)
def _public_key(pem: bytes) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise SigningKeyUnusable(reasons.of("signing_key_invalid", error=str(error))) from error
    if not isinstance(key, Ed25519PublicKey):
        raise SigningKeyUnusable(reasons.of("signing_key_invalid", error=reasons.of("signing_key_kind")))
    return key


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
