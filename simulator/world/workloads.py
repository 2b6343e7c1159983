"""The plan of the workloads: owners of pods (jobs, replica sets, daemon sets), budgets, and a few loose pods.

Only owners are planned here. Controllers, scheduler and kubelets create and run their pods, as they do later on.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from simulator.world import nodes

Object = dict[str, Any]
Planned = tuple[str, Object]  # kind, object

NAMESPACES = (
    *("training", "serving", "research", "monitoring"),
    *("kcover-system", "kcover-jobs", "kcover-preflight", "kce-rescue-system"),
)
JOB_NAME = "training.kubeflow.org/job-name"
CASCADING = "kcover.io/cascading-recovery"
MIRROR = "kubernetes.io/config.mirror"

_MODELS = ("llama-70b", "moe-8x22b", "vision-enc", "reward", "speech", "sft-13b", "rl-policy", "embed-xl")
_JOB_SIZES = (16, 8, 8, 4, 4, 4, 2, 2, 1, 1)  # nodes per job; big jobs use most of the GPU time
_BUSY_SHARE = 0.83  # share of a training pool's nodes that run jobs
# name, replicas for ten nodes of the pool, GPUs for each replica, budget
_SERVICES: tuple[tuple[str, int, int, Object], ...] = (
    ("chat-api", 16, 2, {"minAvailable": "80%"}),
    ("embeddings", 12, 1, {"maxUnavailable": 1}),
    ("reranker", 6, 1, {"maxUnavailable": "25%"}),
)


def plan(specs: Sequence[nodes.NodeSpec]) -> Iterator[Planned]:
    """Every object except nodes and pods of controllers; owners come before the objects that refer to them."""
    for name in NAMESPACES:
        labels = {"kubernetes.io/metadata.name": name}
        yield "Namespace", {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}}
    yield from _daemon_sets()
    for pool in nodes.POOLS:
        members = [spec for spec in specs if spec.pool == pool.name and not spec.standby]
        if members and pool.name == "inference":
            yield from _services(members)
        elif members:
            yield from _training(pool.name, members)
    yield from _loose(specs)


def _training(pool: str, members: Sequence[nodes.NodeSpec]) -> Iterator[Planned]:
    """Jobs until the pool is as busy as real ones are. One job in five must not be restarted."""
    left = int(len(members) * _BUSY_SHARE)
    number = 0
    while left > 0:
        size = next(size for size in _JOB_SIZES[number % len(_JOB_SIZES) :] if size <= left or size == 1)
        left -= size
        number += 1
        name = f"{_MODELS[(number * 5 + len(pool)) % len(_MODELS)]}-{pool}-{number:02d}"
        yield "PyTorchJob", _pytorch_job(name, pool, size=size, gpus=members[0].gpus, protected=number % 5 != 0)


def _pytorch_job(name: str, pool: str, *, size: int, gpus: int, protected: bool) -> Object:
    labels = {JOB_NAME: name, "app": "training", "team": _team(name)}
    if protected:
        labels |= {CASCADING: "true"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"pool": pool},
            "containers": [container("pytorch", "nvcr.io/nvidia/pytorch:25.09-py3", gpus=gpus)],
            "terminationGracePeriodSeconds": 30,
            "priority": 1000,
        },
    }
    replicas = {"Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}}
    if size > 1:
        replicas |= {"Worker": {"replicas": size - 1, "restartPolicy": "OnFailure", "template": template}}
    own = {CASCADING: "true"} if protected else {}
    return {
        "metadata": {"namespace": "training", "name": name, "labels": {"team": _team(name), **own}},
        "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": {"cleanPodPolicy": "None"}},
    }


def _team(name: str) -> str:
    return ("pretraining", "alignment", "vision")[len(name) % 3]


def _services(members: Sequence[nodes.NodeSpec]) -> Iterator[Planned]:
    for name, per_ten, gpus, budget in _SERVICES:
        replicas = max(1, len(members) * per_ten // 10)
        yield from _service(name, replicas=replicas, gpus=min(gpus, members[0].gpus), budget=budget)
    # One replica that must not be evicted, so that operators see a blocked drain.
    yield from _service("legacy-ocr", replicas=1, gpus=1, budget={"minAvailable": 1})


def _service(name: str, *, replicas: int, gpus: int, budget: Object) -> Iterator[Planned]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"pool": "inference"},
            "containers": [container("server", f"registry.example/serving/{name}:1.14", gpus=gpus)],
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"namespace": "serving", "name": name, "labels": labels}
    yield "Deployment", {"metadata": metadata, "spec": spec}
    yield "PodDisruptionBudget", {"metadata": metadata, "spec": {**budget, "selector": {"matchLabels": labels}}}


def _daemon_sets() -> Iterator[Planned]:
    for namespace, name, image in (
        ("kube-system", "nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"),
        ("monitoring", "dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1"),
    ):
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "nodeSelector": {"nvidia.com/gpu.present": "true"},
                "containers": [container(name, image)],
                "restartPolicy": "Always",
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": "system-node-critical",
            },
        }
        yield (
            "DaemonSet",
            {
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            },
        )


def _loose(specs: Sequence[nodes.NodeSpec]) -> Iterator[Planned]:
    """Bare notebooks, the pods of a finished job, and (on the first node) a pod of each kind that blocks or complicates
    drains."""
    research = [spec for spec in specs if spec.pool == "a100" and not spec.standby] or [specs[0]]
    for number, user in enumerate(("alice", "bo", "chen")):
        if number >= len(research):
            return
        yield "Pod", {
            "metadata": {"namespace": "research", "name": f"notebook-{user}", "labels": {"app": "notebook"}},
            "spec": {
                "nodeSelector": {"pool": research[0].pool},
                "containers": [container("jupyter", "registry.example/research/jupyter:4", gpus=1)],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
            },
        }  # fmt: skip
    for number, spec in enumerate(research[:4]):
        yield (
            "Pod",
            {
                "metadata": {
                    "namespace": "research",
                    "name": f"nightly-eval-{number}",
                    "labels": {"app": "nightly-eval"},
                },
                "spec": {
                    "nodeName": spec.name,
                    "containers": [container("eval", "registry.example/research/eval:2", gpus=1)],
                    "restartPolicy": "Never",
                },
                "status": {"phase": "Succeeded"},
            },
        )


def mirror(spec: nodes.NodeSpec, *, node_uid: str) -> Object:
    """The mirror pod of a node's static pod."""
    return {
        "metadata": {
            "namespace": "kube-system",
            "name": f"kube-proxy-{spec.name}",
            "labels": {"k8s-app": "kube-proxy", "tier": "node"},
            "annotations": {MIRROR: f"{spec.name}-static", "kubernetes.io/config.source": "file"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": spec.name, "uid": node_uid, "controller": True}
            ],
        },
        "spec": {
            "nodeName": spec.name,
            "hostNetwork": True,
            "containers": [container("kube-proxy", "registry.k8s.io/kube-proxy:v1.32.4")],
            "restartPolicy": "Always",
            "tolerations": [{"operator": "Exists"}],
        },
    }


def container(name: str, image: str, *, gpus: int = 0) -> Object:
    """A container that requests GPUs."""
    wanted = {nodes.GPU: str(gpus)} if gpus else {"cpu": "100m"}
    return {"name": name, "image": image, "resources": {"requests": wanted, "limits": wanted}}
