"""Standbys for the nodes whose plan uses one: created before the first failure, released at the end."""

from collections.abc import Collection, Sequence
from typing import Any

from tests.crash.installation import Installation

_LABELS = {"kcover.io/standby": "true", "node-restriction.kubernetes.io/standby": "true"}
SPARE = {"metadata": {"labels": _LABELS}, "spec": {"unschedulable": True}}
_LISTED = "SELECT name FROM fleet_node WHERE labels ->> 'kcover.io/standby' = 'true' AND unschedulable"
_PROMISED = (
    "SELECT origin.name, spare.name FROM rescue_assignment a JOIN fleet_node origin ON origin.id = a.origin_id "
    "JOIN fleet_node spare ON spare.id = a.spare_id ORDER BY a.id"
)
_KEPT = "SELECT count(*) FROM rescue_assignment WHERE state <> 'released'"


def make(product: Installation, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Makes spares of these nodes; returns every spare of the cluster as it is, once the portal knows of all."""
    every = {str(name) for (name,) in product.rows(_LISTED)} | set(names)
    for name in every:  # also those that are: what is counted of one is counted of all
        product.kube("PATCH", f"/api/v1/nodes/{name}", SPARE)
    product.wait(
        lambda: every.issubset(name for (name,) in product.rows(_LISTED)), "the spares to be known as such", seconds=240
    )
    return {name: product.sim_node(name) for name in every}


def release(product: Installation, origins: Collection[str]) -> list[tuple[str, str]]:
    """A person releases the standbys of these nodes, which are to be as before. Returns each node with its standby."""
    promised = [(str(origin), str(spare)) for origin, spare in product.rows(_PROMISED) if origin in origins]
    for _, spare in promised:
        product.post(f"/api/v1/nodes/sim/{spare}/release", {"reason": "no longer needed"})
    return promised


def are_released(product: Installation) -> bool:
    """Returns whether no standby is promised or stands in for a node."""
    return not product.rows(_KEPT)[0][0]
