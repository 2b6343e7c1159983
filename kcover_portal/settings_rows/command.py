"""The management command of the rows that people set, made from the declaration of their kind."""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.config.log_format import printed
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.settings_rows.columns import (
    Column,
    Flag,
    Number,
    Pairs,
    Secret,
    Text,
)
from kcover_portal.settings_rows.resource import Resource

ONE_EACH: Final[Mapping[str, Any]] = {"action": "append", "default": []}  # --set a=1 --set b=2
SEVERAL: Final[Mapping[str, Any]] = {"action": "extend", "nargs": "+", "default": []}  # --set a=1 b=2


class SettingsCommand(BaseCommand):
    """Adds, changes, lists and removes rows. A subclass names its ``resource``, and adds what else its rows can do.

    A line of text is an option of its name, a secret a file that has it. Keys with values are ``--set key=value``.
    """

    resource: ClassVar[Resource[Any]]
    more_verbs: ClassVar[Sequence[str]] = ()
    pairs: ClassVar[Mapping[str, Any]] = ONE_EACH
    of_set: ClassVar[str] = "change it, or switch it on or off"
    of_remove: ClassVar[str] = "remove it"

    def add_arguments(self, parser: ArgumentParser) -> None:
        noun = self.resource.noun
        names = "|".join(("add", "set", *self.more_verbs, "list", "remove"))
        verbs = parser.add_subparsers(dest="verb", required=True, metavar=names)
        add = verbs.add_parser("add", help=f"add a {noun}")
        if self.resource.kinds:
            add.add_argument("--kind", required=True, help=" | ".join(self.resource.kinds))
        if self.resource.has_cluster:
            add.add_argument("--cluster", help="default: the only cluster")
        change = verbs.add_parser("set", help=self.of_set)
        states = change.add_mutually_exclusive_group()
        states.add_argument("--on", action="store_true")
        states.add_argument("--off", action="store_true")
        for verb in (add, change):
            verb.add_argument("name")
            self.add_settings(verb)
        verbs.add_parser("list", help=f"list the {noun}s without their secrets")
        remove = verbs.add_parser("remove", help=self.of_remove)
        remove.add_argument("name")
        self.add_verbs(verbs)

    def add_settings(self, parser: ArgumentParser) -> None:
        """Adds the options of a row's settings."""
        for column in self.resource.columns:
            _add_option(parser, column, pairs=self.pairs)

    def add_verbs(self, verbs: Any) -> None:
        """Adds the parsers of ``more_verbs``; each verb is a method with an underscore before its name."""

    def settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """The settings that the options give. Raises CommandError."""
        return dict(pair for column in self.resource.columns for pair in _given(column, options))

    def columns(self, row: Any) -> Sequence[str]:
        """What ``list`` shows of a row, after its name, kind and cluster."""
        return ()

    def added(self, row: Any) -> None:
        """What to say about a new row."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Does what the verb says. Raises CommandError."""
        try:
            getattr(self, f"_{options['verb']}")(options)
        except FieldError as error:
            raise CommandError(f"{error.field}: {error}" if error.field else str(error)) from error

    def find(self, name: str) -> Any:
        """The row of this name. Raises CommandError."""
        row = self.resource.rows().filter(name=name).first()
        if row is None:
            raise CommandError(f"unknown {self.resource.noun} {name}")
        return row

    def _add(self, options: dict[str, Any]) -> None:
        fixed: dict[str, Any] = {"name": options["name"]}
        if self.resource.kinds:
            fixed["kind"] = options["kind"]
        if self.resource.has_cluster:
            fixed["cluster"] = _cluster(options["cluster"])
        row = self.resource.model(**fixed)
        self.resource.make(row, self.settings(options), actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"{self.resource.noun} {options['name']} added")
        self.added(row)

    def _set(self, options: dict[str, Any]) -> None:
        given = self.settings(options)
        if options["on"] or options["off"]:
            given["enabled"] = options["on"]
        self.resource.change(self.find(options["name"]), given, actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"{self.resource.noun} {options['name']} changed")

    def _list(self, options: dict[str, Any]) -> None:
        for row in self.resource.rows():
            about = [row.name, *([row.kind] if self.resource.kinds else ())]
            about += [row.cluster.name] if self.resource.has_cluster else ()
            about += (
                ["on" if row.enabled else "off"] if any(one.name == "enabled" for one in self.resource.columns) else ()
            )
            self.stdout.write(printed("\t".join((*about, *self.columns(row)))))

    def _remove(self, options: dict[str, Any]) -> None:
        self.resource.delete(self.find(options["name"]), actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"{self.resource.noun} {options['name']} removed")


def _add_option(parser: ArgumentParser, column: Column, *, pairs: Mapping[str, Any]) -> None:
    match column:
        case Secret():
            parser.add_argument(f"--{column.name}-file", metavar="FILE", help=f"a file with the {column.name}")
        case Text():
            parser.add_argument(f"--{column.name}", help=column.option)
        case Number():
            parser.add_argument(f"--{column.name}", type=int, help=column.option)
        case Pairs():
            parser.add_argument("--set", metavar="key=value", help="key= removes the setting", **pairs)
        case Flag(name="enabled"):
            """``set`` has --on and --off."""
        case _:
            raise TypeError(f"no command has an option for {type(column).__name__}")


def _given(column: Column, options: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    """The setting with its value, or nothing if the options do not give it."""
    value: Any
    match column:
        case Secret():
            path = options[f"{column.name}_file"]
            value = text_of(path, column.name).strip() if path is not None else None
        case Pairs():
            value = _pairs(options["set"]) or None
        case Flag():
            value = None
        case _:
            value = options[column.name]
    return [(column.name, value)] if value is not None else ()


def _pairs(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise CommandError(f"--set {text!r} is invalid; write key=value")
        found[key] = value or None
    return found


def text_of(path: str, what: str) -> str:
    """The text of a file. Raises CommandError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the {what}: {error}") from error


def _cluster(name: str | None) -> Cluster:
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    if name is None and len(clusters) == 1:
        return next(iter(clusters.values()))
    if name is None or name not in clusters:
        known = ", ".join(clusters) or "none yet (make one with: cluster add)"
        raise CommandError(f"name a cluster with --cluster; known clusters: {known}")
    return clusters[name]
