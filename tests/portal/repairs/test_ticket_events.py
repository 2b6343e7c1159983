"""What ticket systems are told: each act on a repair in order, signed, over HTTP, and again after a failure."""

import io
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.core.management import call_command

from kcover.repairs.repairs import Move
from kcover_portal.audit_stream import services as sinks
from kcover_portal.audit_stream.models import Sink
from kcover_portal.fleet.models import Hardware, Node
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import services
from kcover_portal.repairs.models import TicketEvent
from tests.portal.notify.receiver import Receiver
from tests.portal.repairs.conftest import Report, add_validation

pytestmark = pytest.mark.django_db
SECRET = "a secret of some length"
HOUR = timedelta(hours=1)


@pytest.fixture
def web(settings) -> Iterator[Receiver]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Receiver(SECRET)
    yield made
    made.stop()


@pytest.fixture
def sink(web: Receiver, db: None, now: datetime) -> Sink:
    given = {"address": web.url, "secret": SECRET, "topics": ["tickets"]}
    return sinks.SINKS.make(Sink(name="acme", kind="webhook"), given, actor="user:ada", now=now)


def test_a_ticket_system_follows_a_repair(sink: Sink, web: Receiver, node: Node, report: Report, now: datetime) -> None:
    Hardware.objects.create(node=node, machine_serial="M1", changed_at=now)
    Node.objects.filter(pk=node.pk).update(labels={"topology.kubernetes.io/rack": "r7"})
    row = report(Move.ACCEPT, Move.HAND_OVER, vendor="ACME", ticket="RMA-7")
    services.change(row, {"queue": "rma"}, actor="user:ann", reason="agreed", now=now + HOUR)
    web.statuses = [503, 200]
    assert sinks.deliver(sink.pk, clock=lambda: now + HOUR) == 0
    services.act(row, Move.RETURN, {"part_serial": "S-new"}, actor="user:bob", reason="back", now=now + HOUR)
    add_validation(node, at=now + 2 * HOUR, serial="M1")
    services.act(row, Move.CLOSE, actor="user:bob", reason="done", now=now + 3 * HOUR)
    assert sinks.deliver(sink.pk, clock=lambda: now + 4 * HOUR) == 6
    assert sinks.deliver(sink.pk, clock=lambda: now + 5 * HOUR) == 0

    assert (len(web.asked), web.signed) == (2, [True, True])
    assert [one["id"] for one in web.asked[0]["records"]] == [f"tickets/c1/{number}" for number in range(1, 5)]
    records = web.asked[1]["records"]
    assert [(one["event"], one["state"]) for one in records] == [
        ("open", "reported"),
        ("update", "accepted"),
        ("update", "in_repair"),
        ("update", "in_repair"),
        ("update", "returned"),
        ("close", "closed"),
    ]
    assert [one["id"] for one in records] == [f"tickets/c1/{number}" for number in range(1, 7)]
    handed = records[2]
    assert handed["machine"] == {
        "serial": "M1",
        "cluster": "c1",
        "node": "gpu-1",
        "rack": "r7",
        "handover_at": node.created_at.isoformat(),
    }
    assert (handed["hardware_id"], handed["vendor"], handed["ticket"]) == ("gpu:S-gpu-1", "ACME", "RMA-7")
    assert datetime.fromisoformat(handed["updated_at"]) == datetime.fromisoformat(handed["in_repair_at"]) == now
    assert (handed["closed_at"], datetime.fromisoformat(records[5]["closed_at"])) == (None, now + 3 * HOUR)
    assert (records[3]["queue"], records[3]["reason"]) == ("rma", "agreed")
    assert (records[4]["part"]["serial"], records[4]["removed_serial"]) == ("S-new", "S-gpu-1")


def test_a_sink_can_be_limited_to_vendors(sink: Sink, web: Receiver, report: Report, now: datetime) -> None:
    sinks.SINKS.change(sink, {"options": {"vendors": "ACME; Beta Inc."}}, actor="user:ada", reason="", now=now)
    row = report(Move.ACCEPT, vendor="Other", assignee="ann")
    assert sinks.deliver(sink.pk, clock=lambda: now) == 2
    sink.refresh_from_db()
    assert (web.asked, sink.sent, sink.sent_at) == ([], 0, None)  # passed over, and not shown as received
    for vendor in ("ACME", "Beta Inc.", "Third"):
        services.change(row, {"vendor": vendor, "ticket": f"{vendor}-1"}, actor="user:ann", reason="moved", now=now)
    assert sinks.deliver(sink.pk, clock=lambda: now) == 3
    got = [one for body in web.asked for one in body["records"]]
    told = ("event", "vendor", "former_vendor", "ticket", "assignee", "reason")
    assert [tuple(one[name] for name in told) for one in got] == [
        ("update", "ACME", "", "ACME-1", "ann", "moved"),
        ("update", "Beta Inc.", "ACME", "Beta Inc.-1", "ann", "moved"),
        ("withdraw", "", "Beta Inc.", "", "", ""),  # the last that Beta hears: nothing of the third
    ]
    services.act(row, Move.HAND_OVER, actor="user:bob", reason="gone", now=now)
    assert sinks.deliver(sink.pk, clock=lambda: now) == 1
    assert len(web.asked) == 1
    for given, field, code in (
        ({"options": {"vendors": "ACME;\x07"}}, "options", "repair_name_invalid"),
        ({"topics": ["audit", "tickets"]}, "topics", "sink_vendors_topics"),  # it tells of all vendors
    ):
        with pytest.raises(FieldError) as refused:
            sinks.SINKS.change(sink, given, actor="user:ada", reason="", now=now)
        assert (refused.value.field, refused.value.reason.code) == (field, code)


def test_a_sink_is_added_by_a_command(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    call_command("audit_stream", "add", "acme", kind="webhook", address="https://acme.example/in", topic=["tickets"])
    assert Sink.objects.get().topics == ["tickets"]


def test_the_numbers_of_a_cluster_have_no_gaps(report: Report, node: Node, now: datetime) -> None:
    row = report(Move.ACCEPT)
    with pytest.raises(services.RepairRefused):
        services.act(row, Move.CLOSE, actor="user:bob", reason="x", now=now)
    services.change(row, {}, actor="user:bob", reason="nothing", now=now)
    services.act(row, Move.REFUSE, actor="user:bob", reason="x", now=now)
    assert list(TicketEvent.objects.values_list("cluster", "number")) == [("c1", 1), ("c1", 2), ("c1", 3)]
