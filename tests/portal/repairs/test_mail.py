"""Repairs as mails through an SMTP server, and the replies that a gateway posts."""

import hashlib
import hmac
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from kcover import reasons
from kcover.repairs import mail_replies
from kcover.repairs.repairs import Move
from kcover.repairs.vendor_events import VendorEvent
from kcover_portal.accounts.models import FailedAttempts
from kcover_portal.api.v1.repairs import ticket_doors
from kcover_portal.audit_stream import queries, services as sinks
from kcover_portal.audit_stream.models import Refusal, Sink
from kcover_portal.audit_stream.queries import mail_tokens
from kcover_portal.audit_stream.services import refusals
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair, VendorDelivery
from tests.codes import found_in
from tests.portal.api.conftest import fields, problem
from tests.portal.notify.mailbox import Mailbox, running
from tests.portal.repairs.conftest import Report

pytestmark = pytest.mark.django_db
SECRET = "a secret of some length"
MANUAL = Path(__file__).resolve().parents[3] / "docs/operations/repair/mail-tickets.md"
TOKEN = f"[kcover 5.{'a2' * 13}]"
DAY = timedelta(days=1)
OPTIONS = {"vendors": "ACME", "senders": "ann@x.example; @acme.example", "reply_to": "in@portal.example"}


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    ticket_doors.event_rates.forget()
    with running(settings) as server:
        yield server


@pytest.fixture
def sink(mailbox: Mailbox, db: None, now: datetime) -> Sink:
    given = {"address": "rma@acme.example, b@acme.example", "incoming_secret": SECRET, "options": OPTIONS}
    return sinks.SINKS.make(Sink(name="acme", kind="mail"), given, actor="user:ada", now=now)


def mails(box: Mailbox) -> list[Any]:
    return [message_from_bytes(one, policy=policy.default) for one in box.got]


def reply(
    text: str, *, subject: str, sender: str = "RMA <rma@acme.example>", name: str = "<1@x>", **more: str
) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = sender, subject, name
    for header, value in more.items():
        mail[header.replace("_", "-")] = value
    mail.set_content(text)
    return mail.as_bytes()


def post(body: bytes, *, secret: str = SECRET, sink: str = "acme", at: datetime | None = None, **headers: str) -> Any:
    stamp = str(int((at or timezone.now()).timestamp()))
    signed = hmac.new(secret.encode(), f"kcover-mail-1\n{sink}\n{stamp}\n".encode() + body, hashlib.sha256)
    own = {"X-Kcover-Timestamp": stamp, "X-Kcover-Signature": f"sha256={signed.hexdigest()}"}
    return Client().post(
        f"/api/v1/repairs/mail/{sink}/messages",
        body,
        content_type="message/rfc822",
        headers=own | headers,
        REMOTE_ADDR="192.0.2.11",
    )


def subject_of(sink: Sink, row: Repair) -> str:
    return f"Re: [kcover {row.pk}.{mail_tokens.token_of(sink, row.pk)}] Repair"


def test_a_thread_of_mails_follows_a_repair_and_a_reply_answers(
    sink: Sink, mailbox: Mailbox, report: Report, now: datetime
) -> None:
    row = report(Move.REFUSE, vendor="ACME")
    services.act(row, Move.ACCEPT, actor="user:bob", reason="after\r\nBcc: x@y.example all", now=now)
    assert sinks.deliver(sink.pk, clock=lambda: now) == 3
    first, second, third = mails(mailbox)
    assert first["In-Reply-To"] is None
    assert {one["References"] for one in (second, third)} == {one["In-Reply-To"] for one in (second, third)}
    assert second["References"] == first["Message-ID"]
    assert len({one["Message-ID"] for one in (first, second, third)}) == 3
    assert (first["To"], first["Reply-To"]) == ("rma@acme.example, b@acme.example", "in@portal.example")
    assert len({one["Subject"] for one in (first, second, third)}) == 1
    assert third["Bcc"] is None
    assert "Hardware id: gpu:S-gpu-1" in first.get_content()
    sink.positions.update(number=0)  # a worker that died before its commit
    assert sinks.deliver(sink.pk, clock=lambda: now) == 3
    assert [one["Message-ID"] for one in mails(mailbox)[3:]] == [one["Message-ID"] for one in (first, second, third)]

    quoted = "\n".join(f"> {line}" for line in first.get_content().splitlines())
    text = f"Hand over!\nTicket: RMA-7\nDue: 2999-01-01\nOn its way.\n\nOn Fri, RMA wrote:\n{quoted}\n"
    far = fields(post(reply(text, subject=f"AW: {first['Subject']}")))
    assert set(far) == {"due"}
    due = (timezone.now() + DAY).date().isoformat()
    body = reply(text.replace("2999-01-01", due), subject=f"AW: {first['Subject']}")
    answers = [post(body), post(b"Received: by another.example\r\n" + body)]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert (answers[0].json()["event"], answers[0].json()["state"]) == ("hand-over", "in_repair")
    row.refresh_from_db()
    assert (row.ticket, row.due and row.due.date().isoformat()) == ("RMA-7", due)
    entry = Entry.objects.get(verb="repair.in_repair")
    assert (entry.actor, entry.data["reason"]) == ("vendor:acme", "On its way. (rma@acme.example)")
    other = reply("return", subject=str(first["Subject"]))
    assert problem(post(other), 422)["code"] == "vendor_delivery_reused"


def test_forged_foreign_and_automatic_mails_change_nothing(sink: Sink, report: Report, now: datetime) -> None:
    row = report(vendor="ACME")
    subject = subject_of(sink, row)
    good = reply("accept", subject=subject)

    def sent_by(sender: str) -> bytes:
        return good.replace(b"RMA <rma@acme.example>", sender.encode("latin-1"))

    assert mail_replies.read(sent_by('"=?gb18030?B?zfU=?=" <a@acme.example>')).sender == "a@acme.example"
    refused = [
        post(good, secret="another secret of length"),
        post(good, sink="nobody"),
        post(good, **{"X-Kcover-Signature": "sha256=" + "0" * 64}),
    ]
    assert {problem(one, 403)["code"] for one in refused} == {"mail_signature_invalid"}
    assert problem(post(good, at=timezone.now() - timedelta(minutes=6)), 403)["code"] == "vendor_timestamp_stale"
    other = f"[kcover {row.pk + 1}.{mail_tokens.token_of(sink, row.pk)}]"  # the token of this repair for another
    guessed = f"[kcover {row.pk}.{'a' * 26}]"
    for wrong in (other, guessed):
        assert problem(post(reply("accept", subject=wrong)), 403)["code"] == "mail_token_wrong"
    for sender in ("eve@evil.example", '"rma@acme.example" <eve@evil.example>', "x@sub.acme.example"):
        assert problem(post(reply("accept", subject=subject, sender=sender)), 403)["code"] == "mail_sender_unknown"
    assert Entry.objects.filter(verb="vendor_event.signature_failed").count() == 2  # at once: of the sink, of no sink
    assert FailedAttempts.objects.get(user="acme").count == 6  # counted for the next entry
    ticket_doors.event_rates.forget()
    codes = {
        "mail_token_missing": [
            reply("accept", subject="Re: Repair"),
            reply("accept", subject=f"{subject} {guessed}"),
            f"Subject: {subject}\n".encode() + good,
        ],
        "mail_automatic": [
            reply("accept", subject=subject, Auto_Submitted="auto-replied"),
            reply("accept", subject=subject, Precedence="bulk"),
        ],
        "mail_empty": [reply("> accept\n", subject=subject), reply("refuse\n", subject=subject)],
        "mail_sender_missing": [
            b"",
            b"Subject: x\r\n\r\naccept",
            reply("x", subject=subject, sender="a@x.example, b@x.example"),
            b"From: =?utf-8?q?a=0Ab?=@x.example\n" + good,  # two headers are not parsed: many would take minutes
            # What DMARC checks is the last of these.
            *(sent_by(one) for one in ("a@acme.example <b@evil.example>", "A <a@acme.example> <b@evil.example>")),
            *(sent_by(one) for one in ('"a\0"@acme.example', "a\xff@acme.example", "a" * 250 + "@acme.example")),
        ],
        "mail_without_text": [good.replace(b"text/plain", b"text/html")],
        "mail_unreadable": [
            good + b"\n" * mail_replies.MAX_LINES,
            good.replace(b"From: ", b"From: " + b"a@x.example,\n " * 500),
            b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" * 21,
            b"Content-Type: text/plain\n\n" * 101,
            b"From: a@x.example\n" * 501,
            good + b"\n--b" * 501,
            good.replace(b'charset="utf-8"', b'charset="none"'),
        ],
        "mail_due_invalid": [reply("accept\nDue: soon", subject=subject)],
    }
    for code, bodies in codes.items():
        for body in bodies:
            assert problem(post(body), 422)["code"] == code
            ticket_doors.event_rates.forget()
    assert set(fields(post(reply("return\nDue: 2026-12-01", subject=subject)))) == {"due"}
    ticket_doors.event_rates.forget()
    assert problem(post(reply("return", subject=subject)), 409)["code"] == "repair_verb_not_now"
    assert problem(post(b"x" * (1024 * 1024 + 1)), 413)["code"] == "too_large"
    Repair.objects.update(vendor="Other")
    assert problem(post(good), 404)["code"] == "vendor_repair_unknown"
    row.refresh_from_db()
    assert (row.state, VendorDelivery.objects.count()) == ("reported", 0)


@pytest.mark.parametrize(
    "hidden",
    [
        b"X-A: b\rFrom: rma@acme.example\r\raccept\r\r-- \r\n",
        b"From: rma@acme.example\r\nFrom : x@evil.example\r\n\r\naccept\r\n",
        b"From: rma@acme.example\r\nno header\r\n",
    ],
    ids=["CR alone", "From with a space", "line that is no header"],
)
def test_a_mail_whose_headers_a_mail_server_reads_differently_is_refused(
    sink: Sink, report: Report, hidden: bytes
) -> None:
    row = report(vendor="ACME")
    rest = b"From: x@evil.example\r\nMessage-ID: <9@evil.example>\r\n\r\naccept\r\n"
    mail = f"Subject: {subject_of(sink, row)}\r\n".encode() + hidden + rest
    assert problem(post(mail), 422)["code"] == "mail_unreadable"
    assert problem(post(b"From : x@evil.example\r\n" + reply("accept", subject=subject_of(sink, row))), 422)
    row.refresh_from_db()
    assert row.state == Repair.State.REPORTED


@pytest.mark.parametrize(
    ("text", "event", "details", "comment"),
    [
        ("accept", VendorEvent.ACCEPT, {}, ""),
        (
            "Accept.\n\nowner:  Ann \nACTION： replaced\nthanks",
            VendorEvent.ACCEPT,
            {"assignee": "Ann", "action": "replaced"},
            "thanks",
        ),
        (
            "return\nSerial: S2\nMachine serial: M2",
            VendorEvent.RETURN,
            {"part": {"serial": "S2"}, "machine": {"serial": "M2"}},
            "",
        ),
        ("we accept\nTicket: x", VendorEvent.COMMENT, {}, "we accept Ticket: x"),
        ("close", VendorEvent.COMMENT, {}, "close"),
        ("refuse\nno\x00 fault\n-- \nRMA team", VendorEvent.REFUSE, {}, "no fault"),
        (f"update\nlate\n{mail_replies.MARK}\nTicket: old", VendorEvent.UPDATE, {}, "late"),
        ("late\n-----Original Message-----\nrefuse", VendorEvent.COMMENT, {}, "late"),
        (
            "accept\nOn Fri, Nov 27, 2026 at 12:00 kcover <kcover@portal.example>\nwrote:\n> x",
            VendorEvent.ACCEPT,
            {},
            "",
        ),
        (
            f"update\nTicket: {TOKEN}\nSubject: {TOKEN}",
            VendorEvent.UPDATE,
            {"ticket": "[kcover 5]"},
            "Subject: [kcover 5]",
        ),
        ("x" * 30_000, VendorEvent.COMMENT, {}, "x" * 299 + "…"),
    ],
)
def test_the_commands_of_a_reply_are_parsed(
    text: str, event: VendorEvent, details: dict[str, Any], comment: str
) -> None:
    assert mail_replies.said(text[: mail_replies.MAX_TEXT]) == (event, details, comment)


def test_invalid_mail_settings_and_delivery_failures_are_reported(
    sink: Sink, mailbox: Mailbox, report: Report, now: datetime
) -> None:
    for given, field in (
        ({"address": "nobody"}, "address"),
        ({"options": {**OPTIONS, "senders": ""}}, "options"),
        ({"options": {**OPTIONS, "senders": "@"}}, "options"),
        ({"options": {**OPTIONS, "reply_to": "x\ny@z.example"}}, "options"),
        ({"secret": "x" * 20}, "secret"),
    ):
        with pytest.raises(FieldError) as raised:
            sinks.SINKS.change(sink, given, actor="user:ada", reason="", now=now)
        assert raised.value.field == field
    row = report(vendor="ACME")
    mailbox.refuse = "550 no such box"
    assert sinks.deliver(sink.pk, clock=lambda: now) == 0
    sink.refresh_from_db()
    assert sink.why is not None
    assert (sink.why.code, sink.attempts) == ("mail_recipients_rejected", 1)
    mailbox.refuse = ""
    assert sinks.deliver(sink.pk, clock=lambda: now + DAY) == 1
    sinks.SINKS.change(sink, {"incoming_secret": "", "options": {}}, actor="user:ada", reason="", now=now)
    services.change(row, {"vendor": "Other"}, actor="user:ann", reason="x", now=now)
    sinks.deliver(sink.pk, clock=lambda: now + DAY)
    assert mails(mailbox)[-1]["Subject"].startswith("[kcover] Repair")
    assert mail_replies.MARK not in mails(mailbox)[-1].get_content()


@pytest.mark.real_clock("the script signs the time of its own process")
def test_the_script_of_the_manual_passes_a_mail_on(sink: Sink, report: Report, tmp_path: Path) -> None:
    (script,) = re.findall(r"^```sh\n(.*?)^```$", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    row = report(vendor="ACME")
    mail = reply("accept", subject=subject_of(sink, row))
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$TOLD"\nprintf 200\n')
    curl.chmod(0o755)
    told = tmp_path / "told"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECRET": SECRET, "TOLD": str(told)}
    script = script.replace("acme-mail", "acme")
    assert subprocess.run(["bash", "-euc", script], input=mail, check=False, env=env).returncode == 0
    lines = told.read_text().splitlines()
    headers = dict(line.split(": ", 1) for line in lines if re.match(r"(X-Kcover|Content)-", line))
    path = next(line for line in lines if line.startswith("https://")).removeprefix("https://portal.example")
    answer = Client().post(path, mail, content_type=headers.pop("Content-Type"), headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "accepted")


# --- refused for good


def test_a_permanently_refused_mail_is_set_aside_and_delays_no_other(
    sink: Sink, mailbox: Mailbox, report: Report, now: datetime
) -> None:
    row, mailbox.spam = report(vendor="ACME"), b"wet cable"
    services.change(row, {"ticket": "RMA-1"}, actor="user:ann", reason="wet cable", now=now)
    services.change(row, {"ticket": "RMA-2"}, actor="user:ann", reason="dry cable", now=now)

    def deliver() -> None:
        sink.refresh_from_db()
        sinks.deliver(sink.pk, clock=lambda: max(now, sink.due_at))

    for times in range(1, refusals.MAX_REFUSALS):
        deliver()
        assert (Refusal.objects.get().times, len(mailbox.got)) == (times, 1)
    mailbox.refuse = "451 later"  # what is not for good does not count
    deliver()
    mailbox.refuse = ""
    assert Refusal.objects.get().set_aside_at is None
    deliver()
    deliver()
    assert len(mailbox.got) == 2
    assert b"dry cable" in mailbox.got[-1]
    sink.refresh_from_db()
    told = queries.trouble(sink, queries.lag(sink, now=now))
    assert told is not None
    assert found_in(told.to_json(), "sink_set_aside")
    assert queries.count_set_aside(sink) == 1
    entry = Entry.objects.get(verb="audit_sink.record_set_aside")
    assert (entry.data["sink"], entry.data["repair"]) == ("acme", row.pk)

    with pytest.raises(CommandError):
        call_command("audit_stream", "resend", "acme")
    assert queries.count_set_aside(sink) == 1
    mailbox.spam = b""
    call_command("audit_stream", "resend", "acme")
    assert b"wet cable" in mailbox.got[-1]
    assert queries.trouble(sink, queries.lag(sink, now=now)) is None


def test_a_set_aside_mail_is_dropped_by_a_person(sink: Sink, mailbox: Mailbox, report: Report, now: datetime) -> None:
    row = report(vendor="ACME")
    reason = reasons.of("sink_folder_unset")
    held = {"topic": "tickets", "number": 7, "repair": row.pk, "because": reason.to_json(), "set_aside_at": now}
    Refusal.objects.create(sink=sink, **held)
    call_command("audit_stream", "drop", "acme", "--reason", "told by phone")
    assert not Refusal.objects.exists()
    assert Entry.objects.get(verb="audit_sink.record_dropped").data["reason"] == "told by phone"
