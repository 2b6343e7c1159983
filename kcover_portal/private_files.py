"""Creates folders and files that only the portal's user can read."""

import contextlib
import os
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
