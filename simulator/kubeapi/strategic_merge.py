"""Strategic merge patch: some lists of the built-in kinds merge by a key instead of being replaced.

The merge keys are those of the Go types in ``k8s.io/api`` (``patchStrategy``, ``patchMergeKey``). The name of a field
is enough: among the kinds served here only ``ports`` differs between kinds. Every other list is atomic and replaced as
a whole. That includes a node's ``spec.taints``: a strategic patch of one taint drops all others, which is why writers
of taints have to name the resource version.
"""

from collections.abc import Mapping
from typing import Any

from simulator.kubeapi import errors

_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_PORTS_KEYS = {"Service": "port"}  # containerPort in all other kinds
_SETS = frozenset({"finalizers", "podCIDRs"})  # lists of plain values that merge as sets

_PATCH = "$patch"
_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def merge(target: Mapping[str, Any], patch: Any, *, kind: str) -> dict[str, Any]:
    """The patched object; ``target`` is not changed. Raises ``ApiError`` 400 for an invalid patch."""
    if not isinstance(patch, Mapping):
        raise errors.bad_request("invalid patch: a strategic merge patch is an object")
    return _merge_map(target, patch, kind)


def _merge_map(target: Mapping[str, Any], patch: Mapping[str, Any], kind: str) -> dict[str, Any]:
    directive = patch.get(_PATCH)
    if directive == "delete":
        return {}
    if directive not in (None, "merge", "replace"):
        raise errors.bad_request(f"unknown patch type found: {directive}")
    result = {} if directive == "replace" else dict(target)
    if _RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for field, value in patch.items():
        if field.startswith(_DELETE_VALUES):
            name = field.removeprefix(_DELETE_VALUES)
            result[name] = [item for item in result.get(name) or () if item not in value]
        elif not field.startswith("$"):
            _merge_field(result, field, value, kind)
    for field, order in patch.items():
        if field.startswith(_ORDER) and isinstance(result.get(name := field.removeprefix(_ORDER)), list):
            result[name] = _ordered(result[name], order, _merge_key(name, kind))
    return result


def _merge_field(result: dict[str, Any], field: str, value: Any, kind: str) -> None:
    if value is None:
        result.pop(field, None)
    elif isinstance(value, Mapping):
        below = result.get(field)
        result[field] = _merge_map(below if isinstance(below, Mapping) else {}, value, kind)
    elif isinstance(value, list):
        result[field] = _merge_list(field, result.get(field) or [], value, kind)
    else:
        result[field] = value


def _merge_key(field: str, kind: str) -> str | None:
    if field == "ports":
        return _PORTS_KEYS.get(kind, "containerPort")
    return _MERGE_KEYS.get(field)


def _merge_list(field: str, target: list[Any], patch: list[Any], kind: str) -> list[Any]:
    if field in _SETS:
        return target + [value for value in patch if value not in target]
    key = _merge_key(field, kind)
    if key is None:
        return patch
    if any(item == {_PATCH: "replace"} for item in patch):
        return [item for item in patch if item != {_PATCH: "replace"}]
    result = list(target)
    for item in patch:
        if not isinstance(item, Mapping) or key not in item:
            raise errors.bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((at for at, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_merge_map({}, item, kind))
        else:
            result[at] = _merge_map(result[at], item, kind)
    return result


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """Items in the order that the patch names; the others follow."""

    def place(item: Any) -> int:
        name = item.get(key) if key and isinstance(item, Mapping) else item
        wanted = [entry.get(key) if key and isinstance(entry, Mapping) else entry for entry in order]
        return wanted.index(name) if name in wanted else len(wanted)

    return sorted(items, key=place)
