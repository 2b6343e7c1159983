"""Request paths: group, version, kind, namespace, object, subresource; and the verb of the request."""

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.kubeapi import errors, resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``namespace`` None: cluster-wide, or all namespaces. ``name`` is empty for collections."""

    group: str
    version: str
    resource: resources.Resource
    namespace: str | None
    name: str
    subresource: str

    @property
    def plural(self) -> str:
        """``pods`` or ``pods/eviction``, as in audit logs and roles."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def verb(self, method: str, query: Mapping[str, str]) -> str:
        """The Kubernetes verb of a request. Raises ``ApiError`` 405."""
        if method in ("GET", "HEAD"):
            if self.name:
                return "get"
            return "watch" if query.get("watch") in ("1", "true", "True") else "list"
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = verbs.get(method)
        if verb is None or (verb in ("update", "patch") and not self.name):
            raise errors.method_not_allowed()
        if verb == "create" and self.name and not self.subresource:
            raise errors.method_not_allowed()
        if verb == "delete" and not self.name:
            return "deletecollection"
        return verb


def parse(path: str) -> Target | None:
    """The target of a path below ``/api`` or ``/apis``; None for paths that name no kind (discovery).

    Raises ``ApiError`` 404 for an unknown kind or subresource.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 3:
        group, version, remaining = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, remaining = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if remaining[0] == "namespaces" and len(remaining) >= 3 and remaining[2] not in ("status", "finalize"):
        namespace, remaining = remaining[1], remaining[2:]
    resource = resources.served_at(group, version, remaining[0])
    if resource is None or len(remaining) > 3 or (namespace is not None) > resource.namespaced:
        raise errors.no_such_resource()
    name, subresource = (*remaining[1:], "", "")[:2]
    if name and resource.namespaced and namespace is None:
        raise errors.no_such_resource()
    if subresource and not (subresource in resource.subresources or (subresource == "status" and resource.has_status)):
        raise errors.no_such_resource()
    return Target(
        group=group, version=version, resource=resource, namespace=namespace, name=name, subresource=subresource
    )
