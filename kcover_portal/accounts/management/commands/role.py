"""``manage.py role``: custom roles, and the roles of people."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import VERBS_OF, CustomRole, User, Verb
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.shell_actor import shell_actor


class Command(BaseCommand):
    """Creates, changes, lists and deletes custom roles; gives and takes roles."""

    help = "create, change, list and delete custom roles; give roles to users and take them"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="create|change|delete|list|give|take")
        for name, text in (("create", "create a role"), ("change", "replace the verbs of a role")):
            verb = verbs.add_parser(name, help=text)
            verb.add_argument("role")
            verb.add_argument("contains", nargs="+", metavar="VERB", help=", ".join(Verb.values))
        delete = verbs.add_parser("delete", help="delete a role that nobody has")
        delete.add_argument("role")
        verbs.add_parser("list", help="list all roles with their verbs")
        give = verbs.add_parser("give", help="give a user a role; it replaces the one that they have in that place")
        take = verbs.add_parser("take", help="remove the role that a user has in a place")
        for verb in (give, take):
            verb.add_argument("user")
            if verb is give:
                verb.add_argument("role")
            verb.add_argument("--cluster", help="in this cluster only; default: in all clusters")
            verb.add_argument("--pool", default="", help="for the nodes of this pool of the cluster only")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except services.Refused as error:
            raise CommandError(str(error)) from error

    def _create(self, options: dict[str, Any]) -> None:
        actor, now = shell_actor(), timezone.now()
        services.make_role(options["role"], options["contains"], giver=None, actor=actor, now=now)
        self.stdout.write(f"role {options['role']} created")

    def _change(self, options: dict[str, Any]) -> None:
        actor, now = shell_actor(), timezone.now()
        services.change_role(_role(options["role"]), options["contains"], giver=None, actor=actor, now=now)
        self.stdout.write(f"role {options['role']} changed")

    def _delete(self, options: dict[str, Any]) -> None:
        services.delete_role(_role(options["role"]), actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"role {options['role']} deleted")

    def _list(self, options: dict[str, Any]) -> None:
        custom = {role.name: role.verbs for role in CustomRole.objects.all()}
        for name, held in {**VERBS_OF, **custom}.items():
            self.stdout.write(f"{name}\t{' '.join(verb for verb in Verb.values if verb in held)}")

    def _give(self, options: dict[str, Any]) -> None:
        services.bind(_user(options["user"]), options["role"], **_place(options))
        self.stdout.write(f"user {options['user']} has role {options['role']}")

    def _take(self, options: dict[str, Any]) -> None:
        services.unbind(_user(options["user"]), **_place(options))
        self.stdout.write(f"user {options['user']} has no role there")


def _role(name: str) -> CustomRole:
    role = CustomRole.objects.filter(name=name).first()
    if role is None:
        known = ", ".join(CustomRole.objects.values_list("name", flat=True)) or "none yet"
        raise CommandError(f"unknown custom role {name}; known custom roles: {known}")
    return role


def _user(name: str) -> User:
    user = queries.find_user(name)
    if user is None:
        raise CommandError(f"unknown user {name}")
    return user


def _place(options: dict[str, Any]) -> dict[str, Any]:
    cluster = None
    if options["cluster"] is not None:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"unknown cluster {options['cluster']}")
    return {"cluster": cluster, "pool": options["pool"], "actor": shell_actor(), "now": timezone.now()}
