"""The codes of incidents on nodes, by which a source knows what it has told."""

from collections.abc import Collection
from typing import Final

from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident

_BY_PERSON: Final = ("closed_by", "node_taken_back", "uncordoned_by_hand", "verification_skipped")


def is_by_person(reason: str) -> bool:
    """Returns whether this reason of a closing, with or without a why, is that of a person."""
    return reason.removesuffix("_because") in _BY_PERSON


def open_codes(
    cluster: Cluster, names: Collection[str], kind: str, *, witness: str | None = None
) -> set[tuple[str, str, str]]:
    """The open incidents of a kind on nodes of these names: node, code and boot; "" if another machine had it.

    ``witness``: only those that this source reported.
    """
    rows = Incident.objects.filter(cluster=cluster, node__name__in=names, kind=kind, state=Incident.State.OPEN)
    rows = rows if witness is None else rows.filter(occurrences__witness=witness)
    told = rows.order_by().values_list("node__name", "code", "boot_id", "last_at", "node__machine_since")
    return {(name or "", code, "" if since and last < since else boot) for name, code, boot, last, since in told}


def dismissed_codes(cluster: Cluster, names: Collection[str], kind: str) -> set[tuple[str, str]]:
    """The codes of faults on nodes of these names, of which a person closed the latest incident: node and code."""
    rows = Incident.objects.filter(cluster=cluster, node__name__in=names, kind=kind).order_by("pk")
    latest = {(name or "", code): why for name, code, why in rows.values_list("node__name", "code", "closed_because")}
    return {about for about, why in latest.items() if is_by_person(str(why.get("code", "")))}
