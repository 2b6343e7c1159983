"""Small named files that survive a crash; used by the spool, the command journal and the credential."""

import contextlib
import fcntl
import os
import pathlib
from typing import Protocol


class Store(Protocol):
    """Named blobs. A name is ``file`` or ``folder/file``. Writes are atomic, and durable when they return."""

    def read(self, name: str) -> bytes | None:
        """The blob, or None if it is absent."""

    def write(self, name: str, data: bytes) -> None:
        """Write the whole blob, or raise OSError and leave the old one."""

    def delete(self, name: str) -> None:
        """Delete the blob. An absent one is not an error."""

    def names(self, folder: str) -> list[str]:
        """The names ``folder/file`` in that folder, sorted."""

    def quarantine(self, name: str) -> None:
        """Move an unreadable blob to the folder ``aside``, for a person to look at."""


class FolderStore:
    """A store on disk, for one process at a time. Raises BlockingIOError while another process holds it, OSError if
    it cannot be used."""

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
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Files are readable only by their owner, because one of them is a credential."""
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
        """Delete the blob, without a sync: one that reappears after a power cut is sent again, which is harmless."""
        (self._path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(f"{folder}/{entry.name}" for entry in (self._path / folder).iterdir())
        except FileNotFoundError:
            return []

    def quarantine(self, name: str) -> None:
        aside = self._path / "aside"
        aside.mkdir(exist_ok=True, mode=0o700)
        (self._path / name).replace(aside / name.replace("/", "-"))

    def close(self) -> None:
        """Release the folder for another process."""
        os.close(self._lock)


class MemoryStore:
    """A store without a disk, for agents that live as long as their process, such as those of the simulator."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def write(self, name: str, data: bytes) -> None:
        self._blobs[name] = data

    def delete(self, name: str) -> None:
        self._blobs.pop(name, None)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._blobs if name.startswith(f"{folder}/"))

    def quarantine(self, name: str) -> None:
        self._blobs[f"aside/{name.replace('/', '-')}"] = self._blobs.pop(name)


def _sync_folder(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
