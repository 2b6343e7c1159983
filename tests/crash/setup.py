"""Prepares the installation before the first fault: agents, pods, spares, channels, the planned failures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash import spares
from tests.crash.installation import Installation
from tests.crash.plans import PLANS, PODS, channel, tell
from tests.crash.points import Case
from tests.crash.trials import Trial

HELD_SECONDS = 120.0
SILENT_SECONDS = 600.0  # an agent heard of so long ago is none that could be asked for a reboot
# Two attempts of each job failed first on its node, so that a restart keeps the job off it.
ACCUSE = """
from django.utils import timezone
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import PodFailure
now = timezone.now()
for node in Node.objects.select_related("cluster").filter(name__in={names}):
    about = dict(cluster=node.cluster, opened_at=now, last_at=now, is_user_fault=True)
    Incident.objects.create(node=node, kind="pod", code=PodFailure.FAILS_FIRST, **about)
    for pod in ("worker-0", "worker-1"):
        job = dict(namespace="default", kind="PyTorchJob", name=node.name + "-job")
        end = dict(pod=pod, pod_uid=node.name + pod, container="main", exit_code=1, at=now, seen_at=now, over_at=now)
        PodFailure.objects.create(cluster=node.cluster, node=node.name, first=True, **job, **end)
"""
JOB, PROTECTED = "training.kubeflow.org/job-name", "kcover.io/cascading-recovery"
GANGS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
NEED_RECOVERY = "kcover.io/need-recovery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """``decider``: the token of a decision system. ``spares``: every one that there is, as it was."""

    decider: str
    spares: Mapping[str, dict[str, Any]]


def prepare(product: Installation, trials: Sequence[Trial], *, loose: Sequence[str]) -> Prepared:
    """Prepares the nodes of all trials; ``loose`` ones become their spares."""
    query = "SELECT count(*) FROM fleet_agent"
    product.wait(lambda: product.rows(query)[0][0] >= len(trials), "the agents to report", seconds=240)
    product.share_secret()
    decider = _by_command(
        product,
        [trial.node for trial in trials if PLANS[trial.plan].commanded],
        [trial.node for trial in trials if PLANS[trial.plan].order and PLANS[trial.plan].jobs],
    )
    count = sum(PLANS[trial.plan].standby for trial in trials)
    known = spares.make(product, loose[:count]) if count else {}
    _pair(product, [trial for trial in trials if PLANS[trial.plan].paired], loose[count:])
    _expect_new_machines(product)
    _own(product, [trial for trial in trials if PLANS[trial.plan].owner])
    for trial in trials:
        if PLANS[trial.plan].published:
            product.post_sim(f"/sim/nodes/{trial.node}/devices", {})
    _place(product, trials)
    for trial in trials:
        trial.before = trial.before or product.sim_node(trial.node)
        _silence(product, trial)
    for trial in trials:
        for pod in _pods(trial):
            product.kube("POST", "/api/v1/namespaces/default/pods", pod)
        if PLANS[trial.plan].jobs:
            _add_job(product, trial.node)
        if PLANS[trial.plan].gang:
            _add_gang(product, trial.node)
        if trial.case is not None:
            _plan(product, trial, trial.case)
    # Last: what an agent had sent before it was stopped has arrived by now.
    _let_pass(product, [trial.node for trial in trials if PLANS[trial.plan].asked])
    return Prepared(decider=decider, spares=known)


def _by_command(product: Installation, commanded: Sequence[str], accused: Sequence[str]) -> str:
    """What administrators do by command, in one process: a token for a decision system, rules that tell people.

    ``accused``: the nodes on which attempts of a job failed first.
    """
    commands = [["token", "create", "--kind", "decision", "--cluster", "sim"]]
    if commanded:
        product.open_channels([channel(node) for node in commanded])
        path = product.folder / "tell.yaml"
        path.write_text(tell(commanded), encoding="utf-8")
        commands.append(["policy", "apply", "-f", str(path)])
    if accused:
        commands.append(["shell", "--no-imports", "-c", ACCUSE.format(names=list(accused))])
    return product.manage_all(commands)[0].strip()


def _pair(product: Installation, trials: Sequence[Trial], loose: Sequence[str]) -> None:
    """Gives each trial another node for its pair test, and the cluster an image for it."""
    for trial, partner in zip(trials, loose, strict=False):
        trial.partner = partner
    with product.connect() as connection:
        connection.execute("UPDATE fleet_cluster SET nccl_image = 'registry.example/pytorch:2'")


def _expect_new_machines(product: Installation) -> None:
    """Lets the portal burn in machines that are new from now on, with quick checks."""
    with product.connect() as connection:
        connection.execute(
            "UPDATE fleet_cluster SET burn_in = 'new', burn_in_profile = 'light', burn_in_new_since = now()"
        )


def _own(product: Installation, trials: Sequence[Trial]) -> None:
    """Gives each machine an object that stands for it. Another machine has the labels that this one was born with."""
    for trial in trials:
        trial.before = product.sim_node(trial.node)
        product.post_sim(f"/sim/nodes/{trial.node}/owner", {"kind": PLANS[trial.plan].owner})


def _place(product: Installation, trials: Sequence[Trial]) -> None:
    """Moves nodes to the pools of their plans."""
    moved = {trial.node: PLANS[trial.plan].pool for trial in trials if PLANS[trial.plan].pool}
    for node, pool in moved.items():
        product.kube("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": pool}}})
    query = "SELECT name, pool FROM fleet_node WHERE name = ANY(%s)"
    product.wait(lambda: dict(product.rows(query, list(moved))) == moved, "the pools to be known", seconds=240)


def join(product: Installation, trial: Trial) -> None:
    """The machine joins: it is new, or its kubelet registers with the readiness taint."""
    if PLANS[trial.plan].joins == "tainted":
        change = {"spec": {"taints": [{"key": "kcover.io/not-ready", "effect": "NoSchedule"}]}}
    else:
        with product.connect() as connection:
            connection.execute("UPDATE fleet_node SET machine_since = now() WHERE name = %s", (trial.node,))
        change = {"metadata": {"labels": {"example.com/rack": "7"}}}  # so that the watch has news of the node
        trial.before["metadata"]["labels"] |= {"example.com/rack": "7"}
    product.kube("PATCH", f"/api/v1/nodes/{trial.node}", change)


def _silence(product: Installation, trial: Trial) -> None:
    """Stops its agent, with its machine or alone, if its plan is that of a silent one."""
    if PLANS[trial.plan].hung:
        product.post_sim("/sim/faults", {"node": trial.node, "kind": "hang"})
    elif PLANS[trial.plan].asked:
        product.post_sim(f"/sim/nodes/{trial.node}/agent", {"running": False})


def _let_pass(product: Installation, silent: Sequence[str]) -> None:
    """The agents of these nodes have been silent for long."""
    with product.connect() as connection:
        connection.execute(
            "UPDATE fleet_agent SET seen_at = now() - make_interval(secs => %s) "
            "WHERE node_id IN (SELECT id FROM fleet_node WHERE name = ANY(%s))",
            (SILENT_SECONDS, list(silent)),
        )


def _plan(product: Installation, trial: Trial, case: Case) -> None:
    """Prepares what is to meet the case's call."""
    status = "hold" if case.failure.status is None else case.failure.status
    if case.point.hook:
        product.other.plan(trial.node, status=status, after=case.after, seconds=HELD_SECONDS)
        return
    planned = case.point.fault(node=trial.node, boot=trial.boot)
    # A row is not asked for at the API server: the rescue is stopped at its last request before, and caught at it.
    after = case.after or bool(case.point.row)
    fault = {**planned, "name": trial.node, "status": status, "after": after, "seconds": HELD_SECONDS}
    product.post_sim("/sim/api-faults", fault)


def _pods(trial: Trial) -> Iterator[dict[str, Any]]:
    """What runs on the node."""
    plan = PLANS[trial.plan]
    for name in PODS if plan.drained else ():
        yield _pod(f"{trial.node}-{name}", trial.node, {})


def _add_job(product: Installation, node: str) -> None:
    """A training job with one pod on the node. Its operator finds the pod there, and creates it again elsewhere."""
    job = f"{node}-job"
    at = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    template = {"spec": _pod("", "", {})["spec"]}
    workers = {"replicas": 0, "restartPolicy": "OnFailure", "template": template}
    spec = {"pytorchReplicaSpecs": {"Worker": workers}}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    made = product.kube("POST", at, {**kind, "metadata": {"name": job, "labels": {PROTECTED: "true"}}, "spec": spec})
    pod = _pod(f"{job}-worker-0", node, {JOB: job})
    owner = {**kind, "name": job, "uid": made["metadata"]["uid"], "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    product.kube("POST", "/api/v1/namespaces/default/pods", pod)
    workers["replicas"] = 1
    product.kube("PATCH", f"{at}/{job}", {"spec": spec})


def _add_gang(product: Installation, node: str) -> None:
    """A job of Volcano with one pod, which its controller creates on the node."""
    task = {"name": "worker", "replicas": 1, "template": {"spec": _pod("", node, {})["spec"]}}
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"{node}-job", "labels": {PROTECTED: "true"}},
        "spec": {"minAvailable": 1, "tasks": [task]},
    }
    product.kube("POST", GANGS, body)


def label_job(product: Installation, trial: Trial) -> None:
    """The owner of the job orders its restart by a label."""
    at = f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{trial.node}-job"
    product.kube("PATCH", at, {"metadata": {"labels": {NEED_RECOVERY: "true"}}})


def _pod(name: str, node: str, labels: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/train:1", "resources": {}}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels)},
        "spec": {
            **placed,
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    }
