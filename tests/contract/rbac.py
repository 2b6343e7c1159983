"""The manifests with rights in deploy/ as data, and the requests that the live client makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kcover_portal.kube import http, port
from tests.deploy import manifests

NAMES = ("rbac.yaml", "pod-logs.yaml", "machines.yaml", "action-lease.yaml")
FILES = [Path(__file__).parents[2] / "deploy" / name for name in NAMES]
# Allowed to every authenticated account (ClusterRoles system:discovery and system:basic-user), so no rules here.
FOR_EVERYBODY = (
    *("/version", "/apis/policy", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    *(f"/apis/resource.k8s.io/{version}" for version in ("v1", "v1beta2", "v1beta1", "v1alpha3")),
)

# The verbs of the port that web calls; live calls review_token as well.
VERBS_OF_WEB = {"version", "is_allowed", "list_pods", "budgets", "workloads", "workload", "delete_claim", "pod_log"}


def verbs_of_port() -> set[str]:
    """The names of the port's verbs."""
    members = (member for base in port.Cluster.__mro__ for member in vars(base).items())
    return {name for name, value in members if callable(value) and not name.startswith("_")}


class Asked(NamedTuple):
    """One kind of request; ``namespace`` is empty for requests over the whole cluster."""

    verb: str
    group: str
    resource: str
    namespace: str = ""


def documents() -> list[dict[str, Any]]:
    """The manifests, in order."""
    return manifests.documents(*FILES)


def rules(documents: list[dict[str, Any]]) -> Iterator[Asked]:
    """Each (verb, group, resource) that the roles allow; a Role's with its namespace."""
    for document in documents:
        if document["kind"] in ("ClusterRole", "Role"):
            for rule in document["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            yield Asked(verb, group, resource, document["metadata"].get("namespace", ""))


def asked(method: str, path: str, query: dict[str, str] | None) -> Asked:
    """What a request means to the authorizer."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource = rest[0] if len(rest) < 3 else f"{rest[0]}/{rest[2]}"
    reading = "get" if len(rest) > 1 else "watch" if query and "watch" in query else "list"
    verb = {"GET": reading, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
    return Asked(verb, group, resource, namespace)


class Recording(http.Connection):
    """A connection that notes what it is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.requests: list[tuple[str, str]] = []
        self.seen: set[Asked] = set()
        super().__init__(*args, **kwargs)

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET" and "reviews" not in path]

    def request(self, method, path, kind, **more):
        self._note(method, path, more.get("query"))
        return super().request(method, path, kind, **more)

    def lines(self, path, **more):
        self._note("GET", path, more.get("query"))
        return super().lines(path, **more)

    def forwarded(self, path, **more):
        self._note("GET", path, more["query"])
        return super().forwarded(path, **more)

    def _note(self, method: str, path: str, query: dict[str, str] | None) -> None:
        self.requests.append((method, path))
        if path not in FOR_EVERYBODY:
            self.seen.add(asked(method, path, query))
