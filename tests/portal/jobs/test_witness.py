"""The job as a witness: a node on which two attempts of one job fail first is accused, as advice."""

from datetime import timedelta

import pytest

from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries, services
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import worker
from kcover_portal.kube import node_exclusion, port
from kcover_portal.ledger.models import Entry
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch, forget_status
from tests.portal.rescue import worker_kills
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def watch(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(world, monkeypatch)


def attempt(world: JobWorld, watch: Watch, failing: str, *, node: str = "gpu-2", others_up: bool = True) -> None:
    """The job's pods are where the test says; one fails, and the job is restarted."""
    forget_status(world)
    for pod in list(world.kube.list_pods(namespace="train")):
        ready = {"type": "Ready", "status": "True" if others_up or pod.name == failing else "False"}
        home = node if pod.name == failing else "gpu-1"

        def place(manifest: dict, home: str = home, ready: dict = ready) -> None:
            manifest["spec"]["nodeName"] = home
            manifest["status"]["conditions"] = [ready]

        world.kube.objects.edit("Pod", "train", pod.name, place)
    world.kube.fail_container("train", failing)
    (order,) = watch.look()
    world.now = max(world.now, order.due_at)
    assert world.until_settled(order).state == "done"
    world.now = world.now.replace(microsecond=0)
    world.pass_time(31)


def accused() -> list[tuple[str, bool]]:
    """The nodes, and whether another node is advised."""
    rows = Incident.objects.filter(kind="pod", code="FailsFirst")
    assert all(row.is_user_fault for row in rows)  # a program may fail on purpose
    return [(row.node.name, bool(row.advice)) for row in rows]


def test_a_node_that_fails_first_in_two_attempts_is_accused(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    assert accused() == []
    attempt(world, watch, "llm-1")
    assert accused() == [("gpu-2", True)]
    incident = Incident.objects.get(code="FailsFirst")
    assert "PyTorchJob train/llm" in incident.advice
    assert "NotIn [gpu-2]" in incident.advice
    assert incident.state == "open"  # a job that runs again for a moment proves nothing
    assert world.kube.get_node("gpu-2").unschedulable is False
    queries.forget()
    [view], _ = queries.jobs([world.cluster], Scope.of(world.cluster), now=world.now)
    assert view.avoid == ("gpu-2",)


def test_the_same_rank_may_be_the_program(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    attempt(world, watch, "llm-2")
    assert accused() == [("gpu-2", False)]


def test_failures_on_two_nodes_or_of_two_jobs_accuse_no_node(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    attempt(world, watch, "llm-1", node="gpu-3")
    assert accused() == []


def test_failures_of_a_job_that_has_not_started_accuse_no_node(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    for name in ("llm-2", "llm-1"):
        attempt(world, watch, name, others_up=False)
    assert accused() == []
    assert not PodFailure.objects.filter(first=True).exists()


def test_pods_that_fail_at_the_same_second_accuse_no_node(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-3", "gpu-2")
    for name in ("llm-1", "llm-2"):
        world.kube.fail_container("train", name)
    watch.look()
    assert list(PodFailure.objects.values_list("first", flat=True)) == [False]


def excluded(world: JobWorld, name: str = "llm") -> list[str]:
    spec = world.kube.objects.get("PyTorchJob", "train", name)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    required = spec["spec"].get("affinity", {}).get("nodeAffinity", {}).get(node_exclusion.REQUIRED, {})
    terms = required.get("nodeSelectorTerms", [])
    return [host for term in terms for one in term["matchExpressions"] for host in one["values"]]


def templated(world: JobWorld, *, kind: str = "PyTorchJob") -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {}}}}}
    world.kube.objects.merge(kind, "train", "llm", {"spec": spec})


def test_the_restart_keeps_the_job_off_the_node(world: JobWorld, watch: Watch) -> None:
    templated(world)
    attempt(world, watch, "llm-2")
    assert (excluded(world), world.kube.called("exclude_hosts")) == ([], [])
    attempt(world, watch, "llm-1")
    assert excluded(world) == ["gpu-2"]
    verbs = [call.verb for call in world.kube.calls if call.verb in ("exclude_hosts", "delete_pod")]
    assert verbs.index("exclude_hosts") > verbs.index("delete_pod")  # of the first restart
    assert verbs[-1] == "delete_pod"
    begun = Entry.objects.get(verb="exclude.begun")
    assert (begun.subject, begun.data["wanted"]["action"]) == ("job train/llm", "exclude gpu-2")


def test_the_host_name_may_differ_from_the_name_of_the_node(world: JobWorld, watch: Watch) -> None:
    world.kube.label_node("gpu-2", {"kubernetes.io/hostname": "gpu-2.rack-7"})
    world.sync()
    templated(world)
    for failing in ("llm-2", "llm-1"):
        attempt(world, watch, failing)
    assert excluded(world) == ["gpu-2.rack-7"]


def test_the_same_rank_keeps_its_job_off_no_node(world: JobWorld, watch: Watch) -> None:
    templated(world)
    for failing in ("llm-2", "llm-2"):
        attempt(world, watch, failing)
    assert world.kube.called("exclude_hosts") == []


def test_a_template_that_may_not_be_changed_stops_no_restart(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2", protected="job")  # without a template
    for failing in ("llm-2", "llm-1"):
        attempt(world, watch, failing)
    assert Entry.objects.filter(verb="exclude.failed").count() == 1


@pytest.mark.parametrize(
    ("error", "calls"),
    [(port.Conflict("changed"), 1), (port.Unavailable("timed out", ambiguous=True), worker.EXCLUSION_TRIES + 1)],
)
def test_an_exclusion_that_fails_stops_no_restart(
    world: JobWorld, watch: Watch, error: port.KubeError, calls: int
) -> None:
    templated(world)
    attempt(world, watch, "llm-2")
    world.kube.fail("exclude_hosts", error, times=99)
    attempt(world, watch, "llm-1")
    assert len(world.kube.called("exclude_hosts")) == calls
    assert Entry.objects.filter(verb="exclude.failed").count() == calls


@pytest.mark.parametrize("verb", ["workload", "exclude_hosts"])
def test_an_exclusion_waits_for_an_api_server_that_does_not_answer(world: JobWorld, watch: Watch, verb: str) -> None:
    templated(world)
    attempt(world, watch, "llm-2")
    world.kube.fail(verb, port.Unavailable("timed out", ambiguous=True))
    attempt(world, watch, "llm-1")
    assert excluded(world) == ["gpu-2"]


def test_a_job_of_kueue_is_left_as_it_was_admitted(world: JobWorld, watch: Watch) -> None:
    templated(world)
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    world.kube.objects.merge("PyTorchJob", "train", "llm", {"metadata": {"labels": labels}})
    for failing in ("llm-2", "llm-1"):
        attempt(world, watch, failing)
    assert world.kube.called("exclude_hosts") == []


def accuse(world: JobWorld, *nodes: str) -> None:
    rows = [
        PodFailure(
            cluster=world.cluster,
            namespace="train",
            kind="PyTorchJob",
            name="llm",
            pod=f"llm-{number}",
            pod_uid=f"{node}-{number}",
            container="c",
            node=node,
            exit_code=1,
            at=world.now,
            seen_at=world.now,
            first=True,
        )
        for node in nodes
        for number in range(2)
    ]
    PodFailure.objects.bulk_create(rows)
    about = {"kind": "pod", "code": "FailsFirst", "is_user_fault": True, "opened_at": world.now, "last_at": world.now}
    for node in nodes:
        Incident.objects.create(cluster=world.cluster, node=world.node(node), **about)


def excludes(world: JobWorld) -> tuple[str, ...]:
    asked = {"kind": "PyTorchJob", "namespace": "train", "name": "llm", "action": "restart", "people": ("user:ann",)}
    return services.preview(world.cluster, **asked, now=world.now).excludes


def test_at_most_two_nodes_are_excluded_over_all_restarts(world: JobWorld) -> None:
    templated(world)
    accuse(world, "gpu-1", "gpu-2", "gpu-3")
    assert excludes(world) == ("gpu-2", "gpu-3")
    spec = world.kube.workload("train", "PyTorchJob", "llm")
    world.kube.exclude_hosts("train", "PyTorchJob", "llm", uid=spec.uid, hosts=["gpu-1"])
    assert excludes(world) == ("gpu-3",)
    assert world.until_settled(world.order()).state == "done"
    assert excluded(world) == ["gpu-1", "gpu-3"]
    assert excludes(world) == ()


def test_a_closed_accusation_excludes_no_node(world: JobWorld) -> None:
    templated(world)
    accuse(world, "gpu-2")
    Incident.objects.update(state="closed")
    assert excludes(world) == ()
    world.order()
    world.work()
    assert world.kube.called("exclude_hosts") == []


@pytest.mark.parametrize("stated", ["gpu-1", "gpu-3"])
def test_a_host_name_that_another_node_has_keeps_no_job_off_it(world: JobWorld, stated: str) -> None:
    """A node states its label itself. A stolen one could keep jobs off its neighbour."""
    templated(world)
    accuse(world, "gpu-2")
    world.kube.label_node("gpu-2", {node_exclusion.HOSTNAME: stated})
    world.sync()
    assert excludes(world) == ()


def test_a_node_without_a_hostname_label_is_excluded_by_its_name(world: JobWorld) -> None:
    templated(world)
    accuse(world, "gpu-2")
    Node.objects.filter(name="gpu-2").update(labels={})
    assert excludes(world) == ("gpu-2",)


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_excludes_the_node_once(world: JobWorld, watch: Watch, after: bool) -> None:
    templated(world)
    attempt(world, watch, "llm-2")
    worker_kills.kill_at(world.kube, "exclude_hosts", call=1, after=after)
    with pytest.raises(worker_kills.Killed):
        attempt(world, watch, "llm-1")
    world.now += timedelta(minutes=2)
    order = JobOrder.objects.get(state="running")
    assert world.until_settled(order).state == "done"
    assert excluded(world) == ["gpu-2"]
