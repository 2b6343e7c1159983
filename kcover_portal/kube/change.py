"""Which patch makes a node what it should be. Pure; used by the live client and by the fake alike."""

from typing import Any

from kcover_portal.kube import values
from kcover_portal.kube.wire import nodes


def merge_patch(node: nodes.NodeObject, change: values.NodeChange) -> dict[str, Any] | None:
    """The JSON merge patch (RFC 7386) from the node as read to the wanted end; None when it is there already.

    It names ``metadata.resourceVersion``, so that the server refuses it (409) when somebody wrote in between: taints
    are one list in a merge patch, and a list that was computed from an older read would undo another's taint.
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
    """The taints wanted, in their order: foreign ones are the very mappings that were read."""
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
