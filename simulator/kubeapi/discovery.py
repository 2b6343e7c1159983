"""The discovery endpoints: which groups, versions and kinds this server serves."""

from typing import Any

from simulator.kubeapi import resources, versions

Object = dict[str, Any]

_FOREIGN = {  # subresources whose bodies are of another kind: (group, version, kind, verbs)
    "pods/binding": ("", "", "Binding", ["create"]),
    "pods/eviction": ("policy", "v1", "Eviction", ["create"]),
    "pods/log": ("", "", "Pod", ["get"]),
    "serviceaccounts/token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
}

SCHEMA: Object = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.32.4"}, "paths": {}}
SCHEMA_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO = b"\x0a\x0aKubernetes\x12\x07v1.32.4"  # fields 1 and 2: title, version
SCHEMA_MESSAGE = b"\x0a\x032.0\x12" + bytes([len(_INFO)]) + _INFO + b"\x42\x00"  # fields 1, 2, 8: swagger, info, paths


def core_versions(address: str) -> Object:
    """``/api``."""
    clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}


def groups() -> Object:
    """``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _named()]}


def group(name: str) -> Object | None:
    """``/apis/<group>``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)} if name in _named() else None


def kinds(group_name: str, version: str) -> Object | None:
    """``/api/v1`` and ``/apis/<group>/<version>``."""
    if version not in resources.group_versions().get(group_name, ()):
        return None
    listed = []
    for resource in resources.RESOURCES:
        if (group_name, version) in resource.served():
            listed += _entries(resource)
    shown = versions.api_version(group_name, version)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": shown, "resources": listed}


def _named() -> list[str]:
    return [name for name in resources.group_versions() if name]


def _group(name: str) -> Object:
    found = [
        {"groupVersion": versions.api_version(name, version), "version": version}
        for version in resources.group_versions()[name]
    ]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def _entries(resource: resources.Resource) -> list[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resources.ALL_VERBS) if resource.stored else ["create"],
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = {"singularName": "", "namespaced": resource.namespaced}
    entries = [entry]
    for subresource in resource.subresources:
        name = f"{resource.plural}/{subresource}"
        group_name, version, kind, verbs = _FOREIGN[name]
        foreign = {"group": group_name, "version": version} if group_name else {}
        entries.append({"name": name, **below, **foreign, "kind": kind, "verbs": verbs})
    if resource.has_status:
        name = f"{resource.plural}/status"
        entries.append({"name": name, **below, "kind": resource.kind, "verbs": ["get", "patch", "update"]})
    return entries
