"""The audit stream: each sink gets every record in order, whatever fails, and nothing is lost."""

import itertools
import json
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.audit_stream import queries, senders, services
from kcover_portal.audit_stream.models import Position, Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.senders import syslog as syslog_sender
from kcover_portal.audit_stream.services import delivery
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.operate import health, metrics
from kcover_portal.runtime.models import Lease
from kcover_portal.runtime.services import leases
from tests.portal.audit_stream.conftest import SECRET, SyslogServer, tell
from tests.portal.notify.receiver import Receiver

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def folder(tmp_path: Path, settings) -> Path:
    settings.KCOVER_AUDIT_FOLDER = tmp_path / "audit"
    return tmp_path / "audit"


def made(kind: str, address: str, *, now: datetime, whole: bool = False, name: str = "siem") -> Sink:
    given = {"address": address} | ({"secret": SECRET} if kind == "webhook" else {})
    return services.SINKS.make(Sink(name=name, kind=kind), {**given, "whole": whole}, actor="user:ada", now=now)


def at(moment: datetime) -> Callable[[], datetime]:
    return lambda: moment


def deliver(sink: Sink, now: datetime) -> int:
    return services.deliver(sink.pk, clock=at(now))


def subjects(records: list[dict[str, Any]], *, of: str = "password.changed") -> list[str]:
    return [record["subject"] for record in records if record["verb"] == of]


def test_a_new_sink_gets_later_entries_and_with_whole_all_entries(folder: Path, now: datetime) -> None:
    tell("c1", "old", now=now)
    new, everything = made("file", "new.jsonl", now=now), made("file", "all.jsonl", now=now, whole=True, name="all")
    tell("c1", "one", "two", now=now)
    tell("c2", "three", now=now)  # a chain that did not exist
    for sink in (new, everything):
        assert deliver(sink, now) > 0
        assert deliver(sink, now) == 0
    lines = [json.loads(line) for line in (folder / "new.jsonl").read_text().splitlines()]
    assert subjects(lines) == ["user one", "user two", "user three"]
    assert subjects(lines, of="audit_sink.created") == ["audit sink siem", "audit sink all"]
    whole = [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]
    assert subjects(whole) == ["user old", "user one", "user two", "user three"]
    assert {record["id"] for record in whole} == {f"audit/{e.cluster}/{e.sequence}" for e in Entry.objects.all()}
    entry = Entry.objects.get(cluster="c2")
    assert whole[-1] == {"topic": "audit", "id": "audit/c2/1", **ledger.content(entry), "digest": entry.digest}


def test_syslog_by_tcp_is_rfc_5424_with_octet_counting(syslog: SyslogServer, now: datetime) -> None:
    sink = made("syslog", syslog.address, now=now)
    tell("c1", "ärger", now=now)
    deliver(sink, now)
    assert subjects(syslog.records()) == ["user ärger"]
    priority, moment, _host, program, process, topic, data, _text = syslog.messages[-1].split(b" ", 7)
    assert (priority, program, process, topic, data) == (b"<110>1", b"kcover-portal", b"-", b"audit", b"-")
    assert datetime.fromisoformat(moment.decode()) == now


def test_a_broken_syslog_connection_loses_no_entry(syslog: SyslogServer, now: datetime) -> None:
    sink = made("syslog", syslog.address, now=now, whole=True)
    tell("c1", *(f"n{n}" * 50 for n in range(100)), now=now)
    syslog.breaks = 1
    assert deliver(sink, now) == 0
    sink.refresh_from_db()
    assert (sink.why and sink.why.code, sink.attempts) == ("syslog_connection_reset", 1)
    later = now + timedelta(seconds=2)
    assert deliver(sink, later) == 101
    assert len({record["id"] for record in syslog.records()}) == 101


def test_a_syslog_server_that_never_closes_has_not_confirmed(now: datetime, settings) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts in its backlog, reads nothing
        to = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(senders.DeliveryError) as raised:
            syslog_sender.send(to, [(now, "audit", "{}")], seconds=0.2)
    assert raised.value.reason.code == "syslog_not_closed"


def test_syslog_by_udp(now: datetime, settings) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        sink = made("syslog", f"udp://127.0.0.1:{receiver.getsockname()[1]}", now=now)
        deliver(sink, now)
        assert b"audit_sink.created" in receiver.recv(65536)


def test_a_webhook_is_signed_and_its_refusal_delays_the_next_attempt(web: Receiver, now: datetime) -> None:
    sink = made("webhook", f"{web.url}?key=hush", now=now)
    web.statuses, web.more_headers = [503], {"Retry-After": "120"}
    assert deliver(sink, now) == 0
    sink.refresh_from_db()
    assert (sink.why and sink.why.code, sink.due_at) == ("sink_refused", now + timedelta(seconds=120))
    assert "hush" not in str(sink.problem)
    assert services.deliver(sink.pk, clock=at(now + timedelta(seconds=119))) == 0
    assert len(web.bodies) == 1
    web.statuses = [204]
    assert deliver(sink, now + timedelta(seconds=120)) == 1
    assert web.signed[-1]
    document = web.asked[-1]
    assert (document["version"], document["sink"]) == (1, "siem")
    assert [record["verb"] for record in document["records"]] == ["audit_sink.created"]
    sink.refresh_from_db()
    assert (sink.attempts, sink.failures, sink.sent, sink.problem) == (0, 1, 1, {})


def test_failures_back_off_up_to_five_minutes(now: datetime, folder: Path) -> None:
    sink = made("file", "audit.jsonl", now=now)
    folder.write_text("a file in place of the folder")
    waits = []
    for _ in range(10):
        deliver(sink, now)
        sink.refresh_from_db()
        waits.append(int((sink.due_at - now).total_seconds()))
        now = sink.due_at
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    folder.unlink()
    assert deliver(sink, now) == 1


def test_a_worker_that_dies_before_the_commit_delivers_twice(syslog: SyslogServer, now: datetime) -> None:
    sink = made("syslog", syslog.address, now=now)
    tell("c1", "one", "two", now=now)
    fresh = Sink.objects.get(pk=sink.pk)
    senders.send(fresh, queries.batch(fresh), now=now)  # a worker that was killed after this line moves no position
    later = now + delivery.LEASE_TIME
    tell("c1", "three", now=later)
    deliver(sink, later)
    assert subjects(syslog.records()) == ["user one", "user two", "user one", "user two", "user three"]
    assert Position.objects.get(part="c1").number == 3


def test_a_position_never_moves_back(folder: Path, now: datetime) -> None:
    sink = made("file", "audit.jsonl", now=now)
    tell("c1", "one", now=now)
    first = queries.batch(Sink.objects.get(pk=sink.pk))
    tell("c1", "two", now=now)
    deliver(sink, now)
    delivery.received(sink, first, sent=1, now=now)  # a worker that lost its lease is late
    assert Position.objects.get(part="c1").number == 2


def test_one_worker_at_a_time_serves_a_sink(folder: Path, now: datetime) -> None:
    sink = made("file", "audit.jsonl", now=now)
    leases.acquire(f"audit stream {sink.pk}", holder="another", until=now + delivery.LEASE_TIME, now=now)
    assert deliver(sink, now) == 0
    assert deliver(sink, now + delivery.LEASE_TIME) == 1


def test_a_worker_keeps_the_sink_from_batch_to_batch(
    folder: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_BYTES", 1)  # a record in each batch
    sink, times = made("file", "audit.jsonl", now=now), itertools.count()
    tell("c1", *map(str, range(delivery.BATCHES_PER_TASK)), now=now)
    others: list[bool] = []

    def clock() -> datetime:
        """Ten seconds pass with each look at it, and another worker tries to get the sink each time."""
        at = now + next(times) * timedelta(seconds=10)
        if at > now:
            others.append(leases.acquire(f"audit stream {sink.pk}", holder="another", until=at + HOUR, now=at))
        return at

    assert services.deliver(sink.pk, clock=clock) == delivery.BATCHES_PER_TASK
    assert len(others) * timedelta(seconds=10) > 2 * delivery.LEASE_TIME
    assert not any(others)


def test_a_worker_whose_sink_another_has_taken_sends_no_more(
    folder: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_BYTES", 1)
    sink, after = made("file", "audit.jsonl", now=now), now + delivery.LEASE_TIME
    tell("c1", "one", "two", now=now)
    others = {"name": f"audit stream {sink.pk}", "holder": "another", "until": after + HOUR}

    def clock() -> datetime:
        """The first send takes as long as the lease, and another worker has the sink when it is over."""
        if not (folder / "audit.jsonl").exists():
            return now
        assert leases.acquire(**others, now=after)
        return after

    assert services.deliver(sink.pk, clock=clock) == 1
    assert len((folder / "audit.jsonl").read_text().splitlines()) == 1
    assert Lease.objects.filter(**others).exists()


def test_a_long_backlog_is_read_in_batches_and_every_chain_gets_its_share(folder: Path, now: datetime) -> None:
    sink = made("file", "audit.jsonl", now=now)
    tell("c1", *map(str, range(20)), now=now)
    tell("c2", "late", now=now + timedelta(seconds=1))
    batch = queries.batch(Sink.objects.get(pk=sink.pk), most=6)
    assert [(record.part, record.number) for record in batch] == [("", 1), ("c1", 1), ("c1", 2), ("c2", 1)]


def test_a_batch_is_bounded_in_bytes(folder: Path, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = made("file", "audit.jsonl", now=now)
    tell("c1", "one", "two", now=now)
    monkeypatch.setattr(queries, "MAX_BYTES", 1)
    assert len(queries.batch(Sink.objects.get(pk=sink.pk))) == 1


def test_a_disabled_sink_keeps_its_place(folder: Path, now: datetime) -> None:
    sink = made("file", "audit.jsonl", now=now)
    services.SINKS.change(sink, {"enabled": False}, actor="user:ada", reason="moved", now=now)
    tell("c1", "one", now=now)
    assert deliver(sink, now) == 0
    assert [due.name for due in queries.due(now=now)] == []
    services.SINKS.change(sink, {"enabled": True}, actor="user:ada", reason="back", now=now)
    assert [due.name for due in queries.due(now=now)] == ["siem"]
    assert deliver(sink, now) == 4


def test_a_lagging_sink_shows_in_readiness_and_metrics(folder: Path, now: datetime) -> None:
    sink = made("file", "audit.jsonl", now=now)
    assert not [each for each in health.findings(now=now) if each.name == "audit sink siem"]
    later = now + queries.LAG_LATE + timedelta(seconds=1)
    (found,) = [each for each in health.findings(now=later) if each.name == "audit sink siem"]
    assert (found.well, found.needed) == (False, False)
    text = metrics.render().decode()
    assert 'kcover_audit_stream_behind{sink="siem"} 1.0' in text
    assert 'kcover_audit_stream_failing{sink="siem"} 0.0' in text
    deliver(sink, later)
    assert not [each for each in health.findings(now=later) if each.name == "audit sink siem"]
    assert 'kcover_audit_stream_records_total{sink="siem"} 1.0' in metrics.render().decode()


def test_another_app_can_add_a_topic(folder: Path, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [topics.Record(topic="probe", part="x", number=n, at=now, document={"n": n}) for n in range(1, 4)]
    monkeypatch.setattr(topics, "TOPICS", dict(topics.TOPICS))
    topics.register(
        topics.Topic(
            name="probe", heads=lambda: {"x": 3}, read=lambda _part, after, most: records[after : after + most]
        )
    )
    sink = made("file", "audit.jsonl", now=now)
    services.SINKS.change(sink, {"topics": ["audit", "probe"]}, actor="user:ada", reason="", now=now)
    deliver(sink, now)
    assert '"topic":"probe"' not in (folder / "audit.jsonl").read_text()  # an added topic begins now
    records.append(topics.Record(topic="probe", part="x", number=4, at=now, document={"n": 4}))
    topics.register(topics.Topic(name="probe", heads=lambda: {"x": 4}, read=lambda _p, after, most: records[after:]))
    deliver(sink, now)
    last = json.loads((folder / "audit.jsonl").read_text().splitlines()[-1])
    assert last == {"topic": "probe", "id": "probe/x/4", "n": 4}
