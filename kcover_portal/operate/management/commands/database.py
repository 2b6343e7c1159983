"""``manage.py database``: roles of PostgreSQL, backups and their restore."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.utils import timezone

from kcover_portal.fleet import services as fleet
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.operate import backups, database_roles
from kcover_portal.operate.ledger_verification import LedgerVerification

RESTORED = "restored from a backup; check what happened since, then resume"


class Command(BaseCommand):
    """Gives the application role its rights; backs up and restores."""

    help = (
        "roles --application ROLE: run it as the owner of the tables; ROLE can then use the portal's tables, and only"
        " append to the audit log. backup FILE: write everything to a new file. restore FILE: fill an empty database,"
        " verify the audit log, and pause automation"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        roles = verbs.add_parser("roles", help="separate the owner of the tables from the portal's role")
        roles.add_argument("--application", required=True, metavar="ROLE", help="the role that the portal runs as")
        roles.add_argument("--print", action="store_true", help="print the SQL instead of executing it")
        for verb, text in (("backup", "the file to create"), ("restore", "a file that backup has written")):
            verbs.add_parser(verb).add_argument("file", type=Path, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError if a role, a right, a program or a file is missing."""
        if options["verb"] == "roles":
            self._roles(options)
            return
        path: Path = options["file"]
        try:
            if options["verb"] == "backup":
                size = backups.back_up(path)
                self.stdout.write(f"{path}: {size} bytes; keep the encryption keys elsewhere")
            else:
                backups.restore(path)
                self._wake()
        except backups.BackupError as error:
            raise CommandError(str(error)) from error

    def _wake(self) -> None:
        """Makes the restored database ready: current tables, the reason of the pause, a verified audit log."""
        call_command("migrate", verbosity=0)
        fleet.pause(cluster=None, reason=RESTORED, actor=shell_actor(), now=timezone.now())
        self.stdout.write("restored; automation is paused. Read docs/operations/record/ledger.md#restore-a-backup")
        verification = LedgerVerification(say=self.stdout.write)
        verification.chains()
        verification.conclude()

    def _roles(self, options: dict[str, Any]) -> None:
        """Grants in one transaction."""
        role = options["application"]
        if connection.vendor != "postgresql":
            raise CommandError("roles exist in PostgreSQL only; SQLite has no accounts")
        if options["print"]:
            for statement in database_roles.statements(connection, role):
                self.stdout.write(f"{statement};")
            return
        if not database_roles.exists(connection, role):
            raise CommandError(f"there is no role {role}; create it first: CREATE ROLE {role} LOGIN PASSWORD '...'")
        if not database_roles.is_owner(connection):
            raise CommandError("this account does not own the tables; set KCOVER_DATABASE_URL to the owner's")
        with transaction.atomic():
            database_roles.grant(connection, role)
        self.stdout.write(f"{role} can use the tables, and read and append the audit log")
