"""A rule asks Prometheus for the last checkpoint of jobs. What is unknown is waited for, but never beyond the limit."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.faults.fault import Fault
from kcover.reasons import Reason
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.workloads.training_jobs import CHECKPOINT, NOTIFY, PROTECTED, Job
from tests.codes import codes_of
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, add_job
from tests.portal.rescue.test_checkpoints import FATAL, MILD, POLICY, evicted
from tests.portal.rescue.world import NODE, PCI, World
from tests.portal.sources.stand_ins import Answered, StandIns

pytestmark = pytest.mark.django_db
QUERY = 'max(saved{namespace="{namespace}",job="{job}"})'
ASKED = POLICY.replace("checkpointWait: 10min", f"checkpointWait: 10min, checkpointQuery: {QUERY!r}%s")


@pytest.fixture
def prometheus(settings: Any) -> Iterator[StandIns]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    with StandIns() as running:
        yield running


def make(prometheus: StandIns, *, source: str = "") -> World:
    named = f", checkpointSource: {source}" if source else ""
    if source:
        elsewhere = Cluster.objects.create(name="elsewhere", created_at=datetime(2026, 1, 1, tzinfo=UTC))
        add_source(elsewhere, prometheus, now=elsewhere.created_at, name=source)
    world = World(policy=ASKED % ("", named), nodes=2, fake=WithOperators)
    world.cluster.guards = GUARDS
    world.cluster.save()
    add_job(world, "llm", NODE, "gpu-2")
    add_source(world.cluster, prometheus, now=world.now)
    return world


@pytest.fixture
def world(prometheus: StandIns) -> Iterator[World]:
    one = make(prometheus)
    yield one
    one.uninstall()


def add_source(cluster: Cluster, prometheus: StandIns, *, now: datetime, name: str = "thanos") -> Source:
    return services.SOURCES.make(
        Source(name=name, kind="prometheus", cluster=cluster), {"url": prometheus.url}, actor="test", now=now
    )


def saved(*times: datetime | str) -> Answered:
    stamps = [at if isinstance(at, str) else str(at.timestamp()) for at in times]
    series = [{"metric": {}, "value": [1763712000.5, stamp]} for stamp in stamps]
    return Answered(body=json.dumps({"data": {"resultType": "vector", "result": series}}).encode())


def waits_for(world: World) -> list[str]:
    step = world.step("drain")
    return codes_of(step.because)[:1] if step.state == "waiting" and not evicted(world) else []


def test_a_drain_waits_until_the_value_is_newer(world: World, prometheus: StandIns) -> None:
    old = world.now - timedelta(hours=1)
    prometheus.troubles += [saved(old), saved(old - timedelta(days=1), old), saved(old + timedelta(seconds=1))]
    world.fault(MILD)
    world.pass_time()
    assert waits_for(world) == ["checkpoint_waits"]
    assert prometheus.asked[0].query["query"] == 'max(saved{namespace="train",job="llm"})'
    world.until("succeeded")
    assert len(prometheus.asked) == 3
    assert evicted(world) == {"llm-0"}


@pytest.mark.parametrize(
    "answer",
    [
        Answered(status=503),
        Answered(body=b"\xff"),
        Answered(body=b"[]"),
        Answered(body=b'{"data": {"resultType": "scalar", "result": [1, "2"]}}'),
        Answered(body=b'{"data": {"resultType": "vector", "result": [3]}}'),
        Answered(body=b'{"data": {"resultType": "vector", "result": [{"value": [1]}]}}'),
        *(saved(text) for text in ("NaN", "+Inf", "-1", "0", "1763712000000", "soon", "4000000000")),
        saved(datetime(2026, 11, 21, 7, tzinfo=UTC), "NaN"),
    ],
)
def test_an_answer_without_a_value_is_waited_for(world: World, prometheus: StandIns, answer: Answered) -> None:
    prometheus.troubles += [answer] * 9
    world.fault(MILD)
    world.pass_time()
    assert waits_for(world) == ["checkpoint_unknown"]


def test_an_unknown_checkpoint_is_waited_for_up_to_the_limit(world: World, prometheus: StandIns) -> None:
    prometheus.troubles += [Answered(status=503)] * 100
    world.fault(MILD)
    world.pass_time()
    started = datetime.fromisoformat(world.step("drain").progress["checkpoint_since"])
    world.until("done", step="drain", seconds=30)
    over = datetime.fromisoformat(world.step("drain").progress["checkpoint_over"])
    assert timedelta(minutes=10) <= over - started <= timedelta(minutes=10, seconds=30)


def test_a_time_that_becomes_known_counts_from_the_beginning_of_the_wait(world: World, prometheus: StandIns) -> None:
    before, later = world.now - timedelta(seconds=1), world.now + timedelta(minutes=2)
    prometheus.troubles += [Answered(status=503), saved(before), saved(later)]
    world.fault(MILD)
    world.pass_time()
    assert waits_for(world) == ["checkpoint_unknown"]
    world.pass_time(15)
    assert (waits_for(world), len(prometheus.asked)) == (["checkpoint_unknown"], 1)  # it is left alone for 30 s
    world.pass_time(20)
    assert waits_for(world) == ["checkpoint_waits"]
    world.now = later
    world.until("succeeded")


def test_a_value_that_is_lost_is_unknown(world: World, prometheus: StandIns) -> None:
    prometheus.troubles += [saved(world.now - timedelta(hours=1)), saved(), saved()]
    world.fault(MILD)
    world.pass_time()
    world.pass_time(15)
    assert waits_for(world) == ["checkpoint_unknown"]


def test_checkpoints_of_jobs_without_a_value_or_with_the_annotation_are_not_queried_again(
    world: World, prometheus: StandIns
) -> None:
    annotated = {"metadata": {"annotations": {CHECKPOINT: "2026-11-21T07:00:00Z"}}}
    world.kube.objects.merge("PyTorchJob", "train", "llm", annotated)
    add_job(world, "eval", NODE)
    prometheus.troubles.append(saved())
    world.fault(MILD)
    world.pass_time()
    assert waits_for(world) == ["checkpoint_waits"]
    assert [request.query["query"] for request in prometheus.asked] == ['max(saved{namespace="train",job="eval"})']
    world.kube.remove_pod("train", "llm-0")
    prometheus.troubles.append(saved())
    world.until("succeeded")


def test_a_prometheus_that_does_not_answer_is_queried_once_for_all_jobs(world: World, prometheus: StandIns) -> None:
    for name in ("a", "b", "c"):
        add_job(world, name, NODE)
    prometheus.troubles += [Answered(status=503)] * 9
    world.fault(MILD)
    world.work()
    assert waits_for(world) == ["checkpoint_unknown"]
    assert len(prometheus.asked) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("off", "checkpoint_source_missing"),
        ("foreign", "checkpoint_source_missing"),
        ("second", "checkpoint_source_many"),
        ("other", "checkpoint_source_unknown"),
    ],
)
def test_only_an_enabled_unambiguous_source_of_the_cluster_is_queried(
    prometheus: StandIns, change: str, code: str
) -> None:
    world = make(prometheus, source="mimir" if change == "other" else "")
    try:
        if change == "off":
            Source.objects.update(enabled=False)
        elif change == "second":
            add_source(world.cluster, prometheus, now=world.now, name="second")
        elif change == "foreign":
            other = Cluster.objects.create(name="other", created_at=world.now)
            Source.objects.filter(kind="prometheus").update(cluster=other, name="mimir")
        world.fault(MILD)
        world.pass_time()
        step = world.step("drain")
        assert (step.because["code"], step.because["params"]["why"]["code"]) == ("checkpoint_unknown", code)
        assert prometheus.asked == []
    finally:
        world.uninstall()


def test_jobs_of_two_kinds_with_one_name_have_their_own_answers(world: World, prometheus: StandIns) -> None:
    annotated = {"metadata": {"annotations": {CHECKPOINT: "2026-11-21T07:00:00Z", NOTIFY: "owners"}}}
    world.kube.objects.merge("PyTorchJob", "train", "llm", annotated)
    world.kube.add_workload("StatefulSet", "train", "llm", labels={PROTECTED: "true"})
    world.kube.objects.merge("StatefulSet", "train", "llm", {"metadata": {"annotations": {NOTIFY: "owners"}}})
    world.kube.add_pod("train", "llm-9", node=NODE, owner_kind="StatefulSet", owner_name="llm")
    prometheus.troubles += [saved(world.now - timedelta(hours=1))] * 9
    world.fault(MILD)
    world.pass_time()
    assert set(world.step("drain").progress["checkpoints"]) == {"PyTorchJob train/llm", "StatefulSet train/llm"}
    reported = [(entry.data["kind"], entry.data["job"]) for entry in Entry.objects.filter(verb="job.moving")]
    assert sorted(reported) == [("PyTorchJob", "train/llm"), ("StatefulSet", "train/llm")]


def test_queries_that_wait_for_answers_are_bounded(world: World, prometheus: StandIns) -> None:
    prometheus.troubles += [saved()] * 9
    job = Job(namespace="train", kind="PyTorchJob", name="llm", label="", value="llm", uid="u")
    answers: list[object] = []

    def look(depth: int) -> Iterator[Job]:
        if depth:
            given = {"query": QUERY, "source": "", "now": world.now}
            answers.extend(services.look_up_checkpoints(world.cluster, look(depth - 1), **given).values())
        yield job

    assert list(look(3)) == [job]
    refused, *others = answers
    assert isinstance(refused, Reason)
    assert (refused.code, others, len(prometheus.asked)) == ("checkpoint_queries_late", [None, None], 2)


def test_a_policy_names_a_source_that_exists(world: World) -> None:
    text = ASKED % ("", ", checkpointSource: NAME")
    [unknown] = policies.validate(text.replace("NAME", "mimir")).problems
    assert (unknown.reason.code, dict(unknown.reason.params)["known"]) == ("rule_source_unknown", "thanos")
    assert policies.validate(text.replace("NAME", "thanos")).problems == ()
    Source.objects.filter(kind="prometheus").delete()
    [none] = policies.validate(text.replace("NAME", "thanos")).problems
    assert none.reason.code == "rule_source_none"


def test_a_fatal_fault_asks_nothing_and_ends_the_wait(world: World, prometheus: StandIns) -> None:
    prometheus.troubles += [saved(world.now - timedelta(hours=1))] * 9
    world.fault(MILD)
    world.pass_time()
    asked = len(prometheus.asked)
    world.report(Fault(kind="xid", code=FATAL, pci=PCI, source="kmsg"))
    world.pass_time(15)
    world.pass_time(2)
    assert (len(prometheus.asked), evicted(world)) == (asked, {"llm-0"})


@pytest.mark.parametrize(
    ("known", "codes"), [(True, ["owner_before_drain", "owner_checkpoint"]), (False, ["owner_before_drain"])]
)
def test_the_owner_is_notified_of_the_wait(world: World, prometheus: StandIns, known: bool, codes: list[str]) -> None:
    world.kube.objects.merge("PyTorchJob", "train", "llm", {"metadata": {"annotations": {NOTIFY: "owners"}}})
    prometheus.troubles += [saved(world.now - timedelta(hours=1)) if known else saved()] * 5
    world.fault(MILD)
    world.pass_time()
    assert [codes_of(entry.data["because"]) for entry in Entry.objects.filter(verb="job.moving")] == [codes]
