"""The topology of a cluster: a node's rack, leaf switch, NVLink domain and pool, each named by a label of the node."""

from collections.abc import Iterable, Mapping

# The keys of each domain's label where the cluster's setting names none, the first one first. Kubernetes reserves no
# label for racks; installers use the one below.
WELL_KNOWN: Mapping[str, tuple[str, ...]] = {
    "rack": ("topology.kubernetes.io/rack",),
    "leaf": ("network.topology.nvidia.com/leaf", "kcover.io/switch"),  # NVIDIA topograph's, then our own
    # Of NVIDIA's device plugin (cluster UUID and clique of multi-node NVLink), then topograph's.
    "nvlink": ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"),
    "pool": (
        "kcover.io/pool",
        "pool",
        "node-pool",
        "nodepool",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
    ),
}
DOMAINS = tuple(WELL_KNOWN)


def label_keys(setting: Mapping[str, str], domain: str) -> tuple[str, ...]:
    """Returns the keys of the label that names the domain: the one in the cluster's setting, or the well-known ones."""
    own = setting.get(domain, "")
    return (own,) if own else WELL_KNOWN[domain]


def value_of(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    """Returns the value of the first of the labels that is not empty; "" without one."""
    return next((labels[key] for key in keys if labels.get(key)), "")


def of_node(labels: Mapping[str, str], setting: Mapping[str, str]) -> dict[str, str]:
    """Returns where a node with these labels is, by domain; "" where no label says it."""
    return {domain: value_of(labels, label_keys(setting, domain)) for domain in DOMAINS}
