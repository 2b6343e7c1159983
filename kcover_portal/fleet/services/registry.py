"""Registers and removes clusters; both are in the audit log."""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell, localization
from kcover_portal.runtime.models import Mode

FIRST_MODES = [(mode, label) for mode, label in Mode.choices if mode != Mode.PAUSED]  # of a new cluster
SECRETS = ("kubeconfig", "read_kubeconfig")
Companion = Callable[[datetime], None]
_companions: list[Companion] = []


class ClusterRefused(ValueError):
    """The cluster cannot be registered. The message says why."""


def add_with(companion: Companion) -> None:
    """Registers a function that creates what each cluster has from the start, in the transaction of ``add``.

    The app that owns those rows calls it at start.
    """
    _companions.append(companion)


def add(
    name: str, *, actor: str, now: datetime, replace: bool = False, by_page: bool = False, **fields: Any
) -> Cluster:
    """Registers a cluster, or with ``replace`` changes the given fields of an existing one.

    ``fields`` are fields of the Cluster row. Raises ClusterRefused if the name is taken or a value is invalid. The
    kubeconfig is secret, so its value is not in the audit log. ``by_page``: it was pasted, and a worker encrypts it
    with the engine's key within seconds, if there is one.
    """
    if not by_page:
        _check_process(fields)
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is not None and not replace:
        raise ClusterRefused(f"cluster {name} already exists; add --replace to change it")
    before = {field: encryption.peek(cluster, field) for field in fields} if cluster is not None else None
    if cluster is None:
        cluster = Cluster(name=name, created_at=now)
    if fields.get("mode") == Mode.PAUSED and cluster.mode != Mode.PAUSED:
        cluster.resumes_as = cluster.mode if before is not None else ""
    for field, value in fields.items():
        setattr(cluster, field, value)
    try:
        checked = {"name", *fields}
        cluster.clean_fields(exclude={field.name for field in Cluster._meta.fields} - checked)
    except ValidationError as error:
        wrong = [f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items()]
        raise ClusterRefused("; ".join(wrong)) from error
    with transaction.atomic():
        try:
            cluster.save()
        except encryption.KeysUnusable as error:
            raise ClusterRefused(str(error)) from error
        except IntegrityError as error:  # another process has just added one of this name
            raise ClusterRefused(localization.say(reasons.of("cluster_added_meanwhile"))) from error
        ledger.record(name, _registered(name, before, fields), actor=actor, now=now)
        for companion in _companions:
            companion(now)
    doorbell.publish("cluster", cluster.pk, cluster=name)
    return cluster


def name_taken(name: str) -> reasons.Reason | None:
    """Why no other cluster can have this name; None if it is free."""
    return reasons.of("cluster_exists", cluster=name) if Cluster.objects.filter(name=name).exists() else None


def inside_objection() -> reasons.Reason | None:
    """Why the cluster that the portal runs in cannot be added; None if it can."""
    if not runs_inside():
        return reasons.of("cluster_runs_outside")
    taken = Cluster.objects.filter(in_cluster=True).first()
    return reasons.of("cluster_in_cluster_taken", cluster=taken.name) if taken else None


def runs_inside() -> bool:
    """Returns whether this process runs in a Kubernetes cluster."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _check_process(fields: Mapping[str, Any]) -> None:
    """Raises ClusterRefused where a kubeconfig would be encrypted for web and live, though the engine has a key."""
    if not fields.get("kubeconfig") or settings.KCOVER_CLUSTER_ACCESS != "read":
        return
    if any(encryption.is_for_engine(encryption.stored(each, "kubeconfig")) for each in Cluster.objects.all()):
        raise ClusterRefused("kubeconfigs are encrypted with the engine's key; run this command in worker or watch")


def remove(cluster: Cluster, *, actor: str, now: datetime) -> None:
    """Deletes a cluster with its nodes, incidents, rescues and tokens. Its audit log is kept."""
    pk = cluster.pk
    with transaction.atomic(), ledger.last():
        # Locks in the common order: nodes, cluster, dependents, audit log. delete() alone would lock the cluster last.
        list(Node.objects.select_for_update().filter(cluster=cluster).order_by("pk").values_list("pk"))
        list(Cluster.objects.select_for_update().filter(pk=pk).values_list("pk"))
        ledger.record(cluster.name, audit.ClusterRemoved(cluster=cluster.name), actor=actor, now=now)
        cluster.delete()
    doorbell.publish("cluster", pk, cluster=cluster.name)


def _registered(name: str, before: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> audit.Act:
    """Returns the audit log entry with the fields that were set or changed, without values of secrets."""
    if before is None:
        settings = {field: value for field, value in fields.items() if field not in SECRETS}
        return audit.ClusterAdded(cluster=name, settings=settings)
    changed = {field: value for field, value in fields.items() if before[field] != value}
    return audit.ClusterChanged(
        cluster=name,
        changed={
            field: audit.SECRET_CHANGED if field in SECRETS else audit.Change(before=before[field], after=value)
            for field, value in changed.items()
        },
    )
