"""``manage.py policy``: applies, shows and withdraws policies."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.accounts import queries as accounts
from kcover_portal.policies import queries, services


class Command(BaseCommand):
    """The policies in force."""

    help = "applies, lists, exports and withdraws RescuePolicies"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One sub-command a deed."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="apply|export|list|rollback|delete")
        apply = verbs.add_parser("apply", help="puts the policies of YAML files in force, all of a file or none")
        apply.add_argument("-f", "--file", action="append", required=True, help="a YAML file; - reads from input")
        verbs.add_parser("export", help="prints every policy in force as one YAML text")
        verbs.add_parser("list", help="lists the policies in force")
        rollback = verbs.add_parser("rollback", help="puts an earlier revision in force again")
        rollback.add_argument("name")
        rollback.add_argument("revision", type=int)
        delete = verbs.add_parser("delete", help="takes a policy out of force")
        delete.add_argument("name")
        for one in (apply, rollback, delete):
            one.add_argument("--reason", default="", help="why, for the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """Carries out one sub-command."""
        try:
            getattr(self, f"_{options['verb']}")(options)
        except services.Invalid as error:
            raise CommandError(f"nothing was applied:\n{error}") from error
        except (services.Conflict, services.NotFound) as error:
            raise CommandError(str(error)) from error

    def _apply(self, options: dict[str, Any]) -> None:
        for path in options["file"]:
            text = _read(path)
            for warning in services.validate(text).warnings:
                self.stderr.write(f"warning: {path}:{warning.line}:{warning.column}: {warning.message}")
            before = {row.name: row.revision for row in queries.policies()}
            try:
                applied = services.apply(
                    text, author=accounts.shell_actor(), reason=options["reason"], now=timezone.now()
                )
            except services.Invalid as error:
                lines = [f"{path}:{p.line}:{p.column}: {p.said}" for p in error.problems]
                raise CommandError("\n".join([f"nothing of {path} was applied:", *lines])) from error
            for policy in applied:
                said = "unchanged" if before.get(policy.name) == policy.revision else "applied"
                self.stdout.write(f"policy {policy.name} revision {policy.revision} {said}")

    def _export(self, options: dict[str, Any]) -> None:
        self.stdout.write(services.export(), ending="")

    def _list(self, options: dict[str, Any]) -> None:
        for revision in queries.in_force():
            rules = len(revision.document["spec"]["rules"])
            noun = "rule" if rules == 1 else "rules"
            self.stdout.write(
                f"{revision.policy.name}\trevision {revision.number}\t{rules} {noun}\tby {revision.author}"
            )

    def _rollback(self, options: dict[str, Any]) -> None:
        policy = services.rollback(
            options["name"],
            options["revision"],
            author=accounts.shell_actor(),
            reason=options["reason"],
            now=timezone.now(),
        )
        self.stdout.write(f"policy {policy.name} revision {policy.revision} applied")

    def _delete(self, options: dict[str, Any]) -> None:
        services.delete(options["name"], author=accounts.shell_actor(), reason=options["reason"], now=timezone.now())
        self.stdout.write(f"policy {options['name']} is no longer in force")


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
