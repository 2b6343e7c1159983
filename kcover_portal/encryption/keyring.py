"""The key-encryption keys of this process: read once from a file, or from the output of a command.

The first key encrypts, all keys decrypt. The source is read again if a value names an unknown key, so that a new key
needs no restart. Nothing is read before the first secret is, so that the portal starts without its keys and can report
which secrets it cannot read.
"""

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import shlex
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings

from kcover import reasons
from kcover_portal import private_files

KEY_BYTES: Final = 32  # AES-256
COMMAND_SECONDS: Final = 20.0
REREAD_SECONDS: Final = 10.0  # after the keys could not be read, or one was unknown
MAX_ERROR: Final = 200  # characters of a command's error message


class KeysUnusable(reasons.ExplainedError):
    """The configured keys cannot be read, or are not keys."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key-encryption key. ``id`` identifies it in encrypted values and reveals nothing about it."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id})"


@dataclass(frozen=True, slots=True)
class _Loaded:
    source: tuple[str, ...]
    keys: tuple[Key, ...]
    problem: reasons.Reason | None
    at: float


_lock = threading.Lock()
_loaded: _Loaded | None = None


def new_key() -> str:
    """Returns a new random key as a line of a key file."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def is_configured() -> bool:
    """Returns whether values are encrypted. Without a key they are stored as they are."""
    return bool(source())


def load() -> tuple[Key, ...]:
    """Returns the keys, the one that encrypts first; none if none is configured. Raises KeysUnusable."""
    loaded = _current(again=False)
    if loaded.problem is not None:
        raise KeysUnusable(loaded.problem)
    return loaded.keys


def find(key_id: str) -> Key | None:
    """Returns the key with this id, after reading the source again if necessary. Raises KeysUnusable."""
    found = _find(load(), key_id)
    if found is None:
        loaded = _current(again=True)
        if loaded.problem is not None:
            raise KeysUnusable(loaded.problem)
        found = _find(loaded.keys, key_id)
    return found


def _find(known: tuple[Key, ...], key_id: str) -> Key | None:
    return next((key for key in known if key.id == key_id), None)


def _current(*, again: bool) -> _Loaded:
    """The keys of the configured source; read again, at most each REREAD_SECONDS, if asked or after a failure."""
    global _loaded
    configured = source()
    with _lock:
        loaded, now = _loaded, time.monotonic()
        if loaded is not None and loaded.source == configured:
            fresh = now - loaded.at < REREAD_SECONDS
            if fresh or not (again or loaded.problem):
                return loaded
        try:
            _loaded = _Loaded(configured, _read(configured), None, now)
        except KeysUnusable as error:
            _loaded = _Loaded(configured, (), error.reason, now)
        return _loaded


def source() -> tuple[str, ...]:
    """The source of the keys: ("command", ...), ("file", path), ("own file", path) or ()."""
    if settings.KCOVER_ENCRYPTION_KEY_COMMAND:
        return ("command", settings.KCOVER_ENCRYPTION_KEY_COMMAND)
    if settings.KCOVER_ENCRYPTION_KEY_FILE:
        return ("file", settings.KCOVER_ENCRYPTION_KEY_FILE)
    if settings.KCOVER_OWN_ENCRYPTION_KEY:
        return ("own file", str(settings.KCOVER_OWN_ENCRYPTION_KEY))
    return ()


def _read(source: tuple[str, ...]) -> tuple[Key, ...]:
    if not source:
        return ()
    kind, where = source
    if kind == "command":
        return _parse(_output(where), source="KCOVER_ENCRYPTION_KEY_COMMAND")
    try:
        if kind == "own file":
            _create(Path(where))
        text = Path(where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeysUnusable(reasons.of("encryption_file_unreadable", path=where, error=str(error))) from error
    return _parse(text, source=where)


def _output(command: str) -> str:
    """Runs the command without a shell and returns what it prints. Its output is never logged."""
    program, *arguments = shlex.split(command)
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
        why = f"{COMMAND_SECONDS:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise KeysUnusable(reasons.of("encryption_command_failed", program=program, error=why)) from error
    if done.returncode:
        why = f"exit status {done.returncode}: {done.stderr.strip()[-MAX_ERROR:]}"
        raise KeysUnusable(reasons.of("encryption_command_failed", program=program, error=why))
    return done.stdout


def _parse(text: str, *, source: str) -> tuple[Key, ...]:
    """One key a line; empty lines and lines that begin with # are skipped."""
    found: list[Key] = []
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        try:
            secret = base64.b64decode(written.translate(_STANDARD), validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if len(secret) != KEY_BYTES or len(set(secret)) < KEY_BYTES // 4:
            raise KeysUnusable(reasons.of("encryption_key_invalid", source=source, line=number))
        key = Key(hashlib.sha256(b"kcover key id:" + secret).hexdigest()[:12], secret)
        if key not in found:
            found.append(key)
    if not found:
        raise KeysUnusable(reasons.of("encryption_keys_missing", source=source))
    return tuple(found)


_STANDARD: Final = str.maketrans("-_", "+/")


def _create(path: Path) -> None:
    """Creates the key file of an installation on one machine, unless it exists."""
    if path.exists():
        return
    private_files.make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    private_files.make_file(draft)
    draft.write_text(f"{new_key()}\n", encoding="utf-8")
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)  # atomic, because other processes may start at the same time
    draft.unlink()
