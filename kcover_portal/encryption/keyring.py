"""The key-encryption keys of this process: read once from a file, or from the output of a command.

There are two rings. The processes of the portal share the first. Only the engine (worker, watch) has the second: it
encrypts what the processes that people and agents reach must not read.

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
from enum import StrEnum
from pathlib import Path
from typing import Final

from django.conf import settings

from kcover import reasons
from kcover_portal.config import private_files

KEY_BYTES: Final = 32  # AES-256
COMMAND_SECONDS: Final = 20.0
REREAD_SECONDS: Final = 10.0  # after the keys could not be read, or one was unknown
MAX_ERROR: Final = 200  # characters of a command's error message
ENGINE_PREFIX: Final = "e-"  # of the ids of the engine's keys, so that a process without them knows what it lacks


class Ring(StrEnum):
    """Which keys: those that all processes have, or those of the engine."""

    SHARED = "shared"
    ENGINE = "engine"


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
_loaded: dict[Ring, _Loaded] = {}


def new_key() -> str:
    """Returns a new random key as a line of a key file."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def is_configured(ring: Ring = Ring.SHARED) -> bool:
    """Returns whether the ring has a source. Without a shared key, values are stored as they are."""
    return bool(source(ring))


def ring_of(key_id: str) -> Ring:
    """Returns the ring that a key belongs to."""
    return Ring.ENGINE if key_id.startswith(ENGINE_PREFIX) else Ring.SHARED


def load(ring: Ring = Ring.SHARED) -> tuple[Key, ...]:
    """Returns the keys, the one that encrypts first; none if none is configured. Raises KeysUnusable."""
    loaded = _current(ring, again=False)
    if loaded.problem is not None:
        raise KeysUnusable(loaded.problem)
    return loaded.keys


def find(key_id: str) -> Key | None:
    """Returns the key with this id, after reading the source again if necessary. Raises KeysUnusable."""
    ring = ring_of(key_id)
    found = _find(load(ring), key_id)
    if found is None:
        loaded = _current(ring, again=True)
        if loaded.problem is not None:
            raise KeysUnusable(loaded.problem)
        found = _find(loaded.keys, key_id)
    return found


def _find(known: tuple[Key, ...], key_id: str) -> Key | None:
    return next((key for key in known if key.id == key_id), None)


def _current(ring: Ring, *, again: bool) -> _Loaded:
    """The keys of the configured source; read again, at most each REREAD_SECONDS, if asked or after a failure."""
    configured = source(ring)
    with _lock:
        loaded, now = _loaded.get(ring), time.monotonic()
        if loaded is not None and loaded.source == configured:
            fresh = now - loaded.at < REREAD_SECONDS
            if fresh or not (again or loaded.problem):
                return loaded
        try:
            loaded = _Loaded(configured, _read(configured, ring), None, now)
        except KeysUnusable as error:
            loaded = _Loaded(configured, (), error.reason, now)
        _loaded[ring] = loaded
        return loaded


def source(ring: Ring = Ring.SHARED) -> tuple[str, ...]:
    """The source of the keys: ("command", ...), ("file", path), ("own file", path) or ()."""
    if ring == Ring.ENGINE:
        if settings.KCOVER_ENGINE_KEY_COMMAND:
            return ("command", settings.KCOVER_ENGINE_KEY_COMMAND)
        return ("file", settings.KCOVER_ENGINE_KEY_FILE) if settings.KCOVER_ENGINE_KEY_FILE else ()
    if settings.KCOVER_ENCRYPTION_KEY_COMMAND:
        return ("command", settings.KCOVER_ENCRYPTION_KEY_COMMAND)
    if settings.KCOVER_ENCRYPTION_KEY_FILE:
        return ("file", settings.KCOVER_ENCRYPTION_KEY_FILE)
    if settings.KCOVER_OWN_ENCRYPTION_KEY:
        return ("own file", str(settings.KCOVER_OWN_ENCRYPTION_KEY))
    return ()


def _read(source: tuple[str, ...], ring: Ring) -> tuple[Key, ...]:
    if not source:
        return ()
    kind, where = source
    if kind == "command":
        setting = "KCOVER_ENGINE_KEY_COMMAND" if ring == Ring.ENGINE else "KCOVER_ENCRYPTION_KEY_COMMAND"
        return _parse(_output(where, setting=setting), source=setting, ring=ring)
    try:
        if kind == "own file":
            _create(Path(where))
        text = Path(where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeysUnusable(reasons.of("encryption_file_unreadable", path=where, error=str(error))) from error
    return _parse(text, source=where, ring=ring)


def _output(command: str, *, setting: str) -> str:
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
        raise KeysUnusable(
            reasons.of("encryption_command_failed", setting=setting, program=program, error=why)
        ) from error
    if done.returncode:
        why = f"exit status {done.returncode}: {done.stderr.strip()[-MAX_ERROR:]}"
        raise KeysUnusable(reasons.of("encryption_command_failed", setting=setting, program=program, error=why))
    return done.stdout


def _parse(text: str, *, source: str, ring: Ring) -> tuple[Key, ...]:
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
        prefix = ENGINE_PREFIX if ring == Ring.ENGINE else ""
        key = Key(prefix + hashlib.sha256(b"kcover key id:" + secret).hexdigest()[:12], secret)
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
