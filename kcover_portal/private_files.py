"""Folders and files that only the portal's user may read."""

import contextlib
import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Makes a folder and its parents; folders that exist keep their permissions."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def make_file(path: Path) -> None:
    """Makes an empty file; a file that exists is left as it is."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
