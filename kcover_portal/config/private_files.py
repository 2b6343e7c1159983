"""Creates folders and files that only the portal's user can read."""

import contextlib
import errno
import os
import secrets
from pathlib import Path


def make_folder(path: Path) -> None:
    """Creates a folder and its parents. Existing folders keep their permissions."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def make_file(path: Path) -> None:
    """Creates an empty file. An existing file is not changed."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def write_new(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Creates a file with its whole content, durably. Raises FileExistsError, also if another process was first."""
    draft = _draft(path, content, mode=mode)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replaces the content of a file in one step, durably. Readers see the old or the new content."""
    _draft(path, content, mode=mode).replace(path)
    sync_folder(path.parent)


def append_line(path: Path, line: str, *, mode: int = 0o640) -> None:
    """Appends a line durably. The text goes out in one write, so that lines of several processes stay whole."""
    created = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        size = os.fstat(descriptor).st_size
        cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"  # a crash may have cut the last line
        content = f"{chr(10) if cut else ''}{line}\n".encode()
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if created:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _draft(path: Path, content: bytes, *, mode: int) -> Path:
    """Writes a durable file with a unique name beside ``path``."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    return draft
