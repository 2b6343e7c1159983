"""``manage.py trial``: what a trial needs before the first person signs in."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet import queries as fleet

ADMIN = "admin"


class Command(BaseCommand):
    """Creates what is missing: the user admin, the cluster that the portal runs in, the built-in policies.

    It runs again at each upgrade and leaves a changed mode, password or policy alone. Only the cluster's namespaces
    follow the options, because the rights of the portal hold there.
    """

    help = "prepare a trial: create the user admin, register this cluster in shadow mode, install the built-in policies"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", required=True, help="the name of the cluster that the portal runs in")
        parser.add_argument("--password-file", required=True, help="a file whose first line is the password of admin")
        parser.add_argument("--job-namespace", required=True, help="the namespace of the reboot job")
        parser.add_argument("--preflight-namespace", required=True, help="the namespace of the Jobs of pair tests")
        parser.add_argument("--event-namespace", required=True, help="the namespace of the portal's Events")

    def handle(self, *args: Any, **options: Any) -> None:
        streams = {"stdout": self.stdout, "stderr": self.stderr}
        if accounts.find_user(ADMIN) is None:
            call_command("user", "create", ADMIN, role="admin", password_file=options["password_file"], **streams)
        name = options["cluster"]
        if not fleet.clusters([name]):
            call_command("cluster", "add", name, "--in-cluster", "--mode", "shadow", **streams)
        [cluster] = fleet.clusters([name])
        wanted = {key: options[key] for key in ("job_namespace", "event_namespace")}
        wanted["nccl_namespace"] = options["preflight_namespace"]
        if changes := [f"{key}={value}" for key, value in wanted.items() if getattr(cluster, key) != value]:
            call_command("cluster", "set", name, *changes, **streams)
        call_command("policy", "defaults", **streams)
