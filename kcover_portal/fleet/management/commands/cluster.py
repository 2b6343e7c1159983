"""``manage.py cluster``: the clusters that the portal manages."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.management import get_system_username
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover import masked_addresses
from kcover.decisions import guards
from kcover_portal.errors import FieldError
from kcover_portal.fleet import queries
from kcover_portal.fleet.management import kubeconfig, registry
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.kube import port
from kcover_portal.runtime.models import Mode


class Command(BaseCommand):
    """Registers, changes, lists and removes clusters."""

    help = "register, change, list and remove the clusters that the portal manages"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="add|set|guards|list|remove")
        add = verbs.add_parser("add", help="register a cluster")
        add.add_argument("name")
        access = add.add_mutually_exclusive_group(required=True)
        access.add_argument("--kubeconfig", metavar="FILE", help="stored in the database, with the files it refers to")
        access.add_argument("--in-cluster", action="store_true", help="use the cluster that the portal runs in")
        add.add_argument("--context", default="", help="the kubeconfig context; default: the current one")
        add.add_argument("--replace", action="store_true", help="change a registered cluster")
        add.add_argument("--reboot", help=" | ".join(Cluster.Reboot.values) + " (auto: agent if one reports)")
        add.add_argument("--job-image", metavar="IMAGE", help="the image of the reboot job")
        add.add_argument("--job-namespace", metavar="NAMESPACE", help="the namespace of the reboot job")
        add.add_argument("--mode", help=" | ".join(Mode.values))
        change = verbs.add_parser("set", help="change settings of a cluster")
        change.add_argument("name")
        change.add_argument("setting", nargs="+", metavar="KEY=VALUE", help=", ".join(cluster_settings.SETTINGS))
        change.add_argument("--reason", default="")
        limits = verbs.add_parser("guards", help="show or change the guards of a cluster")
        limits.add_argument("name")
        limits.add_argument("--set", metavar="JSON", help='for example {"storm": {"enabled": false}, "cooldown": 600}')
        limits.add_argument("--reason", default="")
        verbs.add_parser("list", help="list the clusters")
        remove = verbs.add_parser("remove", help="delete a cluster and its records")
        remove.add_argument("name")
        remove.add_argument("--yes", action="store_true", help="confirm the deletion")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['verb']}")(options)

    def _add(self, options: dict[str, Any]) -> None:
        _check_choice(Cluster.Reboot.values, options, "reboot")
        _check_choice(Mode.values, options, "mode")
        fields = {key: options[key] for key in ("reboot", "job_image", "job_namespace", "mode") if options[key]}
        fields |= self._access(options)
        try:
            cluster = registry.add(
                options["name"], actor=_actor(), now=timezone.now(), replace=options["replace"], **fields
            )
        except registry.ClusterRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"cluster {cluster.name} registered (mode {cluster.mode}, reboot {cluster.reboot})")
        self._test_connection(cluster)

    def _test_connection(self, cluster: Cluster) -> None:
        """Makes the watch's requests once, to report wrong credentials now. The cluster stays registered."""
        try:
            kube = queries.connect(cluster)
            version, nodes = kube.version(), kube.list_nodes().items
        except port.KubeError as error:
            self.stderr.write(
                f"warning: {cluster.name} cannot be reached: {error}. The watch keeps trying;"
                f" to change the access: cluster add {cluster.name} --replace ..."
            )
            return
        gpus = sum(node.gpus > 0 for node in nodes)
        self.stdout.write(f"connected: Kubernetes {version}, {len(nodes)} nodes, {gpus} with GPUs")

    def _access(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["in_cluster"]:
            if options["context"]:
                raise CommandError("--context requires --kubeconfig")
            return {"in_cluster": True, "kubeconfig": "", "context": ""}
        try:
            read = kubeconfig.read(Path(options["kubeconfig"]), context=options["context"])
        except kubeconfig.KubeconfigInvalid as error:
            raise CommandError(str(error)) from error
        for warning in read.warnings:
            self.stderr.write(f"warning: {warning}")
        return {"in_cluster": False, "kubeconfig": read.text, "context": read.context}

    def _set(self, options: dict[str, Any]) -> None:
        cluster = _find_cluster(options["name"])
        changes: dict[str, Any] = {}
        for setting in options["setting"]:
            key, sign, value = setting.partition("=")
            if not sign:
                raise CommandError(
                    f"{setting!r} is not KEY=VALUE with one of the keys {', '.join(cluster_settings.SETTINGS)}"
                )
            changes[key] = _value(key, value)
        try:
            cluster_settings.set_cluster(cluster, changes, actor=_actor(), reason=options["reason"], now=timezone.now())
        except FieldError as error:
            raise CommandError(f"{error.field}: {error}") from error
        if masked_addresses.has_key(cluster.decision_url) and "decision_url" in changes:
            self.stderr.write("warning: decision_url is stored as it is; its query is masked, but not encrypted")
        self.stdout.write(f"cluster {cluster.name} changed: {', '.join(changes)}")

    def _guards(self, options: dict[str, Any]) -> None:
        cluster = _find_cluster(options["name"])
        if options["set"] is not None:
            try:
                patch = json.loads(options["set"])
                cluster_settings.set_guards(
                    cluster, patch, actor=_actor(), reason=options["reason"], now=timezone.now()
                )
            except ValueError as error:  # guards.SettingError is one, too
                raise CommandError(f"--set: {error}") from error
        self.stdout.write(json.dumps(guards.to_json(queries.guards_of(cluster)), indent=2))

    def _list(self, options: dict[str, Any]) -> None:
        for cluster in queries.clusters():
            seen = f"{cluster.watched_at:%Y-%m-%d %H:%M}" if cluster.watched_at else "never"
            access = "in-cluster" if cluster.in_cluster else f"context {cluster.context}"
            error = f"\t{cluster.watch_failure}" if cluster.watch_error else ""
            self.stdout.write(
                f"{cluster.name}\t{access}\tmode {cluster.mode}\treboot {cluster.reboot}\tlast contact {seen}{error}"
            )

    def _remove(self, options: dict[str, Any]) -> None:
        cluster = _find_cluster(options["name"])
        if not options["yes"]:
            raise CommandError(
                f"this deletes {cluster.nodes.count()} nodes of {cluster.name} with their incidents, rescues and"
                " tokens (the audit log is kept); confirm with --yes"
            )
        registry.remove(cluster, actor=_actor(), now=timezone.now())
        self.stdout.write(f"cluster {cluster.name} deleted")


def _value(key: str, text: str) -> Any:
    """Returns the value of a setting; a topology is JSON."""
    if key == "topology":
        try:
            return json.loads(text)
        except ValueError as error:
            raise CommandError(f'topology: {error}; write {{"pool": "LABEL"}}') from error
    return int(text) if text.isdecimal() else text


def _find_cluster(name: str) -> Cluster:
    cluster = next(iter(queries.clusters([name])), None)
    if cluster is None:
        known = ", ".join(other.name for other in queries.clusters()) or "none"
        raise CommandError(f"unknown cluster {name}; known clusters: {known}")
    return cluster


def _check_choice(known: list[str], options: dict[str, Any], name: str) -> None:
    if options[name] is not None and options[name] not in known:
        raise CommandError(f"unknown --{name} {options[name]!r}; use one of {', '.join(known)}")


def _actor() -> str:
    return f"command:{get_system_username() or 'unknown'}"
