"""Orders about jobs: what is refused, how they are carried out, what survives a crash, and when a person is asked."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.actions import restart_jobs
from kcover_portal.rescue.models import JobRestart
from tests.codes import code_of, codes_of, refused
from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import pods_of
from tests.portal.rescue.test_actions_restart_jobs import KUBEFLOW, add_job, deleted
from tests.portal.rescue.test_actions_restart_kinds import add_pods, add_workload

pytestmark = pytest.mark.django_db
OWN = {restart_jobs.PROTECTED: "true"}
FAILED = reasons.of("job_container_failed", container="main", pod="train/llm-0", exit_code=1)


def test_a_person_restarts_a_job_as_a_whole(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2", protected="")
    order = world.until_settled(world.order())
    assert (order.state, order.why) == ("done", reasons.of("jobs_restarted", jobs="train/llm"))
    assert deleted(world) == ["llm-0", "llm-1"]
    assert len(pods_of(world.kube)) == 2
    verbs = list(Entry.objects.order_by("sequence").values_list("verb", flat=True))
    assert verbs == ["job.ordered", *["delete.begun", "delete.done"] * 2, "job.settled"]
    row = JobRestart.objects.get()
    assert (row.count, code_of(row.because)) == (1, "job_ordered_by_because")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_an_order_continues_after_its_worker_died(world: JobWorld, call: int, after: bool) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2")
    worker_kills.kill_at(world.kube, "delete_pod", call=call, after=after)
    order = world.order()
    with pytest.raises(worker_kills.Killed):
        world.work()
    world.pass_time(31)  # its lease
    order = world.until_settled(order)
    assert order.state == "done"
    gone = [call.name for call in world.kube.called("delete_pod") if call.wrote]
    assert sorted(set(gone)) == ["llm-0", "llm-1"]
    assert JobRestart.objects.get().count == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("verb", "action"), [("suspend_workload", "stop"), ("label_workload", "restart")])
def test_an_order_continues_after_its_worker_died_at_another_call(
    world: JobWorld, verb: str, action: str, after: bool
) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    if action == "stop":
        order = world.order("stop")
    else:
        world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/need-recovery": "true"})
        (order,) = services.look_for_labels(world.cluster, now=world.now)
    worker_kills.kill_at(world.kube, verb, call=1, after=after)
    with pytest.raises(worker_kills.Killed):
        world.work()
    if action == "stop":
        world.kube.remove_pod("train", "llm-0")
    world.pass_time(31)  # its lease
    assert world.until_settled(order).state == "done"
    left = world.kube.workload("train", "PyTorchJob", "llm")
    assert (left.phase is port.Phase.SUSPENDED) == (action == "stop")
    assert "kcover.io/need-recovery" not in left.labels


def test_each_kind_of_job_is_stopped_by_its_own_method(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1")
    order = world.order("stop")
    world.work()
    assert world.kube.workload("train", "PyTorchJob", "llm").phase is port.Phase.SUSPENDED
    assert world.kube.objects.get("PyTorchJob", "train", "llm")["spec"]["runPolicy"] == {"suspend": True}
    order.refresh_from_db()
    assert code_of(order.because) == "job_stops"
    world.kube.remove_pod("train", "llm-0")
    assert world.until_settled(order).why == reasons.of("job_stopped", job="train/llm")
    assert deleted(world) == []

    add_workload(world, "VolcanoJob", "gang")
    add_pods(world, "Job", "gang", {"volcano.sh/job-name": "gang"})
    world.order("stop", name="gang", kind="vcjob")
    world.work()
    assert [command["action"] for command in world.kube.objects.list("Command")] == ["AbortJob"]


def test_invalid_orders_are_refused(world: JobWorld) -> None:
    with refused(services.JobUnknown, "job_kind_unknown"):
        world.order(kind="Deployment")
    with refused(services.JobUnknown, "job_unknown"):
        world.order(name="nobody")
    add_workload(world, "JobSet", "set")
    add_workload(world, "Job", "set-w-0", owner=("JobSet", "set"))
    with refused(services.OrderRefused, "job_part_of"):
        world.order(name="set-w-0", kind="Job")
    with refused(services.OrderRefused, "job_has_no_pods"):
        world.order(name="set", kind="jobset")
    add_workload(world, "LeaderWorkerSet", "lws")
    with refused(services.OrderRefused, "job_cannot_stop"):
        world.order("stop", name="lws", kind="lws")
    add_workload(world, "Job", "queued", labels={"kueue.x-k8s.io/queue-name": "q"})
    with refused(services.OrderRefused, "job_in_queue"):
        world.order("stop", name="queued", kind="Job")
    add_job(world, "never", "gpu-1", restart_policy="Never")
    with refused(services.OrderRefused, "job_never_restarted"):
        world.order(name="never")
    add_job(world, "llm", "gpu-1")
    world.cluster.mode = "shadow"
    world.cluster.save()
    with refused(services.OrderRefused, "shadow_no_writes"):
        world.order()
    world.cluster.mode = "approve"
    world.cluster.save()
    with refused(services.OrderRefused, "job_needs_approver"):
        world.order()
    assert world.order(may_approve=True).state == "running"
    with refused(services.OrderRefused, "job_order_running"):
        world.order(may_approve=True)
    world.kube.fail("workload", port.Unavailable("down"))
    with refused(services.OrderRefused, "job_cluster_silent", "cluster_unavailable"):
        world.order(may_approve=True)


def test_a_mode_that_becomes_stricter_holds_the_next_call(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2")
    order = world.order()
    world.cluster.mode = "paused"
    world.cluster.save()
    world.work()
    order.refresh_from_db()
    assert (order.state, codes_of(order.because)[0], deleted(world)) == ("running", "paused", [])


def test_a_job_is_restarted_once_in_30_seconds(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1")
    world.until_settled(world.order())
    order = world.order()
    world.work()
    order.refresh_from_db()
    assert order.why == reasons.of("restarted_lately", seconds=30, jobs="train/llm")
    world.until_settled(order)
    assert deleted(world) == ["llm-0"] * 2


def test_an_order_is_retried_while_the_cluster_is_silent_and_then_held(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1")
    order = world.order()
    world.kube.fail("delete_pod", port.Unavailable("down"))
    world.work()
    order.refresh_from_db()
    assert (order.attempts, code_of(order.because)) == (1, "cluster_unavailable")
    world.kube.fail("delete_pod", port.RefusedByServer("forbidden"))
    world.pass_time(10)
    order.refresh_from_db()
    assert (order.state, codes_of(order.because)) == ("held", ["job_order_given_up", "cluster_rejected"])


def test_a_command_that_may_have_been_taken_is_not_given_again_at_once(world: JobWorld) -> None:
    add_workload(world, "VolcanoJob", "gang")
    add_pods(world, "Job", "gang", {"volcano.sh/job-name": "gang"})
    order = world.order(name="gang", kind="VolcanoJob")
    world.kube.fail("command_workload", port.Unavailable("cut", ambiguous=True), after=True)
    world.work()
    world.pass_time()
    (taken,) = world.kube.objects.list("Command")
    world.kube.objects.remove("Command", "train", taken["metadata"]["name"])  # no pod has ended yet
    for _ in range(20):
        world.pass_time()
        world.work()
    assert world.kube.objects.list("Command") == []
    for pod in pods_of(world.kube):
        world.kube.replace_pod("train", pod.name)
    assert world.until_settled(order).state == "done"
    assert len(world.kube.called("command_workload")) == 1


# A failed pod


def recover(world: JobWorld, name: str = "llm-0") -> JobOrder | None:
    pod = next(pod for pod in world.kube.list_pods(namespace="train") if pod.name == name)
    return services.recover_pod(world.cluster, pod, because=FAILED, now=world.now)


@pytest.mark.parametrize("protected", ["pod", "job"])
def test_a_failed_pod_restarts_its_job(world: JobWorld, protected: str) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2", protected=protected)
    order = recover(world)
    assert order is not None
    assert recover(world, "llm-1") is None  # under way
    assert world.until_settled(order).state == "done"
    assert deleted(world) == ["llm-0", "llm-1"]
    assert recover(world) is None  # within 30 s
    assert JobRestart.objects.get().because == FAILED.to_json()


def test_without_consent_or_with_job_recovery_off_nothing_happens(world: JobWorld) -> None:
    add_job(world, "free", "gpu-1", protected="")
    add_job(world, "never", "gpu-1", restart_policy="Never")
    world.kube.add_pod("train", "web-0", node="gpu-1", labels=OWN)
    assert [recover(world, name) for name in ("free-0", "never-0", "web-0")] == [None] * 3
    add_job(world, "llm", "gpu-1")
    world.cluster.job_recovery = "off"
    assert recover(world) is None
    assert not JobOrder.objects.exists()


@pytest.mark.parametrize(("recovery_mode", "mode"), [("shadow", "enforce"), ("enforce", "shadow")])
def test_in_shadow_mode_an_order_is_only_recorded(world: JobWorld, recovery_mode: str, mode: str) -> None:
    add_job(world, "llm", "gpu-1")
    world.cluster.job_recovery, world.cluster.mode = recovery_mode, mode
    world.cluster.save()
    order = recover(world)
    assert order is not None
    assert (order.state, order.why) == ("shadow", reasons.of("job_shadow"))
    assert recover(world) is None
    world.work()
    assert world.kube.writes == []


def test_an_approver_orders_the_restart_that_job_recovery_requests(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1")
    world.cluster.job_recovery = "approve"
    world.cluster.save()
    held = recover(world)
    assert held is not None
    assert held.state == "held"
    assert world.until_settled(world.order()).state == "done"
    held.refresh_from_db()
    assert held.state == "replaced"


# The label


def test_the_label_restarts_the_job_and_is_cleared(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/need-recovery": "true"})
    (order,) = services.look_for_labels(world.cluster, now=world.now)
    assert services.look_for_labels(world.cluster, now=world.now) == []
    assert world.until_settled(order).state == "done"
    assert "kcover.io/need-recovery" not in world.kube.workload("train", "PyTorchJob", "llm").labels
    assert deleted(world) == ["llm-0"]
    assert services.look_for_labels(world.cluster, now=world.now) == []
    assert Entry.objects.filter(verb="label.done", subject="job train/llm").count() == 1


def test_the_label_needs_the_owners_consent(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", protected="")
    world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/need-recovery": "true"})
    (order,) = services.look_for_labels(world.cluster, now=world.now)
    assert (order.state, codes_of(order.because)) == ("failed", ["job_not_protected"])
    assert services.look_for_labels(world.cluster, now=world.now) == []
    assert deleted(world) == []
    world.cluster.mode = "shadow"
    world.cluster.save()
    world.kube.label_workload("train", "PyTorchJob", "llm", labels=OWN)
    assert services.look_for_labels(world.cluster, now=world.now) == []


def test_the_label_of_kubeflow_is_that_of_the_job(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    order = services.recover(
        world.cluster, namespace="train", kind="PyTorchJob", name="llm", because=FAILED, now=world.now
    )
    assert order is not None
    assert order.restart == {}
    world.work()
    order.refresh_from_db()
    assert order.restart["label"] == KUBEFLOW


def test_the_label_of_a_stateful_set_stays_and_counts_once(world: JobWorld) -> None:
    """The portal may change no StatefulSet: whoever may change one may run any pod."""

    def label(value: str | None) -> None:
        own = {"kcover.io/cascading-recovery": "true", "kcover.io/need-recovery": value}
        world.kube.objects.merge("StatefulSet", "train", "db", {"metadata": {"labels": own}})

    def look() -> list[JobOrder]:
        world.pass_time(60)
        return services.look_for_labels(world.cluster, now=world.now)

    add_workload(world, "StatefulSet", "db")
    world.kube.add_pod("train", "db-0", node="gpu-1", owner_kind="StatefulSet", owner_name="db")
    label("true")
    (order,) = look()
    assert world.until_settled(order).state == "done"
    assert deleted(world) == ["db-0"]
    assert world.kube.called("label_workload") == []
    assert look() == look() == []
    services.prune(now=world.now + timedelta(days=91))
    assert look() == []
    label(None)
    assert look() == []
    label("true")
    (again,) = look()
    assert world.until_settled(again).state == "done"
    with pytest.raises(port.RefusedByServer):
        world.kube.label_workload("train", "StatefulSet", "db", labels={})
