"""``manage.py driver``: the way to the management controllers of machines."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover.machines import machine_drivers
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines import queries, services
from kcover_portal.machines.models import Driver


class Command(BaseCommand):
    """Adds, changes, tests, lists and removes machine drivers."""

    help = "add, change, test, list and remove the drivers of management controllers (BMCs)"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="add|set|test|list|remove")
        add = verbs.add_parser("add", help="add a driver")
        add.add_argument("--kind", required=True, help=" | ".join(machine_drivers.KINDS))
        add.add_argument("--cluster", help="default: the only cluster")
        change = verbs.add_parser("set", help="change a driver; give the password again if an address changes")
        states = change.add_mutually_exclusive_group()
        states.add_argument("--on", action="store_true")
        states.add_argument("--off", action="store_true")
        for verb in (add, change):
            verb.add_argument("name")
            verb.add_argument("--url", help="such as https://{node}-bmc.example; {bmc}: the node's annotation")
            verb.add_argument("--table", metavar="FILE", help="lines with the name of a node and its address")
            verb.add_argument("--username")
            verb.add_argument("--password-file", metavar="FILE")
            verb.add_argument("--set", action="append", default=[], metavar="key=value", help="key= removes a setting")
        test = verbs.add_parser("test", help="show what a node's controller says; exit status 1 if it is unusable")
        test.add_argument("name")
        test.add_argument("--node", required=True)
        verbs.add_parser("list", help="list the drivers without their passwords")
        remove = verbs.add_parser("remove", help="remove a driver")
        remove.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except FieldError as error:
            raise CommandError(f"{error.field}: {error}" if error.field else str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        row = services.make_driver(
            options["name"],
            options["kind"],
            _cluster(options["cluster"]),
            **{name: value for name, value in _columns(options).items() if name != "settings"},
            given=_settings(options),
            actor=accounts.shell_actor(),
            now=timezone.now(),
        )
        self.stdout.write(f"driver {row.name} added")

    def _set(self, options: dict[str, Any]) -> None:
        given = _columns(options)
        if settings := _settings(options):
            given["settings"] = settings
        if options["on"] or options["off"]:
            given["enabled"] = options["on"]
        row = services.change_driver(_find(options["name"]), given, actor=accounts.shell_actor(), now=timezone.now())
        self.stdout.write(f"driver {row.name} changed")

    def _test(self, options: dict[str, Any]) -> None:
        driver = _find(options["name"])
        row = Node.objects.select_related("cluster").filter(cluster=driver.cluster, name=options["node"]).first()
        if row is None:
            raise CommandError(f"cluster {driver.cluster} has no node {options['node']}")
        try:
            node = fleet.connect(driver.cluster).get_node(row.name)
            if driver.kind in machine_drivers.REPLACING:
                self._test_replacer(services.replacer_of(row), node)
                return
            controller = services.controller_of(row, node, driver=driver)
            if controller.is_requested:
                self._test_receiver(controller, row.name)
                return
            seen = controller.look()
        except (port.KubeError, services.Unusable) as error:
            raise CommandError(str(error)) from error
        about = {"power": seen.power, "maker": seen.maker, "model": seen.model, "serial": seen.serial}
        about |= {"uuid": seen.uuid, "requests": ", ".join(seen.kinds) if seen.kinds is not None else "not listed"}
        self.stdout.write(f"{controller.host} answers for {row.name}")
        for name, value in about.items():
            self.stdout.write(f"  {name}\t{value}")

    def _test_receiver(self, controller: services.Controller, node: str) -> None:
        answer = controller.test(now=timezone.now())
        if not answer.taken:
            raise CommandError(str(answer.reason))
        self.stdout.write(f"{controller.host} accepted a test request about {node}")

    def _test_replacer(self, replacer: services.Replacer, node: port.Node) -> None:
        found = replacer.object_of(node)
        self.stdout.write(f"{replacer.kind.kind} {found.name} stands for {node.name}")
        for name, value in (("providerID", found.provider_id), ("uuid", found.system_uuid)):
            self.stdout.write(f"  {name}\t{value}")

    def _list(self, options: dict[str, Any]) -> None:
        for row in Driver.objects.select_related("cluster"):
            listed = len(row.setting("table"))
            where = row.shown_url or (
                "in a cluster" if row.kind in machine_drivers.IN_CLUSTER else f"a table of {listed} nodes"
            )
            state = "on" if row.enabled else "off"
            self.stdout.write("\t".join((row.name, row.kind, row.cluster.name, state, where, row.username)))

    def _remove(self, options: dict[str, Any]) -> None:
        row = _find(options["name"])
        services.delete_driver(row, actor=accounts.shell_actor(), now=timezone.now())
        self.stdout.write(f"driver {options['name']} removed")


def _cluster(name: str | None) -> Cluster:
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    if name is None and len(clusters) == 1:
        return next(iter(clusters.values()))
    if name is None or name not in clusters:
        known = ", ".join(clusters) or "none yet (make one with: cluster add)"
        raise CommandError(f"name a cluster with --cluster; known clusters: {known}")
    return clusters[name]


def _find(name: str) -> Driver:
    row = queries.named(name)
    if row is None:
        raise CommandError(f"unknown driver {name}")
    return row


def _columns(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: options[name] for name in ("url", "username") if options[name] is not None}
    if options["password_file"] is not None:
        given["password"] = _text(options["password_file"], "password").strip()
    return given


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in options["set"]:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise CommandError(f"--set {pair!r} is invalid; write key=value")
        found[key] = value or None
    if options["table"] is not None:
        found["table"] = _text(options["table"], "table")
    return found


def _text(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the {what}: {error}") from error
