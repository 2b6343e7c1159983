"""The performance of training jobs, read from a Prometheus: the incident of a node, its end, and what opens none."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from kcover.jobs.performance import Limits
from kcover.sources.job_series import JobSeries
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries, services as job_services
from kcover_portal.jobs.models import JobPerformance
from kcover_portal.jobs.services import performance
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services as policies
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources.models import Source
from simulator.witnesses.prometheus import COMPUTE, STEP, Rank
from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue.operators import WithOperators, pods_of
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import Answered, StandIns

pytestmark = pytest.mark.django_db
EVERY = timedelta(seconds=60)
QUICK = {"hold": 120, "warm_up": 60, "least": 10, "interval": 60}


class Training:
    """Jobs on five nodes, and the source that reads their performance each minute. ``speed``: of slow nodes."""

    def __init__(self, world: JobWorld, stand_ins: StandIns) -> None:
        self.world, self.stand_ins = world, stand_ins
        self.speed: dict[str, float] = {}
        self.source: Source
        stand_ins.prometheus.ranks = self.ranks

    def watch(self, query: str, **given: object) -> None:
        url = f"{self.stand_ins.url}/prometheus"
        self.source = add(self.world.cluster, "performance", now=self.world.now, url=url, query=query, **QUICK, **given)

    def ranks(self) -> Iterator[Rank]:
        for pod in pods_of(self.world.kube):
            yield Rank("train", pod.job, pod.name, pod.node, self.speed.get(pod.node, 1.0))

    def move(self, pod: str, node: str) -> None:
        """The job starts again, with this pod on another node."""
        for old in pods_of(self.world.kube):
            manifest = self.world.kube.objects.get("Pod", "train", old.name)
            self.world.kube.objects.remove("Pod", "train", old.name)
            meta = {key: manifest["metadata"][key] for key in ("namespace", "name", "labels", "ownerReferences")}
            spec = {**manifest["spec"], "nodeName": node if old.name == pod else old.node}
            self.world.kube.create({**manifest, "metadata": meta, "spec": spec})

    def read(self, minutes: int) -> None:
        for _ in range(minutes):
            self.world.now += EVERY
            self.source = pull(self.source, at=self.world.now)

    def shown(self) -> queries.PerformanceView | None:
        queries.forget()
        views, _ = queries.jobs([self.world.cluster], Scope.of(self.world.cluster), now=self.world.now)
        return next(view.performance for view in views if view.name == "llm")


@pytest.fixture
def world() -> Iterator[JobWorld]:
    one = JobWorld(policy="", nodes=5, fake=WithOperators)
    yield one
    one.uninstall()


@pytest.fixture
def training(world: JobWorld, stand_ins: StandIns) -> Training:
    add_job(world, "llm", "gpu-1", "gpu-2", "gpu-3", "gpu-4")
    return Training(world, stand_ins)


def seen() -> list[tuple[str, str, str]]:
    rows = Incident.objects.order_by("pk").select_related("node")
    assert all((row.kind, row.is_user_fault) == ("pod", True) for row in rows)
    return [(row.code, row.node.name if row.node else "", row.state) for row in rows]


def test_a_slow_node_among_its_peers_is_accused_until_it_is_normal_again(training: Training) -> None:
    training.watch(COMPUTE)
    training.read(14)
    assert training.source.error == {}
    view = training.shown()
    assert view is not None
    assert (view.percent, view.slow_since, view.slow_node) == (100, None, "")
    training.speed["gpu-3"] = 0.5
    training.read(2)
    assert seen() == []
    training.read(2)
    assert seen() == [("JobSlow", "gpu-3", "open")]
    incident = Incident.objects.get()
    assert incident.device == "job train/llm"
    assert "NotIn [gpu-3]" in incident.advice
    assert "50 %" in incident.message
    view = training.shown()
    assert view is not None
    assert (view.slow_node, view.percent) == ("gpu-3", 50)
    training.speed.clear()
    training.read(2)
    assert seen() == [("JobSlow", "gpu-3", "open")]
    training.read(2)
    assert seen() == [("JobSlow", "gpu-3", "closed")]


def test_who_sees_one_pool_is_not_told_of_nodes_of_others(training: Training) -> None:
    cluster = training.world.cluster
    Node.objects.filter(name="gpu-1").update(pool="a")
    about = {"source": "steps", "namespace": "train", "kind": "PyTorchJob", "name": "llm", "speed": 0.5}
    now = training.world.now
    JobPerformance.objects.create(cluster=cluster, slow_since=now, slow_node="gpu-3", seen_at=now, **about)
    for pool, told in (("a", ""), ("", "gpu-3")):
        queries.forget()
        scope = Scope(wide=False, whole=frozenset(), pools={cluster.pk: frozenset({pool})})
        [view], _ = queries.jobs([cluster], scope, now=now)
        assert view.performance is not None
        assert (view.performance.percent, view.performance.slow_node) == (50, told)


def test_values_of_some_nodes_accuse_none(training: Training) -> None:
    """The median of the rest is another one: three light stages that are not scraped yet made the new node slow."""
    training.speed |= {"gpu-1": 4.0, "gpu-2": 4.0, "gpu-3": 4.0}
    training.watch(COMPUTE)
    training.read(14)
    whole = training.ranks
    training.stand_ins.prometheus.ranks = lambda: (rank for rank in whole() if rank.node not in ("gpu-1", "gpu-2"))
    training.move("llm-3", "gpu-5")
    training.read(14)
    assert seen() == []
    row = JobPerformance.objects.get()
    assert row.seen_at < training.world.now - timedelta(minutes=10), "nothing was judged"


def test_a_job_that_ended_makes_room_for_another(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "MAX_JOBS", 2)
    training.watch(COMPUTE)
    about, now = {"source": training.source.name, "namespace": "train", "kind": "PyTorchJob"}, training.world.now
    for number in range(2):
        JobPerformance.objects.create(
            cluster=training.world.cluster, name=f"old-{number}", seen_at=now - number * EVERY, **about
        )
    training.read(2)
    assert set(JobPerformance.objects.values_list("name", flat=True)) == {"old-0", "llm"}


def test_a_namespace_with_many_jobs_takes_no_place_from_another(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performance, "MAX_JOBS", 4)
    names = [("many", f"job-{number}") for number in range(6)]
    for others in ([], [("b", "job")], [("b", "job"), ("c", "job")]):
        runs = [
            queries.JobRun(
                namespace=namespace, kind="Job", name=name, version="", attempt="", pods={name: "gpu-1"}, is_up=True
            )
            for namespace, name in (*names, *others)
        ]
        series = [
            JobSeries(namespace=run.namespace, pod=run.name, job="", node="", shape="", value=1.0) for run in runs
        ]
        reader = job_services.PerformanceReader(
            cluster=world.cluster, source="s", asked="", is_rate=False, limits=Limits()
        )
        world.now += EVERY
        reader.take(series, runs, now=world.now)
        found = sorted(JobPerformance.objects.values_list("namespace", flat=True))
        assert found == [*(namespace for namespace, _ in others), *["many"] * (4 - len(others))]


def test_a_node_that_comes_in_and_slows_the_whole_job_is_accused(training: Training) -> None:
    training.watch(STEP)
    training.read(14)
    training.speed["gpu-5"] = 0.4
    training.move("llm-3", "gpu-5")
    training.read(6)
    assert seen() == [("JobSlow", "gpu-5", "open")]
    view = training.shown()
    assert view is not None
    assert view.percent == 40
    training.world.kube.objects.remove("PyTorchJob", "train", "llm")
    training.read(1)
    assert seen() == [("JobSlow", "gpu-5", "closed")]
    assert JobPerformance.objects.get().slow_since is None


def test_a_drop_that_follows_no_node_is_of_the_job_alone(training: Training) -> None:
    training.watch(STEP)
    training.read(14)
    training.speed["gpu-2"] = 0.5
    training.read(6)
    assert seen() == []
    view = training.shown()
    assert view is not None
    assert (view.percent, view.slow_node, view.slow_since is not None) == (50, "", True)


def test_two_jobs_that_are_slow_at_once_accuse_no_new_node(training: Training) -> None:
    add_job(training.world, "other", "gpu-1")
    training.watch(STEP)
    training.read(14)
    training.speed = {"gpu-5": 0.5, "gpu-1": 0.5}
    training.move("llm-3", "gpu-5")
    training.read(8)
    assert seen() == []


def test_a_change_of_the_jobs_spec_starts_a_new_past(training: Training) -> None:
    training.watch(STEP)
    training.read(14)
    training.speed["gpu-5"] = 0.4

    def change(manifest: dict) -> None:
        manifest["metadata"]["generation"] = 2

    training.world.kube.objects.edit("PyTorchJob", "train", "llm", change)
    training.move("llm-3", "gpu-5")
    training.read(8)
    assert seen() == []


def nan(body: dict) -> None:
    for one in body["data"]["result"]:
        one["value"][1] = "NaN"


def partial(body: dict) -> None:
    body["isPartial"] = True


def few(body: dict) -> None:
    del body["data"]["result"][2:]


def unnamed(body: dict) -> None:
    for one in body["data"]["result"]:
        one["metric"] = {"instance": "10.0.0.1:80"}


@pytest.mark.parametrize("harm", [nan, partial, few, unnamed, None])
def test_answers_that_say_too_little_open_nothing(training: Training, harm: Callable[[dict], None] | None) -> None:
    training.watch(STEP)
    training.read(14)
    training.speed["gpu-5"] = 0.4
    training.move("llm-3", "gpu-5")
    for _ in range(9):
        at = training.world.now.timestamp()
        body = {"data": {"resultType": "vector", "result": training.stand_ins.prometheus._steps(STEP, at)}}
        if harm is not None:
            harm(body)
        answer = Answered(body=json.dumps(body).encode()) if harm is not None else Answered(status=503)
        training.stand_ins.troubles.append(answer)
        training.read(1)
    assert seen() == []


def test_values_of_a_rate_and_of_labels_of_a_job_are_read(training: Training) -> None:
    training.watch(STEP, measures="rate")
    training.speed["gpu-2"] = 0.5  # 2 s a step, and the query says that it is steps a second
    training.read(14)
    training.speed["gpu-2"] = 1.0
    training.read(3)
    view = training.shown()
    assert view is not None
    assert view.percent == 50


def test_jobs_whose_pods_do_not_all_run_are_not_judged(training: Training) -> None:
    training.watch(STEP)

    def unready(manifest: dict) -> None:
        manifest["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    training.world.kube.objects.edit("Pod", "train", "llm-1", unready)
    training.read(3)
    assert training.shown() is None


def test_no_shipped_rule_acts_on_a_slow_job(training: Training) -> None:
    policies.install_defaults(author="test", reason="", now=training.world.now)
    for pack in policies.packs():
        policies.install_pack(pack.name, "enforce", author="test", reason="", now=training.world.now)
    training.watch(COMPUTE)
    training.read(14)
    training.speed["gpu-3"] = 0.5
    training.read(5)
    training.world.work()
    assert seen() == [("JobSlow", "gpu-3", "open")]
    assert not Rescue.objects.exists()


def test_a_source_needs_a_query_and_old_rows_go(training: Training) -> None:
    with pytest.raises(FieldError) as refused:
        add(training.world.cluster, "performance", now=training.world.now, url="http://prometheus:9090")
    assert (refused.value.field, refused.value.reason.code) == ("settings/query", "source_setting_missing")
    with pytest.raises(FieldError) as refused:
        training.watch(STEP, measures="speed")
    assert refused.value.reason.code == "source_setting_measure"
    training.watch(STEP)
    training.read(1)
    job_services.prune(now=training.world.now + timedelta(days=6))
    assert JobPerformance.objects.count() == 1
    job_services.prune(now=training.world.now + timedelta(days=8))
    assert not JobPerformance.objects.exists()
