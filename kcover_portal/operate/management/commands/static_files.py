"""``manage.py static_files``: collects static files with hashed names and gzip copies, for installations."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.management.commands import collectstatic

from kcover_portal.config import static_files
from kcover_portal.operate.static_storage import HashedFiles


class Command(collectstatic.Command):
    """Does nothing if the files of this version are collected already."""

    help = "collect static files with hashed names and gzip copies; processes that start later serve these"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.storage = HashedFiles()

    def handle(self, **options: Any) -> str | None:
        """Collects into ``STATIC_ROOT``. The note is written last: half a collection is not used."""
        root = Path(settings.STATIC_ROOT)
        if static_files.are_collected(root, base=settings.BASE_DIR):
            return None
        (root / static_files.NOTE).unlink(missing_ok=True)
        said = super().handle(**{**options, "interactive": False, "clear": True})
        (root / static_files.NOTE).write_text(static_files.digest(settings.BASE_DIR), encoding="ascii")
        return said
