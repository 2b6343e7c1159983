"""``manage.py import FILE``: sets up what a file of ``export`` has."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.config.log_format import printed
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.operate.settings_file import passphrases, transfer
from kcover_portal.operate.settings_file.document import FileInvalid


class Command(BaseCommand):
    """Imports a file, all or nothing, and says what it created, changed and left alone.

    Names that nobody has checked yet are among it, so control characters are escaped.
    """

    help = "set up clusters, people, policies and what else a file of export has; all or nothing"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="a file of export; - for standard input")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and store nothing")
        parser.add_argument("--update", action="store_true", help="change objects that are there and differ")
        parser.add_argument(
            "--keep-modes",
            action="store_true",
            help="take modes beyond shadow, and settings that loosen a limit; no other portal may act there then",
        )
        parser.add_argument("--without-secrets", action="store_true", help="leave the secrets of the file out")
        passphrases.add_argument(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Fails if anything in the file is refused; then nothing is stored."""
        asked = None if options["without_secrets"] else lambda: passphrases.known(options["passphrase_file"])
        try:
            outcome = transfer.import_file(
                _content(options["file"]),
                passphrase=asked,
                update=options["update"],
                keep_modes=options["keep_modes"],
                dry_run=options["dry_run"],
                actor=shell_actor(),
                now=timezone.now(),
            )
        except FileInvalid as error:
            raise CommandError(f"nothing was imported: {printed(str(error))}") from error
        for verb, names in (("create", outcome.created), ("change", outcome.changed), ("leave", outcome.left)):
            for name in names:
                self.stdout.write(f"{verb}\t{printed(name)}")
        for note in outcome.notes:
            self.stdout.write(f"note\t{printed(note)}")
        self._sum_up(outcome, options)

    def _sum_up(self, outcome: transfer.Outcome, options: dict[str, Any]) -> None:
        counts = f"{len(outcome.created)} created, {len(outcome.changed)} changed, {len(outcome.left)} left"
        self.stdout.write(f"{counts}, {outcome.same} equal{'; a dry run: nothing was stored' * options['dry_run']}")
        if outcome.left and not options["update"]:
            self.stdout.write("add --update to change those that were left")


def _content(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
