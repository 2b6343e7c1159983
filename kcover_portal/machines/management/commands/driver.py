"""``manage.py driver``: the way to the management controllers of machines."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from kcover.machines import machine_drivers
from kcover_portal.config.log_format import printed
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.machines import services
from kcover_portal.machines.models import Driver
from kcover_portal.settings_rows.command import SettingsCommand, text_of


class Command(SettingsCommand):
    """Adds, changes, tests, lists and removes machine drivers, and confirms machines."""

    help = "add, change, test, list and remove the drivers of management controllers (BMCs); confirm a machine"
    resource = services.DRIVERS
    more_verbs = ("test", "confirm")
    of_set = "change a driver; give the password again if an address changes"

    def add_settings(self, parser: ArgumentParser) -> None:
        """Adds the table of addresses as a file."""
        super().add_settings(parser)
        parser.add_argument("--table", metavar="FILE", help="lines with the name of a node and its address")

    def add_verbs(self, verbs: Any) -> None:
        """Adds ``test`` and ``confirm``."""
        test = verbs.add_parser("test", help="show what a node's controller says; exit status 1 if it is unusable")
        test.add_argument("name")
        test.add_argument("--node", required=True)
        confirm = verbs.add_parser("confirm", help="believe the machine that a node states, although it has changed it")
        confirm.add_argument("name")
        confirm.add_argument("--node", required=True, nargs="+")
        seen = "the UUID, and the providerID, that each machine has as you know it; a node may state another one now"
        confirm.add_argument("--machine", required=True, nargs="+", help=seen)
        confirm.add_argument("--reason", required=True, help="for the audit log, such as: its board was replaced")

    def settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """The settings that the options give, with the table among them."""
        given = super().settings(options)
        if options["table"] is not None:
            given["settings"] = {**given.get("settings", {}), "table": text_of(options["table"], "table")}
        return given

    def columns(self, row: Driver) -> Sequence[str]:
        """Where its controllers are, and the user's name."""
        table = f"a table of {len(row.setting('table'))} nodes"
        where = row.shown_url or ("in a cluster" if row.kind in machine_drivers.IN_CLUSTER else table)
        return (where, row.username)

    def _node(self, driver: Driver, name: str) -> Node:
        row = Node.objects.select_related("cluster").filter(cluster=driver.cluster, name=name).first()
        if row is None:
            raise CommandError(f"cluster {driver.cluster} has no node {name}")
        return row

    def _confirm(self, options: dict[str, Any]) -> None:
        driver = self.find(options["name"])
        for row in [self._node(driver, name) for name in options["node"]]:
            self._confirm_one(driver, row, options["machine"], reason=options["reason"])

    def _confirm_one(self, driver: Driver, row: Node, machines: Sequence[str], *, reason: str) -> None:
        try:
            node = fleet.connect(driver.cluster).get_node(row.name)
            actor, now = shell_actor(), timezone.now()
            given = services.confirm(row, node, machines=machines, actor=actor, reason=reason, now=now)
        except (port.KubeError, services.Unusable) as error:
            raise CommandError(printed(str(error))) from error
        stated = f"UUID {node.system_uuid or 'none'}, providerID {node.provider_id or 'none'}"
        text = f"confirmed: {row.name} is {stated}" if given else f"{row.name} has changed nothing: {stated}"
        self.stdout.write(printed(text))

    def _test(self, options: dict[str, Any]) -> None:
        driver = self.find(options["name"])
        row = self._node(driver, options["node"])
        try:
            node = fleet.connect(driver.cluster).get_node(row.name)
            if driver.kind in machine_drivers.REPLACING:
                self._test_replacer(services.replacer_of(row), node)
                return
            controller = services.controller_of(row, node, driver=driver)
            controller.check_stated()
            if controller.is_requested:
                self._test_receiver(controller, row.name)
                return
            seen = controller.look()
        except (port.KubeError, services.Unusable) as error:
            raise CommandError(printed(str(error))) from error  # it may quote what the node states
        about = {"power": seen.power, "maker": seen.maker, "model": seen.model, "serial": seen.serial}
        about |= {"uuid": seen.uuid, "requests": ", ".join(seen.kinds) if seen.kinds is not None else "not listed"}
        self.stdout.write(f"{controller.host} answers for {row.name}")
        for name, value in about.items():
            self.stdout.write(printed(f"  {name}\t{value}"))

    def _test_receiver(self, controller: services.Controller, node: str) -> None:
        answer = controller.test(now=timezone.now())
        if not answer.taken:
            raise CommandError(str(answer.reason))
        self.stdout.write(f"{controller.host} accepted a test request about {node}")

    def _test_replacer(self, replacer: services.Replacer, node: port.Node) -> None:
        found = replacer.object_of(node)
        self.stdout.write(f"{replacer.kind.kind} {found.name} stands for {node.name}")
        for name, value in (("providerID", found.provider_id), ("uuid", found.system_uuid)):
            self.stdout.write(printed(f"  {name}\t{value}"))
