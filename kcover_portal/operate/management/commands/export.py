"""``manage.py export FILE``: what people have set, as one file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.config import private_files
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.operate.settings_file import passphrases, transfer


class Command(BaseCommand):
    """Writes the file. Two exports of the same settings are equal, unless secrets are in them."""

    help = "write clusters, people, policies, channels, sources and what else people have set to one file"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the file to write; - for standard output")
        parser.add_argument("--with-secrets", action="store_true", help="with the secrets, encrypted by a passphrase")
        passphrases.add_argument(parser)
        parser.add_argument("--replace", action="store_true", help="replace the file if it is there")

    def handle(self, *args: Any, **options: Any) -> None:
        """Fails if a secret cannot be read, or the file cannot be written."""
        passphrase = passphrases.new(options["passphrase_file"]) if options["with_secrets"] else None
        try:
            text = transfer.export(passphrase, actor=shell_actor(), now=timezone.now())
        except SecretUnreadable as error:
            raise CommandError(f"{error} Run this command in worker or watch, which have the keys.") from error
        if options["file"] == "-":
            self.stdout.write(text, ending="")
            return
        write = private_files.replace if options["replace"] else private_files.write_new
        try:
            write(Path(options["file"]), text.encode())
        except OSError as error:
            raise CommandError(f"{options['file']} cannot be written: {error.strerror}") from error
        self.stdout.write(f"{options['file']} written, {'with' if passphrase else 'without'} secrets")
