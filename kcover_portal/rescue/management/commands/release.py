"""``manage.py release``: removes the portal's own cordons, taints and labels from nodes, and another system's taint."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q, QuerySet
from django.utils import timezone

from kcover.nodes import foreign_taints, marks
from kcover_portal.config.log_format import printed
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.rescue import services
from kcover_portal.rescue.queries import proved_marks, standbys


class Command(BaseCommand):
    """Opens a release for each node; the workers carry it out."""

    help = "removes the portal's own cordons, taints and labels from nodes"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Accepts nodes by name, or every node of a cluster that carries the portal's mark."""
        parser.add_argument("nodes", nargs="*", metavar="NODE")
        parser.add_argument(
            "--all", action="store_true", help="every node of the cluster that carries the portal's mark"
        )
        parser.add_argument(
            "--taints-of",
            choices=tuple(foreign_taints.KNOWN),
            help=(
                "also the taint that this system sets; shows what would be removed, unless there is --yes. With --all,"
                " nodes with marks of the portal or open incidents are skipped"
            ),
        )
        parser.add_argument("--yes", action="store_true", help="remove what --taints-of shows")
        parser.add_argument("--cluster", help="the cluster's name; can be omitted if there is only one")
        parser.add_argument("--reason", default="released by command")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints a line for each node. Fails if one could not be released."""
        if bool(options["nodes"]) == options["all"]:
            raise CommandError("name the nodes to release, or give --all with --cluster NAME, but not both")
        cluster, system = _cluster(options["cluster"]), options["taints_of"] or ""
        nodes = _nodes(cluster, options["nodes"], system)
        if system and options["all"]:
            nodes = self._without_isolated(cluster, nodes)
        if system and not options["yes"]:
            self._preview(nodes, system)
            return
        refused = 0
        for node in nodes:
            try:
                rescue = services.request(
                    node,
                    "release",
                    actor=shell_actor(),
                    reason=options["reason"],
                    now=timezone.now(),
                    taints_of=system,
                )
                self.stdout.write(f"{node.name}: rescue {rescue.pk} releases it")
            except services.RescueRefused as refusal:
                refused += 1
                self.stdout.write(f"{node.name}: not released: {refusal}")
        if refused:
            raise CommandError(f"{refused} nodes were not released")

    def _without_isolated(self, cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
        """The nodes on which nothing but the other system's taint is open. Says which are skipped, and why."""
        marked = set(_marked(cluster).values_list("pk", flat=True))
        kept = []
        for node in nodes:
            count = incidents.open_on(node).count()
            faults = f"{count} open incidents" if count else ""
            if why := "has marks of the portal" if node.pk in marked else faults:
                self.stdout.write(f"{node.name}: skipped: {why}; name it to release it")
            else:
                kept.append(node)
        return kept

    def _preview(self, nodes: Sequence[Node], system: str) -> None:
        """Says what would be removed from each node, and what speaks against it."""
        key, value, effect = foreign_taints.KNOWN[system]
        for node in nodes:
            shown = marks.read(node.marks)
            # A kubelet writes the mark, too; a release removes what rows prove.
            own = proved_marks.by(proved_marks.known(node, uid=node.uid), shown) if shown is not None else None
            gone = [f"{name}={text}:{kind}" for name, text, kind in (own.taints if own is not None else ())]
            if _is_tainted(node, system) and f"{key}={value}:{effect}" not in gone:
                gone.append(f"{key}={value}:{effect} of {system}")
            count = incidents.open_on(node).count()
            faults = f", {count} open incidents" if count else ""
            self.stdout.write(printed(f"{node.name}: {', '.join(gone) or 'no taint, other marks'}{faults}"))
        self.stdout.write(f"{len(nodes)} nodes; add --yes to release them")


def _cluster(name: str | None) -> Cluster:
    known = Cluster.objects.order_by("name")
    found = known.filter(name=name).first() if name else known.first() if known.count() == 1 else None
    if found is None:
        names = ", ".join(known.values_list("name", flat=True)) or "none"
        problem = f"there is no cluster {name}" if name else "name the cluster with --cluster NAME"
        raise CommandError(f"{problem}; registered clusters: {names}")
    return found


def _is_tainted(node: Node, system: str) -> bool:
    """Returns whether the node has the taint of the system, as last seen."""
    taint = dict(zip(("key", "value", "effect"), foreign_taints.KNOWN[system], strict=True))
    return any(taint.items() <= found.items() for found in node.taints)


def _marked(cluster: Cluster) -> "QuerySet[Node]":
    """The nodes with marks of the portal."""
    marked = ~Q(marks={}) | Q(rescues__in=cluster.rescues.exclude(marks={})) | Q(probation_until__isnull=False)
    return Node.objects.filter(marked | Q(stands_in__in=standbys.assignments()), cluster=cluster).distinct()


def _nodes(cluster: Cluster, names: list[str], system: str) -> list[Node]:
    """The named nodes; without names, those with marks of the portal, and those with the taint of the system."""
    nodes = Node.objects.filter(cluster=cluster).order_by("name")
    if not names:
        found = {node.pk: node for node in _marked(cluster)}
        if system:
            found |= {node.pk: node for node in nodes.filter(in_cluster=True) if _is_tainted(node, system)}
        return sorted(found.values(), key=lambda node: node.name)
    named = list(nodes.filter(name__in=names))
    missing = set(names) - {node.name for node in named}
    if missing:
        raise CommandError(f"cluster {cluster.name} has no node {', '.join(sorted(missing))}")
    return named
