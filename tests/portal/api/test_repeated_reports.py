"""Repeated reports at the agents' API are answered and kept like the first, and only news is written."""

import gzip
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app, report_decoder
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, CheckChange, CheckResult, Cluster, Command, Gpu as GpuRow, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from tests.portal.api.door import Answer, Door, check, encoded, fault, moment, report

GPUS = [{"index": 0, "uuid": "GPU-1"}, {"index": 1, "uuid": "GPU-2"}]
FULL = {"inventory": {"driver": "580.1", "kernel": "6.8", "gpus": GPUS}, "checks": [check(), check(device="GPU-2")]}


@pytest.fixture
def cluster(now: datetime, transactional_db: None) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def door(cluster: Cluster) -> Door:
    return door_of(cluster, "gpu-1")


def door_of(cluster: Cluster, node: str) -> Door:
    return Door(accounts.make_token("agent", cluster=cluster, node=node, created_by="test", now=datetime.now(UTC))[1])


def counts(answer: Answer) -> tuple[int, int, int]:
    assert answer.status == 202, answer.body
    return answer.body["accepted"], answer.body["duplicates"], len(answer.body["rejected"])


def test_a_repeated_report_is_answered_as_the_first_was(door: Door) -> None:
    for number in range(4):
        body = encoded(report(**FULL, sent_at=moment(timedelta(seconds=-100 * number))))
        assert counts(door.report(gzip.compress(body), Content_Encoding="gzip")) == (2, 0, 0)
        assert Agent.objects.get().skew == pytest.approx(-100 * number, abs=50)
    assert (GpuRow.objects.count(), CheckResult.objects.count(), CheckChange.objects.count()) == (2, 2, 0)


def test_inv_02_a_repeated_report_that_is_sent_twice_is_counted_as_repeated(door: Door) -> None:
    door.report(report(**FULL))
    batch = str(uuid.uuid4())
    assert counts(door.report(report(**FULL, batch_id=batch))) == (2, 0, 0)
    assert counts(door.report(report(**FULL, batch_id=batch.upper()))) == (0, 2, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"checks": [check(status="fail"), check(device="GPU-2")]},
        {"inventory": {"driver": "581", "kernel": "6.8", "gpus": GPUS}},
        {"boot_id": "another"},
        {"agent": "1.0.1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_in_a_repeated_report_is_stored(door: Door, change: dict[str, Any]) -> None:
    def known() -> tuple[Any, ...]:
        agent = Agent.objects.select_related("node").get()
        statuses = [*CheckResult.objects.order_by("device").values_list("status", flat=True)]
        return agent.boot_id, agent.version, agent.node.driver, statuses

    door.report(report(**FULL))
    before = known()
    door.report(report(**(FULL | change)))
    assert known() != before
    door.report(report(**FULL))  # the same as the report before the last is news
    assert known() == before


def test_a_repeated_report_corrects_a_row_that_another_process_changed(door: Door, cluster: Cluster) -> None:
    door.report(report(**FULL))
    at = datetime.now(UTC) + timedelta(seconds=1)
    changed = report(**(FULL | {"checks": [check(status="fail")], "inventory": {"driver": "1"}}))
    incidents.ingest([report_decoder.read(cluster, encoded(changed), now=at)], now=at)
    assert CheckResult.objects.get(device="GPU-1").status == "fail"
    assert not GpuRow.objects.exists()
    assert counts(door.report(report(**FULL))) == (2, 0, 0)
    assert CheckResult.objects.get(device="GPU-1").status == "pass"
    assert (GpuRow.objects.count(), Node.objects.get().driver) == (2, "580.1")


def test_results_that_are_repeated_for_hours_are_shown_as_fresh(cluster: Cluster, now: datetime) -> None:
    for hours in range(4):
        at = now + timedelta(hours=hours)
        incidents.ingest([report_decoder.read(cluster, encoded(report(**FULL)), now=at)], now=at)
        assert CheckResult.objects.get(device="GPU-1").seen_at == at


def test_within_the_hour_a_repeated_report_writes_no_result(door: Door, now: datetime) -> None:
    door.report(report(**FULL))
    CheckResult.objects.update(seen_at=now)
    door.report(report())
    door.report(report(**FULL))
    assert set(CheckResult.objects.values_list("seen_at", flat=True)) == {now}


def test_each_repeated_report_reports_its_invalid_items(door: Door) -> None:
    for _ in range(3):
        assert counts(door.report(report(checks=[check(), {"name": "x"}]))) == (1, 0, 1)


def test_each_fault_counts_and_each_result_of_a_command_arrives(door: Door) -> None:
    for _ in range(3):
        assert counts(door.report(report(fault()))) == (1, 0, 0)
    assert Incident.objects.get().count == 3
    now = datetime.now(UTC)
    for _ in range(2):
        more = {"args": {}, "expires_at": now + timedelta(minutes=1), "now": now}
        command = fleet.ask_agent(Node.objects.get(), "run_check", key=str(uuid.uuid4()), **more)
        door.report(report(command_results=[{"id": str(command.pk), "status": "done"}]))
        assert Command.objects.get(pk=command.pk).state == "done"


def test_inv_47_a_report_cannot_be_repeated_by_another_node(door: Door, cluster: Cluster) -> None:
    body = report(**FULL)
    door.report(body)
    other = door_of(cluster, "gpu-2")
    for _ in range(2):
        assert "belongs to node gpu-2" in other.report(body | {"batch_id": str(uuid.uuid4())}).problem(403)
    assert not Node.objects.filter(name="gpu-2").exists()


def test_an_invalid_repeated_report_is_refused_each_time(door: Door) -> None:
    for _ in range(2):
        assert "sent_at: must be a time" in door.report(report(**FULL, sent_at="now")).problem(400)
