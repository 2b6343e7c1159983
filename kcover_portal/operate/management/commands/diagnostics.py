"""``manage.py diagnostics FILE``: facts about this installation for whoever helps with it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.config import private_files
from kcover_portal.operate import diagnostics


class Command(BaseCommand):
    """Writes a zip file that contains no secrets."""

    help = "Write versions, settings, health, counts and the newest rescues to a zip file, without secrets."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the zip file to create; it must not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints the path. Fails if the file exists or cannot be written."""
        path: Path = options["file"]
        try:
            private_files.write_new(path, diagnostics.bundle(now=timezone.now()))
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}") from error
        self.stdout.write(f"{path}: read it before you send it; it names clusters, nodes of metrics, and channels\n")
