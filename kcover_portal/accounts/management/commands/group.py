"""``manage.py group``: the roles of groups of the identity provider."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import GroupMapping
from kcover_portal.accounts.services import oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.shell_actor import shell_actor


class Command(BaseCommand):
    """Gives groups of the identity provider a role, takes it, and lists them."""

    help = "map groups of the identity provider to roles"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="set|remove|list")
        give = verbs.add_parser("set", help="give the members of a group a role; it replaces their role there")
        remove = verbs.add_parser("remove", help="remove a role from a group; its members lose it at once")
        for verb in (give, remove):
            verb.add_argument("group", help="as the provider's tokens name it")
            verb.add_argument("--cluster", help="default: all clusters")
            verb.add_argument("--pool", default="", help="only the nodes of this pool of the cluster")
            verb.add_argument("--reason", default="")
        give.add_argument("--role", required=True, help=" | ".join(queries.ROLES) + ", or a custom role")
        verbs.add_parser("list", help="list the groups and their roles")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except services.Refused as error:
            raise CommandError(str(error)) from error

    def _set(self, options: dict[str, Any]) -> None:
        oidc.map_group(options["group"], options["role"], **_details(options))
        self.stdout.write(f"group {options['group']} has role {options['role']} in {_place(options)}")

    def _remove(self, options: dict[str, Any]) -> None:
        oidc.unmap_group(options["group"], **_details(options))
        self.stdout.write(f"group {options['group']} has no role in {_place(options)}")

    def _list(self, _options: dict[str, Any]) -> None:
        for mapping in GroupMapping.objects.select_related("cluster"):
            place = _place({"cluster": mapping.cluster, "pool": mapping.pool})
            self.stdout.write(f"{mapping.group}: {mapping.role} in {place}")


def _place(options: dict[str, Any]) -> str:
    cluster, pool = options["cluster"], options["pool"]
    return f"{cluster or 'all clusters'}{pool and f' pool {pool}'}"


def _details(options: dict[str, Any]) -> dict[str, Any]:
    name = options["cluster"]
    cluster = Cluster.objects.filter(name=name).first() if name else None
    if name and cluster is None:
        known = ", ".join(Cluster.objects.values_list("name", flat=True)) or "none yet (make one with: cluster add)"
        raise CommandError(f"unknown cluster {name}; known clusters: {known}")
    actor, now = shell_actor(), timezone.now()
    return {"cluster": cluster, "pool": options["pool"], "reason": options["reason"], "actor": actor, "now": now}
