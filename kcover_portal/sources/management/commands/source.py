"""``manage.py source``: systems that report faults."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover.sources import settings
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source

PAIRS: dict[str, Any] = {"action": "extend", "nargs": "+", "default": [], "metavar": "key=value"}


class Command(BaseCommand):
    """Adds, lists, tests and removes sources."""

    help = "add, list, test and remove the systems that report faults"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="add|list|test|set|remove")
        add = verbs.add_parser("add", help="add a source")
        add.add_argument("name")
        kinds = [kind for kind in settings.KINDS if kind not in settings.WATCHED]
        add.add_argument("--kind", required=True, help=" | ".join(kinds))
        add.add_argument("--cluster", help="default: the only cluster")
        add.add_argument("--url", default="", help="the address that the portal reads")
        add.add_argument("--token-file", metavar="F", help="a file with the token that the portal sends")
        add.add_argument("--set", help="settings; may be repeated", **PAIRS)
        verbs.add_parser("list", help="list the sources without their tokens")
        test = verbs.add_parser("test", help="show what a source saw in the last hour; exit status 1 if it is broken")
        test.add_argument("name")
        change = verbs.add_parser("set", help="change settings, or switch a source on or off")
        change.add_argument("name")
        change.add_argument("--set", help="key= removes the setting", **PAIRS)
        states = change.add_mutually_exclusive_group()
        states.add_argument("--on", action="store_true")
        states.add_argument("--off", action="store_true")
        remove = verbs.add_parser("remove", help="remove a source and revoke its tokens")
        remove.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        services.make_watched_sources(timezone.now())
        try:
            getattr(self, f"_{options['verb']}")(options)
        except FieldError as error:
            raise CommandError(f"{error.field}: {error}" if error.field else str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        row = services.make_source(
            options["name"],
            options["kind"],
            _cluster(options["cluster"]),
            url=options["url"],
            token=_token(options["token_file"]),
            given=_settings(options["set"]),
            actor=accounts.shell_actor(),
            now=timezone.now(),
        )
        self.stdout.write(f"source {row.name} added")
        if (warning := queries.warning(row)) is not None:
            self.stdout.write(f"warning: {warning}")
        if row.is_pushed:
            self.stdout.write(f"send events to /api/v1/sources/{row.name}/events with a token of:")
            self.stdout.write(f"  manage.py token create --kind source --source {row.name}")

    def _list(self, options: dict[str, Any]) -> None:
        for row in Source.objects.select_related("cluster"):
            lag = f"lag {row.lag:.1f} s" if row.lag is not None else "no lag"
            last = f"last event {row.event_at:%Y-%m-%d %H:%M:%S}" if row.event_at else "no event"
            state = "on" if row.enabled else "off"
            error = str(row.why) if row.why else "no error"
            self.stdout.write("\t".join((row.name, row.kind, row.cluster.name, state, last, lag, error)))

    def _test(self, options: dict[str, Any]) -> None:
        trial = services.try_source(_find(options["name"]), now=timezone.now())
        lag = f", lag {trial.lag_seconds:.1f} s" if trial.lag_seconds is not None else ""
        self.stdout.write(f"{'ok' if trial.ok else 'not ok'}: {trial.seen} events in the last hour{lag}")
        if trial.error is not None:
            raise CommandError(str(trial.error))

    def _set(self, options: dict[str, Any]) -> None:
        given: dict[str, Any] = {}
        if options["set"]:
            given["settings"] = {key: value or None for key, value in _settings(options["set"]).items()}
        if options["on"] or options["off"]:
            given["enabled"] = options["on"]
        row = _find(options["name"])
        services.change_source(row, given, actor=accounts.shell_actor(), reason="", now=timezone.now())
        self.stdout.write(f"source {row.name} changed")

    def _remove(self, options: dict[str, Any]) -> None:
        row = _find(options["name"])
        services.delete_source(row, actor=accounts.shell_actor(), reason="", now=timezone.now())
        self.stdout.write(f"source {row.name} removed")


def _cluster(name: str | None) -> Cluster:
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    if name is None and len(clusters) == 1:
        return next(iter(clusters.values()))
    if name not in clusters:
        known = ", ".join(clusters) or "none yet (make one with: cluster add)"
        raise CommandError(f"name a cluster with --cluster; known clusters: {known}")
    return clusters[name]


def _find(name: str) -> Source:
    row = queries.named(name)
    if row is None:
        raise CommandError(f"unknown source {name}")
    return row


def _settings(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise CommandError(f"--set {pair!r} is invalid; write key=value")
        found[key] = value
    return found


def _token(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the token: {error}") from error
