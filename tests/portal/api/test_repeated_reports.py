"""Reports that say what their node's last one said are not read again, and nobody can tell."""

import gzip
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.outbox import reports
from kcover import wire
from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app, repeated_reports
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, CheckChange, CheckResult, Cluster, Command, Gpu, Node
from kcover_portal.fleet.services import agent_reports
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from tests.portal.api.door import Answer, Door, check, encoded, fault, moment, report

pytestmark = pytest.mark.django_db(transaction=True)

GPUS = [{"index": 0, "uuid": "GPU-1"}, {"index": 1, "uuid": "GPU-2"}]
FULL = {"inventory": {"driver": "580.1", "kernel": "6.8", "gpus": GPUS}, "checks": [check(), check(device="GPU-2")]}


@pytest.fixture
def cluster(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture(autouse=True)
def _nobody_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the tokens and the reports of the test before."""
    app.known_credentials.forget()
    monkeypatch.setattr(app, "known_reports", repeated_reports.Repeats())


@pytest.fixture
def door(cluster: Cluster) -> Door:
    return door_of(cluster, "gpu-1")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that are read whole."""
    found: list[bytes] = []
    decode = wire.decode

    def note(body: bytes) -> wire.Decoded:
        found.append(body)
        return decode(body)

    monkeypatch.setattr(wire, "decode", note)
    return found


def door_of(cluster: Cluster, node: str) -> Door:
    return Door(accounts.make_token("agent", cluster=cluster, node=node, created_by="test", now=datetime.now(UTC))[1])


def counts(answer: Answer) -> tuple[int, int, int]:
    assert answer.status == 202, answer.body
    return answer.body["accepted"], answer.body["duplicates"], len(answer.body["rejected"])


def test_a_repeated_report_is_answered_as_the_first_was_and_not_read(door: Door, read: list[bytes]) -> None:
    for number in range(4):
        body = encoded(report(**FULL, sent_at=moment(timedelta(seconds=-100 * number))))
        assert counts(door.report(gzip.compress(body), Content_Encoding="gzip")) == (2, 0, 0)
        assert Agent.objects.get().skew == pytest.approx(-100 * number, abs=50)
        assert len(read) == 1
    assert (Gpu.objects.count(), CheckResult.objects.count(), CheckChange.objects.count()) == (2, 2, 0)


def test_a_heartbeat_that_says_nothing_more_is_not_read_either(door: Door, read: list[bytes]) -> None:
    for _ in range(3):
        assert counts(door.report(report())) == (0, 0, 0)
    assert len(read) == 1


def test_inv_02_a_repeated_report_that_is_sent_twice_is_told_as_such(door: Door) -> None:
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
def test_whatever_changes_is_read_and_kept(door: Door, read: list[bytes], change: dict[str, Any]) -> None:
    def known() -> tuple[Any, ...]:
        agent = Agent.objects.select_related("node").get()
        statuses = [*CheckResult.objects.order_by("device").values_list("status", flat=True)]
        return agent.boot_id, agent.version, agent.node.driver, statuses

    door.report(report(**FULL))
    before = known()
    door.report(report(**(FULL | change)))
    after = known()
    assert before != after
    assert len(read) == 2
    door.report(report(**FULL))  # what it said before the last is no repetition
    assert known() == before
    assert len(read) == 3


def test_what_another_process_heard_meanwhile_is_put_right_by_a_repeated_report(door: Door, cluster: Cluster) -> None:
    door.report(report(**FULL))
    other = wire.decode(encoded(report(**(FULL | {"checks": [check(status="fail")], "inventory": {"driver": "1"}}))))
    incidents.ingest(
        [incidents.Delivery(cluster=cluster, node="gpu-1", decoded=other)], now=datetime.now(UTC) + timedelta(seconds=1)
    )
    assert CheckResult.objects.get(device="GPU-1").status == "fail"
    assert not Gpu.objects.exists()
    assert counts(door.report(report(**FULL))) == (2, 0, 0)
    assert CheckResult.objects.get(device="GPU-1").status == "pass"
    assert (Gpu.objects.count(), Node.objects.get().driver) == (2, "580.1")


def test_results_that_are_repeated_for_hours_are_shown_as_fresh(cluster: Cluster, now: datetime) -> None:
    repeats = repeated_reports.Repeats()
    credential = Credential("digest", cluster, "gpu-1", None)
    for hours in range(4):
        at = now + timedelta(hours=hours)
        incidents.ingest([repeats.read(credential, encoded(report(**FULL)))], now=at)
        assert CheckResult.objects.get(device="GPU-1").seen_at == at


def test_what_is_wrong_in_a_report_is_told_each_time(door: Door) -> None:
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


def test_inv_47_nobody_repeats_what_another_node_said(door: Door, cluster: Cluster) -> None:
    body = report(**FULL)
    door.report(body)
    other = door_of(cluster, "gpu-2")
    for _ in range(2):
        assert "belongs to node gpu-2" in other.report(body | {"batch_id": str(uuid.uuid4())}).problem(403)
    assert not Node.objects.filter(name="gpu-2").exists()


def test_a_repeated_report_that_cannot_be_read_says_why_each_time(door: Door) -> None:
    for _ in range(2):
        assert "sent_at: must be a time" in door.report(report(**FULL, sent_at="now")).problem(400)


def test_of_too_many_nodes_the_first_are_forgotten_and_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, read: list[bytes]
) -> None:
    monkeypatch.setattr(repeated_reports, "MAX_REMEMBERED_NODES", 2)
    repeats = repeated_reports.Repeats()
    tell = [(Credential(f"digest-{n}", cluster, f"gpu-{n}", None), report(node=f"gpu-{n}")) for n in range(3)]
    told = [repeats.read(credential, encoded(body)).digest for credential, body in [*tell, *tell[1:]]]
    assert len(read) == 3
    told.append(repeats.read(tell[0][0], encoded(tell[0][1])).digest)
    assert len(read) == 4
    assert len(set(told)) == 1


def test_a_pod_with_a_new_token_is_known_again(cluster: Cluster, read: list[bytes]) -> None:
    repeats = repeated_reports.Repeats()
    for number in range(3):
        repeats.read(Credential(f"digest-{number}", cluster, "gpu-1", None), encoded(report(**FULL)))
    assert len(read) == 1


def test_the_heartbeats_of_our_own_agents_are_known_again(cluster: Cluster, read: list[bytes], now: datetime) -> None:
    repeats = repeated_reports.Repeats()
    credential = Credential("digest", cluster, "gpu-1", None)
    for seconds in range(3):
        at = now + timedelta(seconds=seconds, microseconds=seconds)
        sent = reports.heartbeat("gpu-1", boot_id="boot-1", inventory=None, results=(), now=at)
        assert repeats.read(credential, sent.body).decoded.report.sent_at == at
    assert len(read) == 1


def test_within_the_hour_a_repeated_report_writes_no_result(door: Door, now: datetime) -> None:
    door.report(report(**FULL))
    CheckResult.objects.update(seen_at=now)
    door.report(report())
    door.report(report(**FULL))
    assert set(CheckResult.objects.values_list("seen_at", flat=True)) == {now}


def test_a_report_that_is_read_whole_late_is_read_from_its_own_body(cluster: Cluster, now: datetime) -> None:
    """The digests of the row decide, not what this process remembers."""
    repeats = repeated_reports.Repeats()
    credential = Credential("digest", cluster, "gpu-1", None)
    first, second = (repeats.read(credential, encoded(report(**FULL))) for _ in range(2))
    incidents.ingest([second], now=now)  # the first was never kept
    assert (Gpu.objects.count(), CheckResult.objects.count()) == (2, 2)
    assert first.digest == second.digest == agent_reports.digest_of(first.decoded.report)
