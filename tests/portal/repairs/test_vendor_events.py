"""Signed events of a vendor: who may send them, what they change, and that each counts once."""

import hashlib
import hmac
import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover.repairs.repairs import Move
from kcover.repairs.vendor_events import SCOPES, VendorEvent
from kcover_portal.accounts.models import AttemptCounter
from kcover_portal.api.v1.repairs import ticket_doors, vendor_events as door
from kcover_portal.audit_stream import services as sinks
from kcover_portal.audit_stream.models import Sink
from kcover_portal.fleet.models import Node
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair, TicketEvent, VendorDelivery
from tests.portal.api.conftest import fields, problem
from tests.portal.repairs.conftest import Report, add_validation

pytestmark = pytest.mark.django_db
SECRET = "a secret of some length"
TICKETS = Path(__file__).resolve().parents[3] / "docs/operations/repair/tickets.md"
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _rates() -> None:
    ticket_doors.event_rates.forget()


@pytest.fixture
def sink(db: None, now: datetime) -> Sink:
    given = {
        "address": "https://acme.example/in",
        "secret": SECRET,
        "topics": ["tickets"],
        "options": {"vendor": "ACME"},
    }
    return sinks.SINKS.make(Sink(name="acme", kind="webhook"), given, actor="user:ada", now=now)


class Vendor:
    """A vendor with a secret. It computes signatures from the manual, without the portal's code."""

    def __init__(self, secret: str = SECRET, *, sink: str = "acme", address: str = "192.0.2.7") -> None:
        self.key = hmac.new(secret.encode(), b"kcover vendor events 1", hashlib.sha256).digest()
        self.sink, self.address = sink, address
        self._sent = 0

    def send(self, event: str, repair: int, *, at: datetime | None = None, **more: Any) -> Any:
        self._sent += 1
        told = {"delivery": f"d-{self._sent}", "event": event, "repair": repair, **more}
        return self.post(json.dumps(told).encode(), at=at)

    def post(self, body: bytes, *, at: datetime | None = None, headers: dict[str, str] | None = None) -> Any:
        stamp = str(int((at or timezone.now()).timestamp()))
        signed = f"kcover-vendor-event-1\n{self.sink}\n{stamp}\n".encode() + body
        own = {
            "X-Kcover-Timestamp": stamp,
            "X-Kcover-Signature": "sha256=" + hmac.new(self.key, signed, hashlib.sha256).hexdigest(),
        }
        return Client().post(
            f"/api/v1/repairs/vendors/{self.sink}/events",
            body,
            content_type="application/json",
            headers=own | (headers or {}),
            REMOTE_ADDR=self.address,
        )


@pytest.fixture
def acme(sink: Sink) -> Vendor:
    return Vendor()


def test_a_vendor_takes_its_repair_from_the_report_to_the_return_and_no_further(
    acme: Vendor, report: Report, node: Node, now: datetime
) -> None:
    row = report(vendor="ACME")
    due = timezone.now() + 3 * DAY
    accepted = acme.send("accept", row.pk, ticket="RMA-7", due=due.isoformat(), comment="on its way")
    assert (accepted.status_code, accepted.json()) == (200, {"delivery": "d-1", "repair": row.pk, "state": "accepted"})
    assert acme.send("update", row.pk, action="replace").json()["state"] == "accepted"
    assert acme.send("hand-over", row.pk).json()["state"] == "in_repair"
    assert acme.send("comment", row.pk, comment="awaiting a board").json()["state"] == "in_repair"
    back = acme.send("return", row.pk, part={"serial": "S-new"}, machine={"serial": "M2"})
    assert back.json()["state"] == "returned"
    row.refresh_from_db()
    assert (row.ticket, row.due, row.action, row.assignee) == ("RMA-7", due, "replace", "vendor:acme")
    assert (row.part_serial, row.removed_serial, row.machine_serial) == ("S-new", "S-gpu-1", "M2")
    add_validation(node, at=timezone.now() + DAY, serial="M2")  # even a proof lets no vendor close
    assert set(fields(acme.send("close", row.pk))) == {"event"}
    assert problem(acme.send("refuse", row.pk, comment="no"), 409)["code"] == "repair_verb_not_now"
    assert list(Entry.objects.filter(cluster="c1").order_by("sequence").values_list("verb", "actor"))[1:] == [
        (verb, "vendor:acme")
        for verb in ("repair.accepted", "repair.changed", "repair.in_repair", "repair.commented", "repair.returned")
    ]
    told = [event.document for event in TicketEvent.objects.order_by("number")]
    assert [(one["event"], one["reason"]) for one in told[1:5:3]] == [
        ("update", "on its way"),
        ("update", "awaiting a board"),
    ]
    services.act(row, Move.CLOSE, actor="user:bob", reason="proved", now=timezone.now() + 2 * DAY)
    assert problem(acme.send("comment", row.pk, comment="late"), 409)["code"] == "repair_closed_already"


def test_no_event_closes_a_repair_or_takes_up_a_refused_one(acme: Vendor, report: Report) -> None:
    assert Move.CLOSE not in {scope.move for scope in SCOPES.values()}
    assert set(SCOPES) == set(VendorEvent)
    row = report(Move.REFUSE, vendor="ACME")
    for event in ("accept", "hand-over", "return", "update"):
        assert problem(acme.send(event, row.pk, ticket="x"), 409)["code"] == "repair_verb_not_now"


def test_a_repeated_delivery_gets_the_first_answer_and_changes_nothing(
    acme: Vendor, report: Report, now: datetime
) -> None:
    row = report(vendor="ACME")
    body = json.dumps({"delivery": "x", "event": "accept", "repair": row.pk}).encode()
    answers = [acme.post(body) for _ in range(2)]
    services.act(row, Move.HAND_OVER, actor="user:bob", reason="gone", now=timezone.now())
    answers.append(acme.post(body))
    assert [(one.status_code, one.json()["state"]) for one in answers] == [(200, "accepted")] * 3
    assert Entry.objects.filter(verb="repair.accepted").count() == 1
    other = body.replace(b"accept", b"return")
    assert problem(acme.post(other), 422)["code"] == "vendor_delivery_reused"
    refused = json.dumps({"delivery": "y", "event": "accept", "repair": row.pk}).encode()
    assert problem(acme.post(refused), 409)["code"] == "repair_verb_not_now"  # it left no row
    assert VendorDelivery.objects.count() == 1
    services.forget_deliveries(now=timezone.now() + 29 * DAY)
    assert VendorDelivery.objects.count() == 1
    services.forget_deliveries(now=timezone.now() + 31 * DAY)
    assert VendorDelivery.objects.count() == 0


def test_a_vendor_reaches_only_its_own_repairs_and_details(acme: Vendor, report: Report) -> None:
    row = report(vendor="Other")
    unknown = problem(acme.send("accept", row.pk), 404)
    assert unknown["code"] == problem(acme.send("accept", row.pk + 1), 404)["code"] == "vendor_repair_unknown"
    Repair.objects.update(vendor="ACME")
    assert set(fields(acme.send("accept", row.pk, vendor="Mine", cluster="c1"))) == {"vendor", "cluster"}
    assert set(fields(acme.send("accept", row.pk, machine={"serial": "M2"}))) == {"machine"}
    assert set(fields(acme.send("accept", row.pk, assignee="role:admin"))) == {"assignee"}
    assert set(fields(acme.send("refuse", row.pk))) == {"comment"}
    assert set(fields(acme.send("update", row.pk))) == {"comment"}
    assert set(fields(acme.send("update", row.pk, part={}))) == {"comment"}  # the same, said otherwise
    for due in (timezone.now() + 366 * DAY, datetime(9999, 12, 31, 23, 59, tzinfo=UTC), timezone.now() - DAY):
        assert set(fields(acme.send("update", row.pk, due=due.isoformat()))) == {"due"}
    row.refresh_from_db()
    assert (row.state, row.due, VendorDelivery.objects.count()) == ("reported", None, 0)


def test_a_wrong_signature_reveals_nothing_and_is_throttled_and_recorded(
    acme: Vendor, report: Report, sink: Sink, now: datetime
) -> None:
    row = report(vendor="ACME")
    good = json.dumps({"delivery": "a", "event": "accept", "repair": row.pk}).encode()
    guessed, strange = Vendor("another secret of length"), Vendor(sink="nobody")
    outgoing = hmac.new(SECRET.encode(), good, hashlib.sha256).hexdigest()  # what the portal signs to the vendor
    refused = [
        guessed.post(good),
        strange.post(good),
        acme.post(good, headers={"X-Kcover-Signature": f"sha256={outgoing}"}),
        acme.post(good, headers={"X-Kcover-Signature": ""}),
        acme.post(good, headers={"X-Kcover-Timestamp": str(int(timezone.now().timestamp()) + 60)}),
    ]
    assert {json.dumps(problem(one, 403)) for one in refused} == {json.dumps(refused[0].json())}
    assert refused[0].json()["code"] == "vendor_signature_invalid"
    told = {entry.data["user"] for entry in Entry.objects.filter(verb="vendor_event.signature_failed")}
    assert told == {"acme", ""}  # a name without a sink is not stored
    for _ in range(3):
        throttled = guessed.post(good)
    assert problem(throttled, 429)["code"] == "attempts_throttled"
    assert int(throttled.headers["Retry-After"]) > 0
    assert acme.post(good).status_code == 200  # from the same network: strangers lock no vendor out
    assert guessed.post(good).status_code == 429  # and a correct one clears no counter
    assert Vendor("another", address="198.51.100.1").post(good).status_code == 403
    AttemptCounter.objects.all().delete()
    sinks.SINKS.change(sink, {"enabled": False}, actor="user:ada", reason="", now=now)
    assert problem(acme.post(good), 403)["code"] == "vendor_signature_invalid"
    sinks.SINKS.change(sink, {"enabled": True, "options": {}}, actor="user:ada", reason="", now=now)
    assert problem(acme.post(good), 403)["code"] == "vendor_signature_invalid"
    sink.refresh_from_db()
    assert sink.incoming_key == ""


def test_time_size_and_rate_are_bounded(acme: Vendor, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    row = report(vendor="ACME")
    for away in (timedelta(minutes=6), -timedelta(minutes=6)):
        stale = problem(acme.send("accept", row.pk, at=timezone.now() + away), 403)
        assert stale["code"] == "vendor_timestamp_stale"
    assert acme.send("accept", row.pk, at=timezone.now() - timedelta(minutes=4)).status_code == 200
    assert AttemptCounter.objects.count() == 0
    assert problem(acme.post(b"x" * (door.MAX_BODY + 1)), 413)["code"] == "too_large"
    assert problem(acme.post(b'{"a": 1, "a": 2}'), 400)["code"] == "parse_error"
    assert problem(acme.post(b"{}", headers={"Content-Encoding": "gzip"}), 415)["code"] == "source_encoding"
    while (answer := acme.post(b"{}")).status_code == 400:
        pass
    assert problem(answer, 429)["code"] == "vendor_rate"


@pytest.mark.real_clock("the script signs the time of its own process")
def test_the_example_of_the_manual_is_accepted(sink: Sink, report: Report, tmp_path: Path) -> None:
    (script,) = re.findall(r"^```sh\n(.*?)^```$", TICKETS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    row = report(vendor="ACME")
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    curl.chmod(0o755)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECRET": SECRET}
    ran = subprocess.run(
        ["bash", "-euc", script.replace('"repair": 41', f'"repair": {row.pk}')],
        capture_output=True,
        text=True,
        check=True,
        env=paths,
    )
    told = ran.stdout.splitlines()
    headers = dict(line.split(": ", 1) for line in told if re.match(r"(X-Kcover|Content)-", line))
    body = next(line for line in told if line.startswith("{"))
    path = next(line for line in told if line.startswith("https://")).removeprefix("https://portal.example")
    answer = Client().post(path, body.encode(), content_type=headers.pop("Content-Type"), headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "accepted")
