"""/metrics: every family that dashboards rely on, at a bounded number of queries."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover import reasons, wire
from kcover_portal.api.agent import ingest_counters
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.fleet.models import Agent, CheckResult, Cluster, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.operate import autopilot
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.runtime.models import Counter

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _embedded(settings: Any) -> None:
    settings.REDIS_URL = ""


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def node(cluster: Cluster, name: str, now: datetime, **more: Any) -> Node:
    made = Node.objects.create(
        cluster=cluster, name=name, created_at=now, **{"in_cluster": True, "model": "NVIDIA H100", **more}
    )
    Gpu.objects.create(node=made, index=0, uuid=f"GPU-{name}", model="NVIDIA H100 80GB HBM3", seen_at=now)
    return made


def result(of: Node, name: str, status: str, now: datetime, *, device: str = "", value: float | None = None) -> None:
    CheckResult.objects.create(
        node=of, name=name, device=device, status=status, value=value, seen_at=now, changed_at=now
    )


def lines(family: str) -> list[str]:
    """The samples of one family."""
    text = Client().get("/metrics").content.decode()
    return [line for line in text.splitlines() if line.startswith((f"{family}{{", f"{family} "))]


def test_autopilots_gauge_has_its_labels_and_values(east: Cluster, now: datetime) -> None:
    one = node(east, "n1", now)
    result(one, "pciebw", "pass", now, device="GPU-n1", value=24.5)
    result(one, "remapped", "fail", now, device="GPU-n1", value=3)
    result(one, "gpupower", "pass", now, device="GPU-n1", value=0)
    result(one, "dcgm", "error", now)
    result(one, "ping", "fail", now, device='10.0.0.9"\\')
    result(one, "disk", "fail", now)  # none of Autopilot's
    result(node(east, "gone", now, in_cluster=False), "pciebw", "fail", now, value=1)
    assert sorted(lines("autopilot_health_checks")) == [
        'autopilot_health_checks{health="pciebw",node="n1",cpumodel="",gpumodel="NVIDIA H100 80GB HBM3",'
        'deviceid="GPU-n1",cluster="east"} 24.5',
        'autopilot_health_checks{health="ping",node="n1",cpumodel="",gpumodel="NVIDIA H100",'
        'deviceid="10.0.0.9\\"\\\\",cluster="east"} 1',
        'autopilot_health_checks{health="power-slowdown",node="n1",cpumodel="",gpumodel="NVIDIA H100 80GB HBM3",'
        'deviceid="GPU-n1",cluster="east"} 0',
        'autopilot_health_checks{health="remapped",node="n1",cpumodel="",gpumodel="NVIDIA H100 80GB HBM3",'
        'deviceid="GPU-n1",cluster="east"} 1',
    ]


def test_results_that_are_no_longer_reported_are_not_shown(east: Cluster, now: datetime) -> None:
    one = node(east, "n1", now)
    Agent.objects.update_or_create(node=one, defaults={"seen_at": now, "boot_seen_at": now})
    old = now - timedelta(hours=24, seconds=1)
    for name, device, at in (("ping", "gone", old), ("ping", "there", now - timedelta(hours=23)), ("dcgm", "", old)):
        result(one, name, "fail", at, device=device)
    shown = sorted(line.partition("health=")[2] for line in lines("autopilot_health_checks"))
    assert [line.partition(",")[0] for line in shown] == ['"dcgm"', '"ping"']
    assert 'deviceid="there"' in shown[1]
    Agent.objects.update(seen_at=old)
    assert len(lines("autopilot_health_checks")) == 3  # a silent agent tells nothing again


def stored(cluster: Cluster, status: str, now: datetime, *nodes: Node) -> None:
    """A run of pvc that came to this."""
    run = CheckRun.objects.create(
        cluster=cluster, checks=["pvc"], requested_by="x", requested_at=now, storage={"status": status}
    )
    CheckTarget.objects.bulk_create(CheckTarget(run=run, node=one, place=n, batch=0) for n, one in enumerate(nodes))


def test_storage_health_comes_from_the_clusters_latest_run(east: Cluster, now: datetime) -> None:
    one, two, gone = node(east, "n1", now), node(east, "n2", now), node(east, "n3", now, in_cluster=False)
    result(one, "pvc", "fail", now)  # an agent has no say in it
    stored(east, "fail", now, one, two, gone)
    shown = [
        f'autopilot_health_checks{{health="pvc",node="{name}",cpumodel="",gpumodel="NVIDIA H100",deviceid="",'
        f'cluster="east"}}'
        for name in ("n1", "n2")
    ]
    assert lines("autopilot_health_checks") == [f"{one} 1" for one in shown]
    stored(east, "pass", now, two)
    stored(east, "skipped", now, one)  # says nothing
    assert lines("autopilot_health_checks") == [f"{shown[1]} 0"]
    other = Cluster.objects.create(name="west", created_at=now)
    stored(other, "fail", now, node(other, "w1", now))
    assert len(lines("autopilot_health_checks")) == 2
    text = autopilot.exposition(most=1)
    assert 'node="w1"' in text  # failures first
    assert "kcover_autopilot_results_left_out 1" in text


def test_beyond_the_limit_the_failures_are_shown(east: Cluster, now: datetime) -> None:
    for number in range(3):
        result(node(east, f"n{number}", now), "dcgm", "fail" if number == 2 else "pass", now)
    text = autopilot.exposition(most=1)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'autopilot_health_checks{health="dcgm",node="n2",cpumodel="",gpumodel="NVIDIA H100",deviceid="",'
        'cluster="east"} 1',
        "kcover_autopilot_results_left_out 1",
    ]
    assert "kcover_autopilot_results_left_out 0" in autopilot.exposition(most=3)


def test_queries_do_not_grow_with_the_fleet(east: Cluster, now: datetime) -> None:
    counts = []
    for number in (1, 2, 3):
        one = node(east, f"n{number}", now)
        result(one, "pciebw", "pass", now, value=24.5)
        Incident.objects.create(cluster=east, node=one, kind="xid", code="62", opened_at=now, last_at=now)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            Client().get("/metrics")
        counts.append(len(captured))
    assert len(set(counts)) == 1


def rescue(of: Node, now: datetime, **more: Any) -> Rescue:
    return Rescue.objects.create(
        cluster=of.cluster, node=of, origin="manual", requested_by="x", plan_hash="h", opened_at=now, **more
    )


def test_phases_of_rescues_have_sums_and_counts(east: Cluster, now: datetime) -> None:
    for number, seconds in ((1, 5), (2, 7)):
        done = rescue(node(east, f"n{number}", now), now, state="succeeded", closed_at=now + timedelta(seconds=seconds))
        Step.objects.create(
            rescue=done,
            index=0,
            name="drain",
            state="done",
            started_at=now,
            finished_at=now + timedelta(seconds=seconds, milliseconds=500),
        )
        Step.objects.create(rescue=done, index=1, name="reboot", state="running", started_at=now)
    assert lines("kcover_rescue_phase_seconds_sum") == [
        'kcover_rescue_phase_seconds_sum{cluster="east",phase="drain"} 13.0',
        'kcover_rescue_phase_seconds_sum{cluster="east",phase="rescue"} 12.0',
    ]
    assert lines("kcover_rescue_phase_seconds_count") == [
        'kcover_rescue_phase_seconds_count{cluster="east",phase="drain"} 2.0',
        'kcover_rescue_phase_seconds_count{cluster="east",phase="rescue"} 2.0',
    ]


def test_refusals_of_guards_are_counted_for_a_day(east: Cluster, now: datetime) -> None:
    one = node(east, "n1", now)
    latest = timezone.now()
    storm = {
        "code": "storm_code",
        "params": {"value": "x", "nodes": 3, "within": reasons.span(timedelta(minutes=5)).to_json(), "limit": 3},
    }
    cool = {"code": "rule_cooldown", "params": {"until": "a", "rule": "r", "ended": "b"}}
    matched = {"code": "no_policy", "params": {}}
    for because, answer, age in (
        ([matched, storm, cool], "hold", timedelta(hours=1)),
        ([storm], "hold", timedelta(hours=25)),
        ([storm], "none", timedelta(0)),
    ):
        Decision.objects.create(
            cluster=east,
            node=one,
            answer=answer,
            mode="enforce",
            because=because,
            count=4,
            at=latest,
            last_at=latest - age,
        )
    assert lines("kcover_guard_refusals") == [
        'kcover_guard_refusals{cluster="east",guard="cooldown"} 4.0',
        'kcover_guard_refusals{cluster="east",guard="storm"} 4.0',
    ]


def test_accepted_reports_are_counted_across_processes() -> None:
    ingest_counters.note()
    Counter.objects.all().delete()
    kept = wire.Answer(accepted=3, duplicates=1, rejected=(), commands=())
    ingest_counters.taken([kept, kept, ValueError("no")])
    ingest_counters.refused()
    assert lines("kcover_ingest_reports_total")[0] == 'kcover_ingest_reports_total{end="kept"} 0.0'
    ingest_counters.note()
    ingest_counters.taken([kept])
    ingest_counters.note()
    ingest_counters.note()
    assert lines("kcover_ingest_reports_total") == [
        'kcover_ingest_reports_total{end="kept"} 3.0',
        'kcover_ingest_reports_total{end="failed"} 1.0',
        'kcover_ingest_reports_total{end="busy"} 1.0',
        'kcover_ingest_reports_total{end="limited"} 0.0',
    ]
    assert lines("kcover_ingest_items_total") == [
        'kcover_ingest_items_total{end="accepted"} 9.0',
        'kcover_ingest_items_total{end="duplicates"} 3.0',
        'kcover_ingest_items_total{end="rejected"} 0.0',
    ]


def test_counts_that_could_not_be_stored_are_stored_later(monkeypatch: Any) -> None:
    ingest_counters.note()
    Counter.objects.all().delete()
    ingest_counters.taken([wire.Answer(accepted=1, duplicates=0, rejected=(), commands=())])

    def fail(_topic: str, _counts: Any) -> None:
        raise OSError("gone")

    with monkeypatch.context() as patched:
        patched.setattr("kcover_portal.runtime.services.counters.add", fail)
        with pytest.raises(OSError, match="gone"):
            ingest_counters.note()
    ingest_counters.note()
    assert Counter.objects.get(topic="ingest", name="reports").count == 1


@pytest.mark.parametrize(
    "family",
    [
        *("kcover_incidents", "kcover_rescues", "kcover_decisions", "kcover_nodes", "kcover_agents_silent"),
        *("kcover_sweep_age_seconds", "kcover_well", "kcover_rescue_phase_seconds", "kcover_guard_refusals"),
        *("kcover_ingest_reports_total", "kcover_ingest_items_total", "kcover_check_runs", "autopilot_health_checks"),
        *("kcover_preflight_runs", "kcover_notify_deliveries", "kcover_notify_waiting_seconds"),
    ],
)
def test_every_family_is_declared(family: str, east: Cluster, now: datetime) -> None:
    CheckRun.objects.create(cluster=east, requested_at=now)
    assert f"# TYPE {family} " in Client().get("/metrics").content.decode()


@pytest.mark.django_db
def test_metrics_are_for_monitoring_systems(settings: Any) -> None:
    inside, outside = {"REMOTE_ADDR": "10.1.2.3"}, {"REMOTE_ADDR": "203.0.113.9"}
    through_ingress = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.9"}
    assert Client().get("/metrics", **inside).status_code == 200
    assert Client().get("/metrics", **outside).status_code == 403
    assert Client().get("/metrics", **through_ingress).status_code == 403
    assert "database" in Client().get("/readyz", **inside).json()
    assert Client().get("/readyz", **outside).json() == {}
    settings.KCOVER_METRICS_TOKEN = "t" * 32
    for token, status in (("t" * 32, 200), ("t" * 31, 403), ("", 403)):
        answer = Client().get("/metrics", headers={"Authorization": f"Bearer {token}"}, **outside)
        assert answer.status_code == status
    settings.KCOVER_METRICS_NETWORKS = []
    assert Client().get("/metrics", **inside).status_code == 403


def test_the_results_in_metrics_are_bounded(east: Cluster, now: datetime, settings: Any) -> None:
    for number in range(3):
        result(node(east, f"n{number}", now), "dcgm", "fail" if number == 2 else "pass", now)
    settings.KCOVER_METRICS_RESULTS = 2
    assert len(lines("autopilot_health_checks")) == 2
    assert lines("kcover_autopilot_results_left_out") == ["kcover_autopilot_results_left_out 1"]
