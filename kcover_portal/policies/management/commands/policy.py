"""``manage.py policy``: publishes, lists, compares, exports and disables policies."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover import reasons
from kcover_portal.config.log_format import printed
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import shipped


class Command(BaseCommand):
    """Manages the policies."""

    help = "publish, list, compare, export and disable RescuePolicies and the WarmStandbyPolicy"

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = "apply|export|list|diff|rollback|delete|defaults|install"
        verbs = parser.add_subparsers(dest="verb", required=True, metavar=names)
        apply = verbs.add_parser(
            "apply", help="publish the policies of YAML files; each file applies completely or not at all"
        )
        apply.add_argument("-f", "--file", action="append", required=True, help="a YAML file; - for standard input")
        export = verbs.add_parser("export", help="print the active policies as one YAML text")
        export.add_argument("names", nargs="*", help="only these policies")
        listing = verbs.add_parser("list", help="list the active policies")
        listing.add_argument("--archived", action="store_true", help="list the disabled ones instead")
        diff = verbs.add_parser("diff", help="show what changed between two revisions")
        diff.add_argument("name")
        diff.add_argument("old", type=int, help="the number of the earlier revision")
        diff.add_argument("new", type=int, nargs="?", help="the number of the later revision; default: the active one")
        rollback = verbs.add_parser("rollback", help="publish an earlier revision again")
        rollback.add_argument("name")
        rollback.add_argument("revision", type=int)
        delete = verbs.add_parser("delete", help="disable a policy; its revisions are kept")
        delete.add_argument("name")
        defaults = verbs.add_parser("defaults", help="publish the built-in policies in shadow mode")
        defaults.add_argument(
            "--update", action="store_true", help="also replace those that were changed or disabled here"
        )
        install = verbs.add_parser("install", help="publish a pack of policies")
        install.add_argument("pack", choices=shipped.PACKS)
        install.add_argument("--mode", choices=shipped.MODES, default=shipped.FIRST_MODE, help="of every rule")
        for verb in (diff, rollback, delete):
            verb.add_argument("--standby", action="store_true", help="NAME is a WarmStandbyPolicy")
        for verb in (apply, rollback, delete, defaults, install):
            verb.add_argument("--reason", default="", required=verb is rollback, help="the reason for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except services.InvalidPolicies as error:
            raise CommandError(f"nothing was applied:\n{error}") from error
        except (services.Conflict, services.NotFound) as error:
            raise CommandError(str(error)) from error

    def _apply(self, options: dict[str, Any]) -> None:
        for path in options["file"]:
            text = _read(path)
            self._warn(text, path)
            before = {(row.kind, row.name): row.revision for row in Policy.objects.all()}
            try:
                applied = services.apply(text, author=shell_actor(), reason=options["reason"], now=timezone.now())
            except services.InvalidPolicies as error:
                lines = [f"{path}:{p.line}:{p.column}: {p.text}" for p in error.problems]
                raise CommandError("\n".join([f"nothing in {path} was applied:", *lines])) from error
            for policy in applied:
                result = "unchanged" if before.get((policy.kind, policy.name)) == policy.revision else "applied"
                self.stdout.write(f"{_label(policy)} revision {policy.revision} {result}")

    def _warn(self, text: str | bytes, place: str) -> None:
        for warning in services.validate(text).warnings:
            self.stderr.write(f"warning: {place}:{warning.line}:{warning.column}: {warning.message}")

    def _export(self, options: dict[str, Any]) -> None:
        known = {row.name for row in Policy.objects.filter(revision__gt=0)}
        for name in options["names"]:
            if name not in known:
                raise CommandError(f"unknown policy {name}")
        self.stdout.write(services.export(options["names"]), ending="")

    def _list(self, options: dict[str, Any]) -> None:
        for kind, noun in ((queries.RESCUE, "rule"), (queries.STANDBY, "match")):
            for revision in queries.archived(kind) if options["archived"] else queries.in_force(kind):
                policy, spec = revision.policy, revision.document["spec"]
                count = len(spec.get("rules") or spec.get("matches"))
                plural = noun if count == 1 else noun + ("es" if noun == "match" else "s")
                line = f"{policy.name}\trevision {revision.number}\t{count} {plural}\tby {revision.author}"
                if policy.archived_at is not None:
                    line += f"\tarchived by {policy.archived_by}: {reasons.text(policy.archived_because)}".rstrip(": ")
                self.stdout.write(printed(line))

    def _diff(self, options: dict[str, Any]) -> None:
        old, new = services.two_revisions(options["name"], options["old"], options["new"], kind=_kind(options))
        for line in services.compare_revisions(old, new).lines:
            self.stdout.write(line)

    def _rollback(self, options: dict[str, Any]) -> None:
        policy = services.rollback(
            options["name"],
            options["revision"],
            kind=_kind(options),
            author=shell_actor(),
            reason=options["reason"],
            now=timezone.now(),
        )
        self.stdout.write(f"{_label(policy)} revision {policy.revision} applied")

    def _delete(self, options: dict[str, Any]) -> None:
        services.delete(
            options["name"],
            kind=_kind(options),
            author=shell_actor(),
            reason=options["reason"],
            now=timezone.now(),
        )
        self.stdout.write(f"policy {options['name']} disabled")

    def _install(self, options: dict[str, Any]) -> None:
        self._warn(services.pack_text(options["pack"], options["mode"]), options["pack"])
        applied = services.install_pack(
            options["pack"],
            options["mode"],
            author=shell_actor(),
            reason=options["reason"],
            now=timezone.now(),
        )
        for policy in applied:
            self.stdout.write(f"{_label(policy)} revision {policy.revision} applied")

    def _defaults(self, options: dict[str, Any]) -> None:
        applied = services.install_defaults(
            author=shell_actor(),
            reason=options["reason"],
            now=timezone.now(),
            update=options["update"],
        )
        for policy in applied:
            self.stdout.write(f"{_label(policy)} revision {policy.revision} applied")
        if not applied:
            self.stdout.write(
                "the built-in policies are already installed; --update replaces them with the current versions"
            )


def _kind(options: dict[str, Any]) -> str:
    return queries.STANDBY if options["standby"] else queries.RESCUE


def _label(policy: Policy) -> str:
    return f"policy {policy.name}" if policy.kind == queries.RESCUE else f"standby policy {policy.name}"


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
