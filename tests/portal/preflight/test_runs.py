"""Preflight at the portal: the verdict does not depend on order, duplicates or which end told; incidents once."""

import itertools
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover import preflight, reasons
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight import queries, services, tasks
from kcover_portal.preflight.models import PreflightRefusal, PreflightReport, PreflightRun
from kcover_portal.preflight.services import collection
from kcover_portal.runtime.services import retention
from tests.codes import codes_of
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db

# Who meets whom in each of the three slots of four nodes.
ROUNDS = [[(1, 2), (3, 4)], [(1, 3), (2, 4)], [(1, 4), (2, 3)]]


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=4)
    yield made
    made.uninstall()


def ip(node: int) -> str:
    return f"10.0.0.{node}"


def raw(node: int, *, failed: set[tuple[int, int]] = frozenset(), size: int = 4, **more: Any) -> dict[str, Any]:  # type: ignore[assignment]
    """A node's report; ``failed`` names (slot, peer)."""
    batches = []
    for slot, pairs in enumerate(ROUNDS[: size - 1]):
        for pair in pairs:
            if node in pair and max(pair) <= size:
                [peer] = set(pair) - {node}
                status = "fail" if (slot, peer) in failed else "ok"
                batches.append(
                    {"batch_idx": slot, "pair": [ip(pair[0]), ip(pair[1])], "self_ip": ip(node), "status": status}
                )
    return {
        "workload_size": size,
        "node_name": f"gpu-{node}",
        "node_ip": ip(node),
        "gpu_check": 1,
        "storage_check": 1,
        "batches": batches,
        **more,
    }


def receive(world: World, body: dict[str, Any], *, uid: str = "u1", name: str = "job") -> services.AddedReport:
    workload = services.Workload(cluster=world.cluster, namespace="ml", name=name, uid=uid)
    return services.receive(workload, body, now=world.now)


def reports(told_by: str) -> list[dict[str, Any]]:
    """Four nodes of which the second is slow, told by itself, by its peers, or by both."""
    mine = {(slot, peer) for slot, peer in ((0, 1), (1, 4), (2, 3))}
    found = []
    for node in range(1, 5):
        if node == 2:
            found.append(raw(2, failed=mine if told_by != "peers" else set()))
        else:
            slot = next(slot for slot, peer in mine if peer == node)
            found.append(raw(node, failed={(slot, 2)} if told_by != "itself" else set()))
    return found


@pytest.mark.parametrize("told_by", ["itself", "peers", "both"])
def test_inv_41_order_duplicates_and_the_reporting_end_change_nothing(world: World, told_by: str) -> None:
    rng = random.Random(41)
    for number, order in enumerate(itertools.permutations(reports(told_by))):
        sent = [*order]
        for one in rng.sample(order[:3], 2):
            sent.insert(rng.randint(sent.index(one) + 1, len(sent) - 1), one)
        for body in sent:
            taken = receive(world, body, uid=f"u{number}")
        run = taken.run
        assert (run.state, run.slow, run.abnormal, run.suspects, run.received) == ("complete", ["gpu-2"], [], [], 4)
    assert PreflightRun.objects.count() == 24
    assert services.report_verdicts(now=world.now) == 24
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.node.name, incident.count) == ("preflight", "slow", "gpu-2", 24)
    because = reasons.from_json(incident.because)
    assert codes_of(because) == ["preflight_flagged", "preflight_slow"]
    assert (dict(because.params)["workload"], incident.message) == ("ml/job", str(because))
    assert services.report_verdicts(now=world.now) == 0


def test_the_verdict_on_a_node_is_found_among_reasons_of_a_newer_version(world: World) -> None:
    for body in reports("both"):
        run = receive(world, body).run
    (slow,) = run.because
    newer = {"code": "of_a_newer_version", "params": {}}
    joined = reasons.both(reasons.of("preflight_abnormal", node="gpu-9", checks="nccl"), reasons.from_json(slow))
    PreflightRun.objects.update(because=[newer, joined.to_json()])
    assert services.report_verdicts(now=world.now) == 1
    why = dict(reasons.from_json(Incident.objects.get().because).params)["why"]
    assert why == reasons.from_json(slow)


def test_inv_41_missing_reports_mean_incomplete_never_slow(world: World) -> None:
    for body in reports("both")[:3]:
        taken = receive(world, body)
    assert (taken.run.state, taken.run.slow, taken.run.received) == ("waiting", [], 3)
    world.now += timedelta(minutes=30)
    tasks.sweep()  # by the clock of the machine the run is not due
    services.expire(taken.run.pk, now=world.now)
    taken.run.refresh_from_db()
    assert (taken.run.state, taken.run.slow) == ("expired", [])
    assert reasons.from_json(taken.run.because[0]) == reasons.of(
        "preflight_expired",
        received=3,
        expected=4,
        within=reasons.span(timedelta(minutes=30)),
        nodes="gpu-1, gpu-2, gpu-3",
    )
    assert not Incident.objects.exists()
    services.announce(world.cluster, [taken.run.pk], now=world.now)
    [event] = world.kube.list_events().items
    assert (event.reason, event.type, event.involved_name) == ("PreflightExpired", "Warning", "gpu-1")
    assert "3 of 4" in event.message  # kcover's Event says how many were received and expected
    assert not services.expire(taken.run.pk, now=world.now)
    assert Entry.objects.filter(verb="preflight.expired").count() == 1


def test_a_cluster_that_refuses_one_event_is_asked_for_no_further_one(world: World) -> None:
    """The sweep wrote them itself: a cluster that hangs held its thread for 25 s a run, and rescues waited."""
    runs = []
    for workload in ("a", "b", "c"):
        for body in reports("both")[:3]:
            made = receive(world, body, name=workload).run
        runs.append(made.pk)
    world.now += timedelta(minutes=30)
    assert [services.expire(pk, now=world.now) for pk in runs] == [True] * len(runs)
    assert world.kube.called("emit") == []
    assert list(queries.by_cluster(runs)) == [world.cluster.pk]
    world.kube.fail("emit", port.Unavailable("slow"), times=9)
    services.announce(world.cluster, runs, now=world.now)
    assert len(world.kube.called("emit")) == 1


def test_inv_41_two_nodes_are_suspects_not_two_slow_nodes(world: World) -> None:
    for node in (1, 2):
        taken = receive(world, raw(node, size=2, failed={(0, 3 - node)}))
    assert (taken.run.state, taken.run.slow, taken.run.suspects) == ("complete", [], ["gpu-1", "gpu-2"])
    assert services.report_verdicts(now=world.now) == 0


def test_an_abnormal_node_is_reported_at_once(world: World) -> None:
    run = receive(world, raw(3, gpu_check=2)).run
    assert (run.state, run.abnormal) == ("waiting", ["gpu-3"])
    assert services.report_verdicts(now=world.now) == 1
    assert Incident.objects.get().code == "abnormal"
    for node in (1, 2, 4):
        run = receive(world, raw(node)).run
    assert (run.state, run.abnormal, run.slow) == ("complete", ["gpu-3"], [])
    assert services.report_verdicts(now=world.now) == 0
    assert "gpu-3 failed gpu_check" in Incident.objects.get().message


def test_a_report_that_takes_itself_back_is_no_longer_abnormal(world: World) -> None:
    receive(world, raw(3, storage_check=2))
    taken = receive(world, raw(3))
    assert (taken.change, taken.run.abnormal, taken.run.received) == ("replaced", [], 1)
    assert services.report_verdicts(now=world.now) == 0


def test_a_rerun_another_size_and_a_late_report_begin_new_runs(world: World) -> None:
    first = receive(world, raw(1)).run
    assert receive(world, raw(1), uid="u2").run.pk != first.pk
    assert receive(world, raw(1)).change == "same"
    other = receive(world, raw(2, size=2))
    assert (other.change, str(other.because)) == (
        "restarted",
        "gpu-2 reports a run of 2 nodes, not 4. The 1 earlier reports are dropped.",
    )
    first.refresh_from_db()
    assert (first.state, first.ended_at) == ("expired", world.now)
    world.now += timedelta(minutes=31)
    late = receive(world, raw(1, size=2))
    assert (late.change, late.run.received, late.run.first_at) == ("restarted", 1, world.now)
    done = receive(world, raw(2, size=2))
    assert done.run.state == "complete"
    assert receive(world, raw(2, size=2)).change == "same"
    again = receive(world, raw(2, size=2, failed={(0, 1)}))
    assert (again.change, again.run.state, again.run.received) == ("restarted", "waiting", 1)
    done.run.refresh_from_db()
    assert done.run.state == "complete"


def test_one_node_with_another_size_does_not_end_the_run(world: World) -> None:
    agreed = [receive(world, raw(node)).run for node in (1, 2)][-1]
    for size in (6, 8, 6):  # a node that is no part of the job, as often as it likes
        other = receive(world, raw(3, workload_size=size))
        assert other.run.pk != agreed.pk
    agreed.refresh_from_db()
    assert (agreed.state, agreed.received) == ("waiting", 2)
    for node in (3, 4):
        done = receive(world, raw(node))
    assert (done.run.pk, done.run.state, done.run.received) == (agreed.pk, "complete", 4)


def test_a_run_whose_size_really_changed_is_collected_beside_the_old_one(world: World) -> None:
    old = [receive(world, raw(node)).run for node in (3, 4)][-1]
    first = receive(world, raw(1, size=2))
    assert (first.change, first.because and first.because.code) == ("counted", "preflight_size_beside")
    assert receive(world, raw(2, size=2)).run.state == "complete"
    world.now += timedelta(minutes=31)
    services.expire(old.pk, now=world.now)
    old.refresh_from_db()
    assert old.state == "expired"


def test_a_node_has_a_bounded_number_of_open_runs(world: World) -> None:
    for number in range(services.MAX_OPEN_RUNS):
        receive(world, raw(1), name=f"job-{number}")
    with pytest.raises(preflight.ReportInvalid) as refused:
        receive(world, raw(1), name="one-more")
    assert refused.value.reason.code == "preflight_open_runs"
    assert receive(world, raw(2), name="one-more").change == "counted"  # other nodes do not wait for it
    assert receive(world, raw(1, gpu_check=2), name="job-0").change == "replaced"


def test_the_time_to_collect_is_the_clusters_and_nothing_extends_it(world: World) -> None:
    world.cluster.preflight_within = 120
    run = receive(world, raw(1)).run
    world.now += timedelta(seconds=119)
    assert receive(world, raw(2)).run.due_at == run.due_at == run.first_at + timedelta(seconds=120)
    world.now += timedelta(seconds=1)
    assert receive(world, raw(3)).change == "restarted"


def test_a_refused_report_is_not_counted_and_kept_with_its_reason(world: World) -> None:
    for body, path in (
        (raw(1, workload_size=3), "workload_size"),
        (raw(9), "node_name"),
        (raw(1, node_ip="a\0b"), ""),
        (raw(1, batches=[{"batch_idx": 0, "pair": ["x", "y"]}]), "batches/0/pair/0"),
    ):
        with pytest.raises(preflight.ReportInvalid) as refusal:
            receive(world, body)
        assert refusal.value.path == path
        stored = PreflightRefusal.objects.latest("pk")
        assert (stored.path, stored.because) == (path, refusal.value.reason.to_json())
    run = receive(world, raw(1)).run
    assert (run.received, run.rejected) == (1, 4)  # what came before the run's first good report counts with it
    with pytest.raises(preflight.ReportInvalid):
        receive(world, raw(2, workload_size="4"))
    run.refresh_from_db()
    assert (run.received, run.rejected, run.refusals.count()) == (1, 5, 5)


def test_refusals_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_REFUSALS", 3)
    for number in range(5):
        with pytest.raises(preflight.ReportInvalid):
            receive(world, raw(1, workload_size=-number))
    assert PreflightRefusal.objects.count() == 3


def test_only_known_fields_are_kept(world: World) -> None:
    body = raw(1, extra="x" * 9000, rank=3, gpu_check="y" * 9000)
    body["batches"].append({"batch_idx": 14, "pair": ["z"], "log": "x" * 9000})
    body["batches"][0] |= {"rc": 0, "status": "s" * 900, "allreduce_ms": 1.5}
    report = receive(world, body).run.reports.get()
    assert preflight.read(report.body) == preflight.read(body)
    assert len(str(report.body)) < 900
    assert report.body["batches"][0]["allreduce_ms"] == 1.5


def test_a_storm_of_flagged_nodes_is_reported_once_each_across_crashes(world: World, monkeypatch: Any) -> None:
    for node in range(1, 5):
        receive(world, raw(node, gpu_check=2))
    calls = []

    def dies(*args: Any, **named: Any) -> bool:
        calls.append(args)
        if len(calls) == 3:
            raise RuntimeError("killed")
        return keep(*args, **named)

    keep = incidents.keep_found
    monkeypatch.setattr(incidents, "keep_found", dies)
    with pytest.raises(RuntimeError, match="killed"):
        services.report_verdicts(now=world.now)
    assert PreflightReport.objects.filter(reported_at=None).count() == 2
    assert services.report_verdicts(now=world.now) == 2
    assert Incident.objects.filter(kind="preflight").count() == 4
    assert {one.count for one in Incident.objects.all()} == {1}


def test_runs_are_forgotten(world: World) -> None:
    receive(world, raw(1))
    for node in (1, 2):
        receive(world, raw(node, size=2), uid="u2")
    assert services.prune(now=world.now + retention.time(PreflightRun)) == 0
    assert services.prune(now=world.now + retention.time(PreflightRun) + timedelta(seconds=1)) == 1
    assert [run.state for run in PreflightRun.objects.all()] == ["waiting"]


@pytest.mark.parametrize("told_by_the_peer", [True, False])
def test_one_false_report_calls_no_peer_slow(world: World, *, told_by_the_peer: bool) -> None:
    """It names the same peer in every slot; what that peer did is known from its own report, or from the others."""
    for node in (1, 2, 3):
        honest = raw(node)
        if node == 1 and not told_by_the_peer:
            honest["batches"] = honest["batches"][:1]
        receive(world, honest)
    lie = raw(4)
    for batch in lie["batches"]:
        batch |= {"pair": [ip(4), ip(1)], "self_ip": ip(4), "status": "fail"}
    receive(world, lie)
    run = PreflightRun.objects.get()
    assert (run.state, "gpu-1" in run.slow) == ("complete", False)
