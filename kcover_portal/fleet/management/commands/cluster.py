"""``manage.py cluster``: the clusters that the portal manages."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import BooleanField
from django.utils import timezone

from kcover.decisions import guards
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.config.log_format import printed
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_access, cluster_settings, kubeconfig, registry
from kcover_portal.kube import port, rights
from kcover_portal.lib.errors import FieldError
from kcover_portal.lib.shell_actor import shell_actor
from kcover_portal.runtime.models import Mode

SWITCHES = {field.name for field in Cluster._meta.fields if isinstance(field, BooleanField)}


class Command(BaseCommand):
    """Registers, changes, lists and removes clusters."""

    help = "register, change, list and remove the clusters that the portal manages"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(
            dest="verb", required=True, metavar="add|check|read-access|set|guards|list|remove"
        )
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
        check = verbs.add_parser("check", help="test the access to a cluster, and which rights are missing")
        check.add_argument("name")
        check.add_argument(
            "--process",
            choices=tuple(rights.PROCESSES),
            help="only the rights of this process; in-cluster each has an account of its own",
        )
        fewer = verbs.add_parser("read-access", help="set the kubeconfig with fewer rights that web and live use")
        fewer.add_argument("name")
        read_access = fewer.add_mutually_exclusive_group(required=True)
        read_access.add_argument("--kubeconfig", metavar="FILE", help="of an account in the same cluster")
        read_access.add_argument("--remove", action="store_true", help="web and live use the cluster's kubeconfig")
        fewer.add_argument("--context", default="", help="the kubeconfig context; default: the current one")
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
        getattr(self, f"_{options['verb'].replace('-', '_')}")(options)

    def _add(self, options: dict[str, Any]) -> None:
        _check_choice(Cluster.Reboot.values, options, "reboot")
        _check_choice(Mode.values, options, "mode")
        fields = {key: options[key] for key in ("reboot", "job_image", "job_namespace", "mode") if options[key]}
        fields |= self._access(options)
        fields |= self._without_read_access(options["name"], fields["kubeconfig"])
        try:
            cluster = registry.add(
                options["name"], actor=shell_actor(), now=timezone.now(), replace=options["replace"], **fields
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
                f"warning: {cluster.name} cannot be reached: {printed(str(error))}. The watch keeps trying;"
                f" to change the access: cluster add {cluster.name} --replace ..."
            )
            return
        gpus = sum(node.gpus > 0 for node in nodes)
        self.stdout.write(f"connected: Kubernetes {printed(version)}, {len(nodes)} nodes, {gpus} with GPUs")

    def _check(self, options: dict[str, Any]) -> None:
        """Prints the state of each feature. Raises CommandError if the portal cannot work with the cluster."""
        cluster = _find_cluster(options["name"])
        features = rights.features(cluster_access.namespaces(cluster))
        if options["process"]:
            features = rights.of_process(options["process"], features)
        elif cluster.in_cluster:
            self.stderr.write("warning: each process has an account of its own; run this in each one with --process")
        try:
            access = cluster_access.test(queries.connect(cluster), features)
        except port.KubeError as error:
            raise CommandError(f"{cluster.name} cannot be reached: {printed(str(error))}") from error
        cluster_access.record(cluster.name, access, actor=shell_actor(), now=timezone.now())
        if access.unreachable is not None:
            raise CommandError(f"{cluster.name} cannot be reached: {printed(str(access.unreachable))}")
        nodes = "" if access.nodes is None else f", {access.nodes} nodes"
        self.stdout.write(f"connected: Kubernetes {printed(access.version)}{nodes}")
        for one in access.features:
            lacking = f": {', '.join(map(str, one.refused))}" if one.refused else ""
            self.stdout.write(f"{one.state}\t{one.title} ({one.feature.need}){lacking}")
        for manifest in access.manifests:
            self.stdout.write(f"to grant them: kubectl apply -f {manifest}")
        if not access.usable:
            raise CommandError(
                f"{cluster.name}: the account lacks required rights; "
                "grant the missing ones listed above, then run the check again"
            )

    def _access(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["in_cluster"]:
            if options["context"]:
                raise CommandError("--context requires --kubeconfig")
            return {"in_cluster": True, "kubeconfig": "", "context": ""}
        read = self._kubeconfig(options)
        return {"in_cluster": False, "kubeconfig": read.text, "context": read.context}

    def _kubeconfig(self, options: dict[str, Any]) -> kubeconfig.Kubeconfig:
        try:
            read = kubeconfig.read(Path(options["kubeconfig"]), context=options["context"])
        except kubeconfig.KubeconfigInvalid as error:
            raise CommandError(str(error)) from error
        for warning in read.warnings:
            self.stderr.write(f"warning: {warning}")
        return read

    def _without_read_access(self, name: str, text: str) -> dict[str, str]:
        """Removes the second kubeconfig with the first one's server: tokens of agents are reviewed with it."""
        cluster = next(iter(queries.clusters([name])), None)
        if cluster is None or not encryption.is_set(cluster, "read_kubeconfig"):
            return {}
        if text and kubeconfig.server_of(encryption.peek(cluster, "read_kubeconfig") or "") == kubeconfig.server_of(
            text
        ):
            return {}
        self.stderr.write(f"warning: the server is another one, so web and live need: cluster read-access {name} ...")
        return {"read_kubeconfig": ""}

    def _read_access(self, options: dict[str, Any]) -> None:
        cluster = _find_cluster(options["name"])
        text = ""
        if not options["remove"]:
            if cluster.in_cluster:
                raise CommandError(f"{cluster.name} has no kubeconfig: web and live use their own service accounts")
            read = self._kubeconfig(options)
            try:
                server = kubeconfig.server_of(cluster.kubeconfig)
            except encryption.SecretUnreadable as error:
                raise CommandError(f"{error} Run this command in worker or watch.") from error
            if read.server != server:
                raise CommandError(f"{read.server} is not the server of {cluster.name}, which is {server}")
            text = read.text
        try:
            registry.add(cluster.name, actor=shell_actor(), now=timezone.now(), replace=True, read_kubeconfig=text)
        except registry.ClusterRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"cluster {cluster.name}: read access {'set' if text else 'removed'}")

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
            cluster_settings.set_cluster(
                cluster, changes, actor=shell_actor(), reason=options["reason"], now=timezone.now()
            )
        except FieldError as error:
            raise CommandError(f"{error.field}: {error}") from error
        if masked_addresses.has_key(cluster.decision_url) and "decision_url" in changes:
            self.stderr.write(
                "warning: decision_url is stored as it is; what may be a key in it is masked, but not encrypted"
            )
        self.stdout.write(f"cluster {cluster.name} changed: {', '.join(changes)}")

    def _guards(self, options: dict[str, Any]) -> None:
        cluster = _find_cluster(options["name"])
        if options["set"] is not None:
            try:
                patch = json.loads(options["set"])
                cluster_settings.set_guards(
                    cluster, patch, actor=shell_actor(), reason=options["reason"], now=timezone.now()
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
        registry.remove(cluster, actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"cluster {cluster.name} deleted")


def _value(key: str, text: str) -> Any:
    """Returns the value of a setting; a topology is JSON, a switch ``true`` or ``false``."""
    if key == "topology":
        try:
            return json.loads(text)
        except ValueError as error:
            raise CommandError(f'topology: {error}; write {{"pool": "LABEL"}}') from error
    if key in SWITCHES and text.lower() in ("true", "false"):
        return text.lower() == "true"
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
