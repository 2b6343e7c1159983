"""``manage.py release``: removes the portal's own cordons, taints and labels from nodes."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q, QuerySet
from django.utils import timezone

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.rescue import services
from kcover_portal.rescue.queries import standbys


class Command(BaseCommand):
    """Opens a release for each node; the workers carry it out."""

    help = "removes the portal's own cordons, taints and labels from nodes"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Accepts nodes by name, or every node of a cluster that carries the portal's mark."""
        parser.add_argument("nodes", nargs="*", metavar="NODE")
        parser.add_argument(
            "--all", action="store_true", help="every node of the cluster that carries the portal's mark"
        )
        parser.add_argument("--cluster", help="the cluster's name; can be omitted if there is only one")
        parser.add_argument("--reason", default="released by command")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints a line for each node. Fails if one could not be released."""
        if bool(options["nodes"]) == options["all"]:
            raise CommandError("name the nodes to release, or give --all with --cluster NAME, but not both")
        cluster = _cluster(options["cluster"])
        refused = 0
        for node in _nodes(cluster, options["nodes"]):
            try:
                rescue = services.request(
                    node, "release", actor=shell_actor(), reason=options["reason"], now=timezone.now()
                )
                self.stdout.write(f"{node.name}: rescue {rescue.pk} releases it")
            except services.RescueRefused as refusal:
                refused += 1
                self.stdout.write(f"{node.name}: not released: {refusal}")
        if refused:
            raise CommandError(f"{refused} nodes were not released")


def _cluster(name: str | None) -> Cluster:
    known = Cluster.objects.order_by("name")
    found = known.filter(name=name).first() if name else known.first() if known.count() == 1 else None
    if found is None:
        names = ", ".join(known.values_list("name", flat=True)) or "none"
        problem = f"there is no cluster {name}" if name else "name the cluster with --cluster NAME"
        raise CommandError(f"{problem}; registered clusters: {names}")
    return found


def _nodes(cluster: Cluster, names: list[str]) -> QuerySet[Node]:
    nodes = Node.objects.filter(cluster=cluster).order_by("name")
    if not names:
        marked = ~Q(marks={}) | Q(rescues__in=cluster.rescues.exclude(marks={})) | Q(probation_until__isnull=False)
        return nodes.filter(marked | Q(stands_in__in=standbys.assignments())).distinct()
    found = nodes.filter(name__in=names)
    missing = set(names) - set(found.values_list("name", flat=True))
    if missing:
        raise CommandError(f"cluster {cluster.name} has no node {', '.join(sorted(missing))}")
    return found
