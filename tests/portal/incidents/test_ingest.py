"""Reports in batches: the rows that each statement writes, and those that it leaves unchanged."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Barrier

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons, wire
from kcover.faults.fault import Check, CommandResult, Fault, Inventory
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, CheckChange, CheckResult, Cluster, Command, Gpu, Node
from kcover_portal.fleet.services import agent_reports, stored_checks
from kcover_portal.incidents import services
from kcover_portal.incidents.models import Batch, Incident, Occurrence
from tests.portal.incidents.conftest import check, incoming, inventory, report, xid

Deliver = Callable[..., wire.Answer]


def counts(answer: wire.Answer) -> tuple[int, int]:
    return answer.accepted, answer.duplicates


def test_an_unchanged_heartbeat_adds_no_row_and_moves_one(deliver: Deliver, now: datetime) -> None:
    full = {"inventory": inventory(), "checks": (check(),)}
    deliver(report(now=now, **full))
    turn = now + timedelta(
        seconds=agent_reports.REFRESH_SECONDS - Node.objects.get().pk * 7 % agent_reports.REFRESH_SECONDS
    )
    deliver(report(now=turn, **full), at=turn)  # a node's results are written again at a moment of its own
    before = [model.objects.count() for model in (Node, Agent, Gpu, CheckResult, CheckChange, Batch)]
    seen = CheckResult.objects.get().seen_at
    for seconds in (30, 60, 90):
        at = turn + timedelta(seconds=seconds)
        assert counts(deliver(report(now=at, **full), at=at)) == (1, 0)
        assert Agent.objects.get().seen_at == at
    assert [model.objects.count() for model in (Node, Agent, Gpu, CheckResult, CheckChange, Batch)] == before
    assert CheckResult.objects.get().seen_at == seen


def test_unchanged_reports_cost_four_statements_for_any_number_of_nodes(east: Cluster, now: datetime) -> None:
    def batch() -> list[services.IncomingReport]:
        full = {"inventory": inventory(), "checks": (check(),)}
        return [incoming(east, report(now=now, node=f"gpu-{n}", **full), at=now) for n in range(50)]

    services.ingest(batch(), now=now)
    with CaptureQueriesContext(connection) as asked:
        services.ingest(batch(), now=now)
    kinds = [query["sql"].split()[0] for query in asked if "SAVEPOINT" not in query["sql"]]
    assert [kind for kind in kinds if kind not in ("BEGIN", "COMMIT")] == ["SELECT", "UPDATE", "SELECT"]


def test_a_result_that_stays_is_shown_as_fresh_after_a_while(deliver: Deliver, now: datetime) -> None:
    for minutes in (0, 30, 61, 130):
        at = now + timedelta(minutes=minutes)
        deliver(report(now=at, checks=(check(),)), at=at)
        row = CheckResult.objects.get()
        assert at - row.seen_at < timedelta(seconds=agent_reports.REFRESH_SECONDS)
        assert row.changed_at == now


def test_a_check_keeps_its_latest_result_and_its_moves(deliver: Deliver, now: datetime) -> None:
    said = [("pass", 0.0), ("pass", 1.0), ("fail", 9.0), ("fail", 8.0), ("pass", 0.0)]
    for step, (status, value) in enumerate(said):
        at = now + timedelta(minutes=step)
        deliver(report(now=at, checks=(check(status, value=value),)), at=at)
        row = CheckResult.objects.get()
        assert (row.status, row.value, row.seen_at) == (status, value, at)
    assert row.changed_at == now + timedelta(minutes=4)
    moves = list(CheckChange.objects.order_by("id").values_list("before", "status", "at"))
    assert moves == [("pass", "fail", now + timedelta(minutes=2)), ("fail", "pass", now + timedelta(minutes=4))]


def test_a_first_result_is_a_move_only_when_it_is_bad(deliver: Deliver, now: datetime) -> None:
    first = [check(status, name=status) for status in ("pass", "skipped", "warn", "error")]
    deliver(report(now=now, checks=tuple(first)))
    assert set(CheckChange.objects.values_list("before", "name")) == {("", "warn"), ("", "error")}


def test_the_last_result_of_a_check_in_one_report_counts(deliver: Deliver, now: datetime) -> None:
    assert counts(deliver(report(now=now, checks=(check("fail"), check("pass"))))) == (2, 0)
    assert CheckResult.objects.get().status == "pass"


def test_the_latest_inventory_replaces_the_one_before(deliver: Deliver, now: datetime) -> None:
    deliver(report(now=now, inventory=inventory(3)))
    kept = set(Gpu.objects.values_list("pk", flat=True))
    deliver(report(now=now, inventory=inventory(2, driver="590.1")))
    assert set(Gpu.objects.values_list("uuid", flat=True)) == {"GPU-0", "GPU-1"}
    assert set(Gpu.objects.values_list("pk", flat=True)) < kept
    assert Node.objects.get().driver == "590.1"
    deliver(report(now=now, inventory=inventory(0)))
    assert not Gpu.objects.exists()


def test_a_gpu_that_is_replaced_takes_its_results_along(deliver: Deliver, now: datetime) -> None:
    of = ("GPU-1", "gpu1", "gpu1 PCIe", "gpu10", "GPU-0", "")
    reported = tuple(Check(name="dcgm", status="fail", device=device) for device in of)
    deliver(report(now=now, inventory=inventory(2), checks=reported))
    deliver(report(now=now, inventory=inventory(1)))
    assert CheckResult.objects.count() == len(of)  # it may be a lost one
    deliver(report(now=now, inventory=inventory(2)))
    first, second = inventory(2).gpus
    other = Inventory(driver="580.1", kernel="6.8", gpus=(first, replace(second, uuid="GPU-9")))
    deliver(report(now=now, inventory=other, checks=(Check(name="dcgm", status="pass", device="GPU-9"),)))
    assert set(CheckResult.objects.values_list("device", flat=True)) == {"gpu10", "GPU-0", "", "GPU-9"}


def test_a_check_that_flaps_pushes_out_its_own_past_and_no_others(
    deliver: Deliver, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checks, "MAX_CHANGES", 10)
    deliver(report(node="gpu-2", now=now, checks=(check("fail"),)))
    deliver(report(now=now, checks=(check("fail"), check("warn", name="disk"))))
    for step in range(1, 26):
        reported = check("fail" if step % 2 else "pass", name="ping")
        deliver(report(now=now, checks=(reported,)), at=now + timedelta(minutes=step))
        assert CheckChange.objects.filter(node__name="gpu-1").count() <= 10
    kept = CheckChange.objects.filter(node__name="gpu-1").order_by("-pk")
    assert set(kept.exclude(name="ping").values_list("name", "status")) == {("remapped", "fail"), ("disk", "warn")}
    flaps = list(kept.filter(name="ping").values_list("at", flat=True))
    assert flaps == [now + timedelta(minutes=25 - ago) for ago in range(len(flaps))]
    assert len(flaps) >= 3
    assert CheckChange.objects.filter(node__name="gpu-2").count() == 1


def test_an_agent_that_makes_devices_up_keeps_a_bounded_number_of_moves(
    deliver: Deliver, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checks, "MAX_CHANGES", 10)
    for batch in range(5):
        reported = tuple(Check(name="ping", status="fail", device=f"h{batch}-{n}") for n in range(8))
        deliver(report(now=now, checks=reported), at=now + timedelta(seconds=batch))
        assert CheckChange.objects.count() <= 10
    assert CheckChange.objects.filter(device="h4-7").exists()


def test_a_node_keeps_a_bounded_number_of_results(
    deliver: Deliver, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checks, "MAX_RESULTS", 10)
    for batch in range(3):
        reported = tuple(Check(name="ping", status="fail", device=f"h{batch}-{n}") for n in range(8))
        deliver(report(now=now, checks=reported), at=now + timedelta(seconds=batch))
    devices = list(CheckResult.objects.order_by("pk").values_list("device", flat=True))
    assert devices == ["h1-0", "h1-1", *(f"h2-{n}" for n in range(8))]  # the latest


def test_results_that_are_no_longer_reported_are_deleted(deliver: Deliver, now: datetime) -> None:
    names = [("ping", "gone"), ("dcgm", ""), ("dcgm", "gpu1 PCIe"), ("dcgm", "gpu7 PCIe"), ("gpumem", "GPU-7")]
    reported = tuple(Check(name=name, status="fail", device=device) for name, device in names)
    deliver(report(now=now, inventory=inventory(2), checks=reported))
    later = now + timedelta(days=1, minutes=1)
    deliver(report(now=later), at=later)
    assert stored_checks.prune() == 0
    later += stored_checks.RESULT_RETENTION
    deliver(report(now=later), at=later)
    assert stored_checks.prune() == 3
    assert set(CheckResult.objects.values_list("name", "device")) == {("dcgm", ""), ("dcgm", "gpu1 PCIe")}


def test_inv_02_a_repeated_batch_changes_nothing(deliver: Deliver, now: datetime) -> None:
    sent = [
        report(xid(), now=now),
        report(now=now, checks=(check("fail"), check(name="power"))),
        report(xid(62), now=now, checks=(check("pass"),), inventory=inventory()),
        report(now=now, inventory=inventory(1)),
    ]
    items = [len(one.faults) + len(one.checks) for one in sent]
    assert [counts(deliver(one)) for one in sent] == [(count, 0) for count in items]

    def state() -> list[object]:
        rows = Incident.objects, CheckResult.objects, CheckChange.objects, Gpu.objects, Batch.objects
        return [list(row.order_by("pk").values()) for row in rows]

    before = state()
    assert [counts(deliver(one)) for one in reversed(sent)] == [(0, count) for count in reversed(items)]
    assert [counts(deliver(one)) for one in sent[:2]] == [(0, 1), (0, 2)]
    assert state() == before


def test_a_batch_with_faults_is_recognized_after_many_others(deliver: Deliver, now: datetime) -> None:
    first = report(xid(), now=now)
    deliver(first)
    for _ in range(3 * agent_reports.REMEMBERED_BATCHES):
        deliver(report(now=now, checks=(check(),)))
    assert counts(deliver(first)) == (0, 1)


def test_reports_of_one_node_in_one_batch_are_taken_in_their_order(east: Cluster, now: datetime) -> None:
    again = report(xid(), now=now)
    sent = [
        report(now=now, checks=(check("fail"),)),
        again,
        report(now=now, node="gpu-2"),
        report(now=now, checks=(check("pass"),)),
        again,
        report(now=now, boot_id="boot-2"),
    ]
    answers = services.ingest([incoming(east, one, at=now) for one in sent], now=now)
    assert [counts(one) for one in answers] == [(1, 0), (1, 0), (0, 0), (1, 0), (0, 1), (0, 0)]
    assert CheckResult.objects.get().status == "pass"
    assert Agent.objects.get(node__name="gpu-1").boot_id == "boot-2"
    assert Incident.objects.get().count == 1


def test_a_boot_is_dated_by_its_first_report(deliver: Deliver, now: datetime) -> None:
    later, last = now + timedelta(minutes=1), now + timedelta(minutes=2)
    deliver(report(now=now))
    deliver(report(now=later), at=later)
    assert Agent.objects.get().boot_seen_at == now
    deliver(report(now=last, boot_id="boot-2", agent="1.1.0"), at=last)
    agent = Agent.objects.get()
    assert (agent.boot_id, agent.boot_seen_at, agent.version) == ("boot-2", last, "1.1.0")


def test_commands_are_offered_and_settled_by_the_batch(east: Cluster, deliver: Deliver, now: datetime) -> None:
    deliver(report(now=now))
    deliver(report(now=now, node="gpu-2"))
    node = Node.objects.get(name="gpu-1")
    later = now + timedelta(hours=1)
    command = fleet.ask_agent(node, "run_check", key="k", args={}, expires_at=later, now=now)
    sent = [report(now=now, node=name) for name in ("gpu-2", "gpu-1")]
    other, mine = services.ingest([incoming(east, one, at=now) for one in sent], now=now)
    assert (other.commands, [one.id for one in mine.commands]) == ((), [str(command.pk)])
    result = CommandResult(id=str(command.pk), status="done")
    sent = [report(now=now, node=name, command_results=(result,)) for name in ("gpu-2", "gpu-1")]
    answers = services.ingest([incoming(east, one, at=now) for one in sent], now=now)
    assert [one.commands for one in answers] == [(), ()]
    assert Command.objects.get().state == "done"


def test_nodes_of_one_name_in_two_clusters_are_two(east: Cluster, now: datetime) -> None:
    west = Cluster.objects.create(name="west", created_at=now)
    services.ingest([incoming(of, report(xid(), now=now), at=now) for of in (east, west)], now=now)
    assert set(Incident.objects.values_list("cluster__name", "count")) == {("east", 1), ("west", 1)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_inv_02_the_same_batches_at_once_count_once(now: datetime) -> None:
    east = Cluster.objects.create(name="east", created_at=now)
    names = [f"gpu-{n}" for n in range(20)]
    known = [report(now=now, node=name) for name in names[:10]]
    services.ingest([incoming(east, one, at=now) for one in known], now=now)
    faults = [report(xid(), now=now, node=name) for name in names]
    checks = [report(now=now, node=name, checks=(check(),), batch_id=str(uuid.uuid4())) for name in names]
    start = Barrier(4)

    def act(number: int) -> list[tuple[int, int]]:
        sent = [incoming(east, one, at=now) for one in faults + checks]
        start.wait(60)
        try:
            for _ in range(3):  # two that introduce the same nodes may stop each other; the door then tries them singly
                try:
                    return [counts(one) for one in services.ingest(sent[:: 1 if number % 2 else -1], now=now)]
                except Exception as error:
                    failed = error
            raise failed
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        reported = list(pool.map(act, range(4)))
    assert sum(accepted for one in reported for accepted, _ in one) == 40
    assert Incident.objects.count() == 20
    assert {one.count for one in Incident.objects.all()} == {1}


def test_rows_are_deleted_after_their_retention(deliver: Deliver, now: datetime, settings: pytest.Config) -> None:
    settings.KCOVER_KEEP_DAYS = 30
    deliver(report(xid(), now=now, checks=(check("fail"),)))
    deliver(report(xid(62), now=now))
    gone = Incident.objects.get(code="79")
    services.close([gone.pk], because=reasons.of("closed_by_because", by="test", why="t"), actor="t", now=now)
    services.prune(now=now + timedelta(days=29))
    assert (Occurrence.objects.count(), CheckChange.objects.count(), Batch.objects.count()) == (2, 1, 0)
    services.prune(now=now + timedelta(days=31))
    assert list(Occurrence.objects.values_list("incident__code", flat=True)) == ["62"]
    assert not CheckChange.objects.exists()
    assert Incident.objects.count() == 2


def test_a_gpu_that_the_driver_gave_up_without_an_xid_is_degraded(deliver: Deliver, now: datetime) -> None:
    lines = [Fault(kind="other", code=code, pci="0000:5d:00.0", message="x") for code in ("gpu_lost", "mce")]
    deliver(report(*lines, now=now))
    found = Incident.objects.values_list("code", "device", "severity", "is_user_fault")
    assert set(found) == {
        ("gpu_lost", "0000:5d:00", "degraded", False),
        ("mce", "0000:5d:00", "warning", False),
    }
