"""The format of an encrypted value, and its encryption.

Each value has a random data key of its own: the value is encrypted with the data key, and the data key with a
key-encryption key, both by AES-256-GCM (NIST SP 800-38D). Both are bound to the place of the value (table, column and
row), so a value that is copied to another row or column cannot be decrypted. Rotation encrypts only the data key again.

    kcover:1:<id of the key-encryption key>:<nonce and encrypted data key>:<nonce and encrypted value>
"""

import base64
import functools
import os
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kcover import reasons
from kcover_portal.encryption import keyring

PREFIX: Final = "kcover:1:"
NONCE_BYTES: Final = 12
CACHED: Final = 2048  # decrypted values that a process remembers


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """The place where a value is stored: the column as table.column, and the value that identifies the row for good.

    ``engine_only``: it is encrypted for the engine's processes, if they have a key of their own. ``receiver``: the only
    system that then gets it, so that who can write the row but lacks the key cannot have it sent elsewhere.
    """

    column: str
    row: str
    engine_only: bool = field(default=False, compare=False)
    receiver: str = ""

    def associated(self, key_id: str) -> bytes:
        """The data that a value is bound to, if a key of this id encrypts it."""
        bound = [self.column, self.row]
        if self.receiver and keyring.ring_of(key_id) == keyring.Ring.ENGINE:
            bound.append(self.receiver)
        return "\0".join(bound).encode()


class SecretUnreadable(reasons.ExplainedError):
    """A stored secret cannot be decrypted, and nothing may be done with it. The message names it and says why."""

    def __init__(self, place: SecretLocation, why: reasons.Reason) -> None:
        super().__init__(reasons.of("secret_unreadable", secret=place.column, row=place.row, why=why))
        self.place = place
        self.why = why


def seal(text: str, place: SecretLocation) -> str:
    """Returns the value to store: encrypted, or as it is if no key is configured. Raises KeysUnusable."""
    known = _keys_for(place)
    if not text or not known:
        return text
    data_key = AESGCM.generate_key(bit_length=256)
    value = _encrypt(data_key, text.encode(), b"value\0" + place.associated(known[0].id))
    return _joined(known[0], data_key, value, place)


def unseal(stored: str, place: SecretLocation) -> str:
    """Returns the text of a stored value. Raises SecretUnreadable."""
    if not stored:
        return ""
    try:
        if not stored.startswith(PREFIX):
            if _keys_for(place):
                raise SecretUnreadable(place, reasons.of("encryption_value_plain"))
            return stored
        return _decrypted(stored, place, keyring.source(keyring.ring_of(key_of(stored))))
    except keyring.KeysUnusable as error:
        raise SecretUnreadable(place, error.reason) from error


def reseal(stored: str, place: SecretLocation) -> str:
    """Returns the stored value under the first key: unchanged if it already is. Encrypts a plain value.

    A value that moves to the engine's keys gets a new data key, because others could decrypt the present one. Raises
    SecretUnreadable, and KeysUnusable.
    """
    known = _keys_for(place)
    if not stored or not known:
        return stored
    if not stored.startswith(PREFIX):
        return seal(stored, place)
    key_id, wrapped, value = _parts(stored, place)
    if key_id == known[0].id:
        return stored
    if keyring.ring_of(key_id) != keyring.ring_of(known[0].id):
        return seal(unseal(stored, place), place)
    return _joined(known[0], _data_key(key_id, wrapped, place), value, place)


def key_of(stored: str) -> str:
    """Returns the id of the key of a stored value; "" if it is not encrypted."""
    return stored[len(PREFIX) :].partition(":")[0] if stored.startswith(PREFIX) else ""


def is_for_engine(stored: str) -> bool:
    """Returns whether only the engine's processes can decrypt a stored value."""
    return keyring.ring_of(key_of(stored)) == keyring.Ring.ENGINE


def _keys_for(place: SecretLocation) -> tuple[keyring.Key, ...]:
    """The keys that encrypt a value here; the engine's for its own values, if this process has them."""
    return (place.engine_only and keyring.load(keyring.Ring.ENGINE)) or keyring.load()


@functools.lru_cache(maxsize=CACHED)
def _decrypted(stored: str, place: SecretLocation, _source: tuple[str, ...]) -> str:
    key_id, wrapped, value = _parts(stored, place)
    return _decrypt(_data_key(key_id, wrapped, place), value, b"value\0" + place.associated(key_id), place).decode()


def _parts(stored: str, place: SecretLocation) -> tuple[str, bytes, bytes]:
    try:
        key_id, wrapped, value = stored[len(PREFIX) :].split(":")
        return key_id, base64.b64decode(wrapped, validate=True), base64.b64decode(value, validate=True)
    except ValueError as error:
        raise SecretUnreadable(place, reasons.of("encryption_value_altered")) from error


def _data_key(key_id: str, wrapped: bytes, place: SecretLocation) -> bytes:
    key = keyring.find(key_id)
    if key is None:
        ring = keyring.ring_of(key_id)
        if ring == keyring.Ring.ENGINE and not keyring.is_configured(ring):
            raise SecretUnreadable(place, reasons.of("encryption_key_of_engine", key=key_id))
        known = [each.id for each in keyring.load(ring)]
        unset = reasons.of("encryption_key_unset", key=key_id)
        unknown = reasons.of("encryption_key_unknown", key=key_id, known=", ".join(known))
        raise SecretUnreadable(place, unknown if known else unset)
    return _decrypt(key.secret, wrapped, b"key\0" + place.associated(key_id), place)


def _joined(key: keyring.Key, data_key: bytes, value: bytes, place: SecretLocation) -> str:
    wrapped = _encrypt(key.secret, data_key, b"key\0" + place.associated(key.id))
    return f"{PREFIX}{key.id}:{base64.b64encode(wrapped).decode()}:{base64.b64encode(value).decode()}"


def _encrypt(key: bytes, data: bytes, associated: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, associated)


def _decrypt(key: bytes, data: bytes, associated: bytes, place: SecretLocation) -> bytes:
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise SecretUnreadable(place, reasons.of("encryption_value_altered")) from error
