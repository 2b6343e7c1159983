"""Tells whether the collected static files (``manage.py static_files``) belong to this version.

Settings ask at the start of each process: without them, or after an upgrade that did not collect again, the portal
serves the files as they are, without hashed names and without compression.
"""

import hashlib
from pathlib import Path
from typing import Final

NOTE: Final = "collected.sha256"  # in the folder of collected files: the digest of their sources


def digest(base: Path) -> str:
    """The SHA-256 of the files in ``base/static`` and of the pinned packages, which bring files of their own."""
    found = hashlib.sha256()
    for path in (base / "requirements.lock", *sorted(one for one in (base / "static").rglob("*") if one.is_file())):
        content = path.read_bytes() if path.exists() else b""
        found.update(f"{path.relative_to(base)} {len(content)}\n".encode() + content)
    return found.hexdigest()


def are_collected(root: Path, *, base: Path) -> bool:
    """Returns whether ``root`` has the collected files of this version."""
    note = root / NOTE
    return note.is_file() and note.read_text(encoding="ascii").strip() == digest(base)


def storages(*, collected: bool) -> dict[str, dict[str, str]]:
    """The value of Django's ``STORAGES``: hashed names for collected files, else the files as they are."""
    hashed, plain = "kcover_portal.operate.static_storage.HashedFiles", "django.contrib.staticfiles.storage"
    return {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": hashed if collected else f"{plain}.StaticFilesStorage"},
    }
