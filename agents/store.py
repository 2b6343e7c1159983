"""A few small named files that survive a crash: what the spool, the command journal and the credential are kept in."""

import contextlib
import fcntl
import os
import pathlib
from typing import Protocol


class Store(Protocol):
    """Named blobs. A name is ``file`` or ``folder/file``; writing is atomic and durable when it returns."""

    def read(self, name: str) -> bytes | None:
        """The blob, or None where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Put the blob whole, or raise OSError and leave what was there."""

    def delete(self, name: str) -> None:
        """Remove the blob; an absent one is no error."""

    def names(self, folder: str) -> list[str]:
        """Names ``folder/file`` in that folder, sorted."""

    def set_aside(self, name: str) -> None:
        """Move an unreadable blob out of the way, kept for a human."""


class Folder:
    """A store on disk. Only one process may hold it: ``OSError`` (``BlockingIOError``) when another one does."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise
        for leftover in path.rglob("*.tmp"):
            leftover.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """See ``Store.read``."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """See ``Store.write``; files are readable by their owner only, as one of them is a credential."""
        target = self._path / name
        target.parent.mkdir(exist_ok=True, mode=0o700)
        draft = target.with_name(target.name + ".tmp")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def delete(self, name: str) -> None:
        """See ``Store.delete``. Not synced: a blob that comes back after a power cut is sent again, which is
        harmless."""
        (self._path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """See ``Store.names``."""
        try:
            return sorted(f"{folder}/{entry.name}" for entry in (self._path / folder).iterdir())
        except FileNotFoundError:
            return []

    def set_aside(self, name: str) -> None:
        """See ``Store.set_aside``; it goes to the folder ``aside``."""
        aside = self._path / "aside"
        aside.mkdir(exist_ok=True, mode=0o700)
        (self._path / name).replace(aside / name.replace("/", "-"))

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)


class Memory:
    """A store without a disk, for agents that live as long as their process (the simulator's)."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """See ``Store.read``."""
        return self._blobs.get(name)

    def write(self, name: str, data: bytes) -> None:
        """See ``Store.write``."""
        self._blobs[name] = data

    def delete(self, name: str) -> None:
        """See ``Store.delete``."""
        self._blobs.pop(name, None)

    def names(self, folder: str) -> list[str]:
        """See ``Store.names``."""
        return sorted(name for name in self._blobs if name.startswith(f"{folder}/"))

    def set_aside(self, name: str) -> None:
        """See ``Store.set_aside``."""
        self._blobs[f"aside/{name.replace('/', '-')}"] = self._blobs.pop(name)


def _sync_folder(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
