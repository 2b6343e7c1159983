"""A failed container: an incident on its node, a restart of its job that refers to it, and its end."""

import threading
from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import failures
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.operate import pod_watch
from kcover_portal.policies import services as policies
from kcover_portal.rescue.models import JobRestart
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source
from tests.codes import code_of
from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue.operators import pods_of
from tests.portal.rescue.test_actions_restart_jobs import add_job, deleted
from tests.portal.rescue.world import NODE

pytestmark = pytest.mark.django_db
ON_POD = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: pods}
spec:
  rules:
    - priority: 10
      match: {codes: {pod: [Error]}}
      actions: [{name: cordon}]
"""


class Watch:
    """The watch of pods, without its thread."""

    def __init__(self, world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pod_watch, "STREAM_SECONDS", 0)
        monkeypatch.setattr(pod_watch, "RETRY_SECONDS", 0)
        sources.make_watched_sources(world.now)
        self._world, self._version = world, ""
        self.again()

    def again(self) -> None:
        """The process starts again, and knows nothing."""
        self._watch = pod_watch.PodWatch(self._world.cluster, clock=self._world.clock, stop=threading.Event())
        self._version = ""

    def look(self) -> list[JobOrder]:
        """Follows the pods once. Returns the orders that it made."""
        before = set(JobOrder.objects.values_list("pk", flat=True))
        self._version = self._watch.stream(self._version or self._watch.list())
        return list(JobOrder.objects.exclude(pk__in=before).order_by("pk"))


@pytest.fixture
def watch(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(world, monkeypatch)


def start_again(world: JobWorld, name: str) -> None:
    """The kubelet starts the container again."""

    def start(pod: dict) -> None:
        (status,) = pod["status"]["containerStatuses"]
        status |= {"lastState": status["state"], "state": {"running": {}}}

    world.kube.objects.edit("Pod", "train", name, start)


def forget_status(world: JobWorld) -> None:
    """The controllers of this cluster copy the old status of a pod."""
    for pod in pods_of(world.kube):
        world.kube.objects.edit("Pod", "train", pod.name, lambda m: m["status"].pop("containerStatuses", None))


@pytest.mark.parametrize("again", [False, True])
def test_a_failed_container_is_an_incident_until_its_job_runs_again(world: JobWorld, watch: Watch, again: bool) -> None:
    """``again``: its kubelet has started it again."""
    add_job(world, "llm", "gpu-1", "gpu-2", protected="job")
    assert watch.look() == []
    world.kube.fail_container("train", "llm-1", exit_code=137, message="NCCL error")
    if again:
        start_again(world, "llm-1")
    (order,) = watch.look()
    because = reasons.of("job_container_failed", container="main", pod="train/llm-1", exit_code=137)
    assert order.requested_because == because.to_json()
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.node.name) == ("pod", "Error", "gpu-2")
    assert incident.message == "container main of pod train/llm-1 terminated with error: NCCL error, exit code: 137"
    assert incident.is_user_fault
    [witness] = incident_queries.witnesses([incident.pk])[incident.pk]
    assert (witness.source, witness.count) == (Source.objects.get(kind="pods").name, 1)
    failure = PodFailure.objects.get()
    assert (failure.incident, failure.order, order.incident) == (incident, order, incident)
    assert Entry.objects.get(verb="job.ordered").data["incident"] == incident.pk
    assert watch.look() == []

    assert world.until_settled(order).state == "done"
    assert deleted(world) == ["llm-0", "llm-1"]
    incident.refresh_from_db()
    assert (incident.state, code_of(incident.closed_because)) == ("closed", "jobs_restarted")
    assert not PodFailure.objects.filter(over_at=None).exists()
    forget_status(world)
    world.now += timedelta(seconds=31)
    watch.again()
    assert watch.look() == []
    assert Incident.objects.count() == 1


@pytest.mark.parametrize("condition", ["ContainersReady", "Ready", "DisruptionTarget"])
def test_a_container_that_ended_with_its_node_is_a_failure(world: JobWorld, watch: Watch, condition: str) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2", protected="job")
    end = {"reason": "ContainerStatusUnknown", "exitCode": 137, "message": "could not be located"}
    at = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = "True" if condition == "DisruptionTarget" else "False"
    ended = {
        "phase": "Failed",
        "containerStatuses": [{"name": "main", "state": {"terminated": end}}],
        "conditions": [{"type": condition, "status": status, "lastTransitionTime": at}],
    }
    world.kube.objects.edit("Pod", "train", "llm-1", lambda pod: pod["status"].update(ended))
    (order,) = watch.look()
    assert (order.state, PodFailure.objects.get().exit_code) == ("running", 137)
    assert watch.look() == []


def test_a_watch_that_starts_again_counts_nothing_twice(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.kube.fail_container("train", "llm-1")
    assert len(watch.look()) == 1
    watch.again()
    assert watch.look() == []
    assert (Incident.objects.get().count, PodFailure.objects.count()) == (1, 1)


def test_a_disabled_source_ignores_failed_pods(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1")
    Source.objects.filter(kind="pods").update(enabled=False)
    world.kube.fail_container("train", "llm-0")
    assert watch.look() == []
    assert not Incident.objects.exists()
    Source.objects.filter(kind="pods").update(enabled=True)
    world.now += timedelta(seconds=6)
    watch.again()
    assert len(watch.look()) == 1


def test_with_job_recovery_off_there_is_an_incident_and_no_order(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1")
    type(world.cluster).objects.update(job_recovery="off")
    world.kube.fail_container("train", "llm-0")
    assert watch.look() == []
    assert Incident.objects.get().state == "open"
    services.look_for_returns(world.cluster, now=world.now)
    start_again(world, "llm-0")
    world.kube.objects.edit("Pod", "train", "llm-0", lambda m: m["status"].pop("containerStatuses"))
    services.look_for_returns(world.cluster, now=world.now)
    assert code_of(Incident.objects.get().closed_because) == "job_runs_again"


def test_without_consent_nothing_happens(world: JobWorld, watch: Watch) -> None:
    add_job(world, "free", "gpu-1", protected="")
    add_job(world, "never", "gpu-1", restart_policy="Never")
    world.kube.add_pod("train", "web-0", node="gpu-1", labels={"kcover.io/cascading-recovery": "true"})
    for name in ("free-0", "never-0", "web-0"):
        world.kube.fail_container("train", name)
    assert watch.look() == []
    assert not Incident.objects.exists()
    calls = len(world.kube.calls)
    assert watch.look() == []
    assert [call.verb for call in world.kube.calls[calls:]] == ["watch_pods"]


def test_an_old_failure_is_over(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1")
    world.kube.fail_container("train", "llm-0")
    world.now += failures.RECENT
    assert watch.look() == []
    assert not Incident.objects.exists()


def test_a_failure_right_after_a_restart_waits_for_its_window(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1")
    JobRestart.objects.create(cluster=world.cluster, namespace="train", job="llm", at=world.now)
    world.now += timedelta(seconds=5)
    world.kube.fail_container("train", "llm-0")
    assert watch.look() == []
    world.now += timedelta(seconds=26)
    assert len(watch.look()) == 1


def test_an_api_server_in_trouble_hides_no_failure(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1")
    watch.look()
    world.kube.fail("workload", port.Unavailable("down"), times=2)
    world.kube.fail_container("train", "llm-0")
    assert watch.look() == []
    assert Source.objects.get(kind="pods").error["code"] == "cluster_unavailable"
    assert len(watch.look()) == 1
    assert (Incident.objects.count(), Source.objects.get(kind="pods").error) == (1, {})


def test_a_job_that_crashes_everywhere_makes_few_incidents(world: JobWorld, watch: Watch) -> None:
    for index in range(4, 12):
        world.kube.add_node(f"gpu-{index}", gpus=8)
    world.sync()
    nodes = [f"gpu-{index}" for index in range(1, 12)]
    add_job(world, "llm", *nodes)
    for number in range(len(nodes)):
        world.kube.fail_container("train", f"llm-{number}")
    assert len(watch.look()) == 1
    assert Incident.objects.count() == PodFailure.objects.count() == failures.MAX_OPEN_OF_JOB == 1


def test_two_jobs_on_one_node_share_an_incident_until_both_run(world: JobWorld, watch: Watch) -> None:
    for name in ("one", "two"):
        add_job(world, name, "gpu-1")
        world.kube.fail_container("train", f"{name}-0")
    one, two = watch.look()
    incident = Incident.objects.get()
    assert incident.count == 2
    services.run(one.pk, clock=world.clock)
    world.kube.finish_deletions()
    world.now += timedelta(seconds=2)
    services.run(one.pk, clock=world.clock)
    one.refresh_from_db()
    incident.refresh_from_db()
    assert (one.state, incident.state) == ("done", "open")
    assert world.until_settled(two).state == "done"
    incident.refresh_from_db()
    assert incident.state == "closed"


def test_a_policy_may_name_the_code(world: JobWorld, watch: Watch) -> None:
    policies.apply(ON_POD, author="test", reason="", now=world.now)
    add_job(world, "llm", NODE)
    world.kube.fail_container("train", "llm-0")
    watch.look()
    super(JobWorld, world).work()
    assert (world.rescue().fault_kind, world.rescue().fault_code) == ("pod", "Error")


def test_a_job_that_failed_for_good_keeps_its_order_and_no_incident(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    type(world.cluster).objects.update(job_recovery="approve")
    world.kube.fail_container("train", "llm-0")
    (order,) = watch.look()
    failed = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    world.kube.objects.merge("PyTorchJob", "train", "llm", failed)
    services.look_for_returns(world.cluster, now=world.now)
    order.refresh_from_db()
    assert (order.state, Incident.objects.get().state) == ("held", "closed")


def test_a_held_order_ends_when_its_job_does(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    type(world.cluster).objects.update(job_recovery="approve")
    world.kube.fail_container("train", "llm-0")
    (order,) = watch.look()
    assert order.state == "held"
    world.kube.objects.edit("Pod", "train", "llm-0", lambda m: m["status"].pop("containerStatuses"))
    services.look_for_returns(world.cluster, now=world.now)
    order.refresh_from_db()
    assert order.state == "held"  # nobody restarted the job as a whole
    world.kube.objects.remove("PyTorchJob", "train", "llm")
    services.look_for_returns(world.cluster, now=world.now)
    order.refresh_from_db()
    assert (order.state, order.why) == ("done", reasons.of("job_gone"))
    assert Incident.objects.get().state == "closed"
