"""Names in Kubernetes: of namespaced objects, and the keys and values of labels and taints."""

import re
from dataclasses import dataclass
from typing import Final, Self

LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
SYSTEM_DOMAINS: Final = ("kubernetes.io", "k8s.io")  # keys of these domains and their subdomains are Kubernetes' own
ROLE_PREFIX: Final = "node-role.kubernetes.io/"
# Labels of nodes whose work has secrets of the whole cluster. The second role is RKE's.
CONTROL_PLANE_ROLES: Final = tuple(
    f"{ROLE_PREFIX}{role}" for role in ("control-plane", "controlplane", "master", "etcd")
)
# Keys of their labels and taints. The last one is the taint by which K3s, RKE2 and AKS keep others off them.
CONTROL_PLANE: Final = (*CONTROL_PLANE_ROLES, "CriticalAddonsOnly")
NO_LOAD_BALANCER: Final = "node.kubernetes.io/exclude-from-external-load-balancers"


def is_system_key(key: str) -> bool:
    """Return whether a label or taint has a key in one of Kubernetes' own domains."""
    domain, slash, _name = key.partition("/")
    return bool(slash) and any(f".{domain}".endswith(f".{system}") for system in SYSTEM_DOMAINS)


def is_fixed_label(key: str) -> bool:
    """Return whether only the cluster's administrators may change this label of a node.

    Such labels describe the machine (``kubernetes.io/hostname``), or say which work may run there
    (``node-restriction.kubernetes.io/...``, the roles of the control plane).
    https://kubernetes.io/docs/reference/labels-annotations-taints/
    """
    if key.startswith(ROLE_PREFIX):
        return key in CONTROL_PLANE
    return is_system_key(key) and key != NO_LOAD_BALANCER


@dataclass(frozen=True, slots=True, order=True)
class ObjectName:
    """The namespace and name of an object. Only this class writes and reads ``namespace/name``."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The name that ``str`` wrote. Raises ValueError for a text without a slash."""
        namespace, slash, name = text.partition("/")
        if not slash:
            raise ValueError(f"{text!r} must be namespace/name")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
