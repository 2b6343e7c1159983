"""Computes the patch that brings a node to the wanted state. Pure; shared by the live client and the fake."""

from typing import Any

from kcover_portal.kube import values
from kcover_portal.kube.wire import nodes


def merge_patch(node: nodes.NodeObject, change: values.NodeChange) -> dict[str, Any] | None:
    """Returns the JSON merge patch (RFC 7386) from the node as read to the wanted state; None if nothing changes.

    The patch contains ``metadata.resourceVersion``, so the server rejects it (409) after a concurrent write. A merge
    patch replaces the whole list of taints, so a list from an older read would undo another writer's taint.
    """
    metadata: dict[str, Any] = {}
    for field, wanted, have in (
        ("labels", change.labels, node.metadata.labels or {}),
        ("annotations", change.annotations, node.metadata.annotations or {}),
    ):
        different = {key: value for key, value in wanted.items() if have.get(key) != value}
        if different:
            metadata[field] = different
    spec: dict[str, Any] = {}
    if change.cordon is not None and change.cordon != node.spec.unschedulable:
        spec["unschedulable"] = True if change.cordon else None
    have_taints = node.spec.taints or []
    taints = _taints(have_taints, change)
    if taints != have_taints:
        spec["taints"] = taints or None
    if not metadata and not spec:
        return None
    patch: dict[str, Any] = {"metadata": {**metadata, "resourceVersion": node.metadata.resource_version}}
    if spec:
        patch["spec"] = spec
    return patch


def _taints(have: list[dict[str, Any]], change: values.NodeChange) -> list[dict[str, Any]]:
    """Returns the wanted taints in order. Foreign taints are passed on exactly as they were read."""
    unwanted = {(t.key, t.value, t.effect) for t in change.remove_taints}
    wanted = {(t.key, t.effect): t.value for t in change.add_taints}
    result = []
    for taint in have:
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        if (key, effect) in wanted:
            ours = wanted.pop((key, effect))
            result.append(taint if ours == value else _taint(key, ours, effect))
        elif (key, value, effect) not in unwanted:
            result.append(taint)
    return [*result, *(_taint(key, value, effect) for (key, effect), value in wanted.items())]


def _taint(key: str, value: str, effect: str) -> dict[str, Any]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
