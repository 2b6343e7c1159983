"""Which clusters there are: registered and forgotten here, with a ledger entry each."""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from kcover_portal import doorbell
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger


class Refused(ValueError):
    """What was asked for cannot be; the message says why."""


def add(name: str, *, actor: str, now: datetime, replace: bool = False, **fields: Any) -> Cluster:
    """Registers a cluster, or with ``replace`` changes the given fields of one that there is.

    ``fields`` are fields of the Cluster row. Raises Refused when the name is taken or a value is not accepted. The
    kubeconfig is a secret: the ledger records only which fields were set.
    """
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is not None and not replace:
        raise Refused(f"there is a cluster {name} already: add --replace to change it")
    verb = "cluster.added" if cluster is None else "cluster.changed"
    if cluster is None:
        cluster = Cluster(name=name, created_at=now)
    for field, value in fields.items():
        setattr(cluster, field, value)
    try:
        checked = {"name", *fields}
        cluster.clean_fields(exclude={field.name for field in Cluster._meta.fields} - checked)
    except ValidationError as error:
        reasons = [f"{field}: {' '.join(said)}" for field, said in error.message_dict.items()]
        raise Refused("; ".join(reasons)) from error
    shown = {key: value for key, value in fields.items() if key != "kubeconfig"}
    with transaction.atomic():
        cluster.save()
        ledger.write(name, actor=actor, verb=verb, subject=name, now=now, data=shown)
    doorbell.tell("cluster", cluster.pk, cluster=name)
    return cluster


def remove(cluster: Cluster, *, actor: str, now: datetime) -> None:
    """Forgets a cluster and its nodes, incidents, rescues and tokens; its ledger stays."""
    pk = cluster.pk
    with transaction.atomic(), ledger.last():
        # In everybody's order: nodes, their cluster, what is of it, the ledger. Deleting alone takes the cluster last.
        list(Node.objects.select_for_update().filter(cluster=cluster).order_by("pk").values_list("pk"))
        list(Cluster.objects.select_for_update().filter(pk=pk).values_list("pk"))
        ledger.write(cluster.name, actor=actor, verb="cluster.removed", subject=cluster.name, now=now)
        cluster.delete()
    doorbell.tell("cluster", pk, cluster=cluster.name)
