"""``manage.py database roles``: separates the owner of the tables from the portal's role, on PostgreSQL."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from kcover_portal.operate import database_roles


class Command(BaseCommand):
    """Gives the application role its rights."""

    help = (
        "roles --application ROLE: run it as the owner of the tables; ROLE can then use the portal's tables, and only"
        " append to the audit log"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=("roles",))
        parser.add_argument("--application", required=True, metavar="ROLE", help="the role that the portal runs as")
        parser.add_argument("--print", action="store_true", help="print the SQL instead of executing it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Grants in one transaction. Raises CommandError if the role or the ownership is missing."""
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
