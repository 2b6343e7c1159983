"""Repairs as issues of a Jira over HTTP: once each whatever is lost, and its webhooks back."""

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover.repairs import jira, repairs, vendor_events
from kcover.repairs.repairs import Move, State
from kcover_portal.api.v1.repairs import ticket_doors
from kcover_portal.audit_stream import queries, services as sinks
from kcover_portal.audit_stream.models import Issue, Sink
from kcover_portal.fleet.models import Node
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair
from tests.portal.api.conftest import person, problem
from tests.portal.audit_stream.jira_server import JiraServer
from tests.portal.repairs.conftest import Report, add_validation

pytestmark = pytest.mark.django_db
SECRET = "a secret of some length"
STATES = "In Progress=in_repair; Done=returned; Won't do=refused"
OPTIONS = {"project": "OPS", "user": "bot@x.example", "close_transition": "finish", "states": STATES}
HOUR = timedelta(hours=1)


@pytest.fixture
def server(settings) -> Iterator[JiraServer]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    ticket_doors.event_rates.forget()
    made = JiraServer()
    yield made
    made.stop()
    assert made.wrong == []


@pytest.fixture
def sink(server: JiraServer, db: None, now: datetime) -> Sink:
    given = {"address": server.url, "secret": "token", "incoming_secret": SECRET, "options": OPTIONS}
    return sinks.SINKS.make(Sink(name="ops", kind="jira"), given, actor="user:ada", now=now)


def deliver(sink: Sink, now: datetime) -> int:
    sink.refresh_from_db()
    return sinks.deliver(sink.pk, clock=lambda: max(now, sink.due_at))


def why(sink: Sink) -> str:
    sink.refresh_from_db()
    return sink.why.code if sink.why else ""


def close(row: Repair, node: Node, now: datetime) -> None:
    services.act(row, Move.RETURN, actor="user:bob", reason="back", now=now)
    add_validation(node, at=now + HOUR)
    services.act(row, Move.CLOSE, actor="user:bob", reason="proved", now=now + 2 * HOUR)


def test_an_issue_follows_a_repair_to_its_end(
    sink: Sink, server: JiraServer, node: Node, report: Report, now: datetime, settings
) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    row = report(Move.ACCEPT, vendor="ACME")
    assert deliver(sink, now) == 2
    assert services.note_keys(now=now) == 1
    services.act(row, Move.HAND_OVER, actor="user:bob", reason="with\n the courier", now=now)
    close(row, node, now)
    assert deliver(sink, now) == 4  # one is the ticket, which Jira knows
    [issue] = server.issues.values()
    assert issue["fields"]["project"] == {"key": "OPS"}
    assert issue["fields"]["issuetype"] == {"name": "Task"}
    assert issue["fields"]["summary"] == f"Repair {row.pk}: gpu-1 gpu 0 S-gpu-1"
    assert issue["fields"]["labels"][0] == "kcover"
    text = jira.texts(issue["fields"]["description"])
    assert f"https://portal.example/repairs/{row.pk}/" in text
    assert "Hardware id: gpu:S-gpu-1" in text
    told = [jira.texts(comment) for comment in issue["comments"]]
    assert [one.split(" State:")[0].split(" Record ")[1] for one in told] == [f"tickets/c1/{n}" for n in (2, 4, 5, 6)]
    assert "now in repair: with the courier" in told[1]
    assert issue["state"] == "Done"
    assert server.authorizations == {"Basic " + b64encode(b"bot@x.example:token").decode()}
    row.refresh_from_db()
    assert (row.ticket, Entry.objects.get(verb="repair.changed").actor) == ("OPS-1", "vendor:ops")
    assert (services.note_keys(now=now), deliver(sink, now)) == (0, 0)


@pytest.mark.parametrize("call", ["issue", "comment", "transitions"])
def test_a_lost_answer_does_nothing_twice(
    sink: Sink, server: JiraServer, node: Node, report: Report, now: datetime, call: str
) -> None:
    row = report(Move.ACCEPT, Move.HAND_OVER)
    close(row, node, now)
    server.lost = {call}
    while deliver(sink, now):
        pass
    assert why(sink) in ("host_not_answering", "")  # a transition is tried again on its own
    now += HOUR
    deliver(sink, now)
    [issue] = server.issues.values()
    assert (len(issue["comments"]), issue["state"]) == (4, "Done")
    posted = [path for method, path in server.calls if method == "POST"]
    assert (posted.count("issue"), posted.count("issue/OPS-1/transitions")) == (1, 1)
    assert not Issue.objects.filter(closing=True).exists()


@pytest.mark.parametrize("late", [False, True])
def test_a_lost_issue_is_searched_for_before_another_is_created(
    sink: Sink, server: JiraServer, report: Report, now: datetime, late: bool
) -> None:
    report()
    server.lost, server.late, server.indexed = {"issue"}, late, False
    assert deliver(sink, now) == 0
    assert deliver(sink, now + timedelta(seconds=60)) == 0
    assert why(sink) == "jira_issue_unsure"
    assert len(server.issues) == 1
    sink.refresh_from_db()
    assert sink.due_at == now + timedelta(minutes=2)
    server.indexed = True
    assert deliver(sink, now) == 1
    assert len(server.issues) == 1
    Issue.objects.all().delete()  # a database restored from before: the label is the same
    sink.positions.update(number=0)
    deliver(sink, now + HOUR)
    assert len(server.issues) == 1


def test_a_missing_transition_is_reported_and_delays_no_other_issue(
    sink: Sink, server: JiraServer, node: Node, report: Report, now: datetime
) -> None:
    server.offered = {"Start": "In Progress"}
    close(report(Move.ACCEPT, Move.HAND_OVER), node, now)
    other = report()
    assert (deliver(sink, now), why(sink)) == (6, "")
    assert len(server.issues) == 2
    later = now + HOUR
    found = queries.trouble(sink, queries.lag(sink, now=later))
    assert found is not None
    assert "jira_transition_missing" in json.dumps(found.to_json())
    assert [one.name for one in queries.due(now=later)] == ["ops"]
    server.offered["Finish"] = "Done"
    services.change(other, {"queue": "x"}, actor="user:ann", reason="y", now=later)
    assert deliver(sink, later) == 1
    assert (server.issues["OPS-1"]["state"], server.issues["OPS-2"]["state"]) == ("Done", "To Do")
    assert queries.trouble(sink, queries.lag(sink, now=later)) is None
    assert queries.due(now=later) == []


def test_refusals_of_jira_are_shown_and_retried(sink: Sink, server: JiraServer, report: Report, now: datetime) -> None:
    row = report(Move.ACCEPT)
    server.failures, server.headers = [429], {"Retry-After": "77"}
    assert deliver(sink, now) == 0
    sink.refresh_from_db()
    assert (why(sink), sink.due_at) == ("jira_refused", now + timedelta(seconds=77))
    server.failures = [0, 400]  # the search, the creation
    assert deliver(sink, now) == 0
    assert "told by the test" in str(Sink.objects.get().why)
    assert (deliver(sink, now), len(server.issues)) == (2, 1)  # no wait: a refused creation created nothing
    del server.issues["OPS-1"]  # somebody deleted it
    services.act(row, Move.HAND_OVER, actor="user:bob", reason="gone", now=now)
    assert (deliver(sink, now), why(sink)) == (0, "jira_refused")
    assert (deliver(sink, now), list(server.issues)) == (1, ["OPS-1"])
    assert "State: in_repair" in jira.texts(server.issues["OPS-1"]["fields"]["description"])


def test_a_repair_that_ended_before_gets_no_issue(
    sink: Sink, server: JiraServer, node: Node, report: Report, now: datetime
) -> None:
    row = report(Move.ACCEPT, Move.HAND_OVER)
    services.act(row, Move.RETURN, actor="user:bob", reason="back", now=now)
    sink.positions.create(topic="tickets", part="c1", number=4)
    add_validation(node, at=now + HOUR)
    services.act(row, Move.CLOSE, actor="user:bob", reason="proved", now=now + 2 * HOUR)
    assert (deliver(sink, now), server.issues) == (1, {})


def test_a_vendor_that_loses_a_repair_has_its_issue_closed(
    sink: Sink, server: JiraServer, report: Report, now: datetime
) -> None:
    sinks.SINKS.change(sink, {"options": {**OPTIONS, "vendors": "ACME"}}, actor="user:ada", reason="", now=now)
    row = report(vendor="ACME", assignee="ann")
    services.change(row, {"vendor": "Other", "assignee": "bo"}, actor="user:ann", reason="cheaper", now=now)
    services.act(row, Move.ACCEPT, actor="user:bob", reason="ours", now=now)
    assert deliver(sink, now) == 3
    [issue] = server.issues.values()
    [told] = [jira.texts(comment) for comment in issue["comments"]]
    assert told.startswith("Taken from this vendor by user:ann. Record tickets/c1/2")
    assert not {"Other", "bo", "cheaper"} & set(told.split())
    assert issue["state"] == "Done"
    assert services.note_keys(now=now) == 0  # the key is not the ticket of another vendor
    row.refresh_from_db()
    assert row.ticket == ""


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        ({"options": {}}, "options", "option_missing"),
        ({"options": {"project": 'OPS" OR 1'}}, "options", "jira_project_invalid"),
        ({"options": {**OPTIONS, "states": "Done=closed"}}, "options", "jira_states_invalid"),
        ({"options": {**OPTIONS, "labels": 'a"b'}}, "options", "jira_labels_invalid"),
        ({"options": {**OPTIONS, "issue_type": " Task"}}, "options", "option_text_invalid"),
        ({"options": {**OPTIONS, "tenant": "x"}}, "options", "option_unknown"),
        ({"secret": "a\nb"}, "secret", "jira_token_invalid"),
        ({"incoming_secret": "short"}, "incoming_secret", "secret_length"),
        ({"topics": ["audit"]}, "topics", "sink_tickets_only"),
        ({"address": "https://x.example/?q"}, "address", "url_with_query"),
    ],
)
def test_wrong_settings_are_refused(sink: Sink, given: dict[str, Any], field: str, code: str, now: datetime) -> None:
    with pytest.raises(FieldError) as raised:
        sinks.SINKS.change(sink, given, actor="user:ada", reason="", now=now)
    assert (raised.value.field, raised.value.reason.code) == (field, code)


def test_the_secret_of_webhooks_is_in_no_entry_of_the_audit_log(sink: Sink, now: datetime) -> None:
    sinks.SINKS.change(sink, {"incoming_secret": f"{SECRET} new"}, actor="user:ada", reason="", now=now)
    sink.refresh_from_db()
    assert sink.incoming_key == f"{SECRET} new"
    [created, changed] = Entry.objects.filter(verb__startswith="audit_sink.").order_by("pk")
    assert SECRET not in json.dumps([created.data, changed.data])
    assert "incoming_key" in changed.data["changed"]


# --- webhooks


def webhook(state: str, *, issue: str = "OPS-1", at: datetime | None = None, **more: Any) -> bytes:
    moved = {"items": [{"field": "status", "fieldId": "status", "fromString": "To Do", "toString": state}]}
    told = {
        "timestamp": int((at or timezone.now()).timestamp() * 1000),
        "webhookEvent": "jira:issue_updated",
        "issue": {"id": "1", "key": issue, "fields": {"status": {"name": state, "id": "3"}, "assignee": None, "x": []}},
        "changelog": moved,
        "user": {"displayName": "Ann"},
    }
    return json.dumps(told | more).encode()


def post(body: bytes, *, secret: str = SECRET, sink: str = "ops", **headers: str) -> Any:
    sign = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return Client().post(
        f"/api/v1/repairs/jira/{sink}/events?triggeredByUser=5b10a2",  # Jira appends it
        body,
        content_type="application/json",
        headers={"X-Hub-Signature": sign} | headers,
        REMOTE_ADDR="192.0.2.9",
    )


@pytest.fixture
def followed(sink: Sink, report: Report, now: datetime) -> Repair:
    row = report()
    Issue.objects.create(sink=sink, repair=row.pk, key="OPS-1", noted=True)
    return row


def test_states_of_the_issue_become_acts_once_and_never_a_close(followed: Repair, sink: Sink, node: Node) -> None:
    started = webhook("in progress")
    answers = [post(started), post(started, **{"X-Atlassian-Webhook-Retry": "1"})]
    assert [one.json()["acts"] for one in answers] == [["accept", "hand-over"]] * 2
    assert Entry.objects.filter(verb="repair.in_repair", actor="vendor:ops").count() == 1
    done = post(webhook("Done")).json()
    assert (done["state"], done["acts"]) == ("returned", ["return"])
    add_validation(node, at=timezone.now() + HOUR)  # even a proof lets Jira not close
    assert post(webhook("Done", at=timezone.now() + timedelta(seconds=1))).json()["state"] == "returned"
    assert post(webhook("In Progress", at=timezone.now())).json()["acts"] == []  # it has passed that state
    for state in ("Unmapped", "Won't do"):
        assert post(webhook(state, changelog={"items": [{"field": "summary"}]})).json()["acts"] == []
    assert problem(post(webhook("Won't do")), 409)["code"] == "repair_verb_not_now"
    services.act(followed, Move.CLOSE, actor="user:bob", reason="proved", now=timezone.now() + 2 * HOUR)
    assert post(webhook("Done", at=timezone.now() - HOUR)).json()["state"] == "closed"


def test_an_issue_that_moves_to_another_project_keeps_its_repair(followed: Repair, sink: Sink) -> None:
    Repair.objects.filter(pk=followed.pk).update(ticket="OPS-1")
    assert post(webhook("In Progress")).json()["repair"] == followed.pk
    assert Issue.objects.get().number == "1"
    key = {"items": [{"field": "Key", "fromString": "OPS-1", "toString": "RMA-4"}]}
    assert post(webhook("In Progress", issue="RMA-4", changelog=key)).json()["acts"] == []
    followed.refresh_from_db()
    assert (Issue.objects.get().key, followed.ticket) == ("RMA-4", "RMA-4")
    done = post(webhook("Done", issue="RMA-4")).json()
    assert (done["repair"], done["state"]) == (followed.pk, "returned")
    other = json.loads(webhook("Done", issue="OPS-1"))
    other["issue"]["id"] = "2"  # a new issue of the old key is another one
    assert problem(post(json.dumps(other).encode()), 404)["code"] == "jira_issue_unknown"


def test_every_path_of_states_is_one_of_possible_events() -> None:
    for state in State:
        for target in jira.TARGETS:
            now_in = state
            for event in vendor_events.towards(state, target):
                if refused := vendor_events.refusal(now_in, event):
                    assert state in (State.REFUSED, State.RETURNED, State.VALIDATING), refused
                    break
                move = vendor_events.SCOPES[event].move
                assert move is not None
                now_in = repairs.TRANSITIONS[move].target
            else:
                assert now_in is target or list(State).index(state) > list(State).index(target) or state is State.CLOSED


def test_forged_stale_foreign_and_broken_webhooks(followed: Repair, sink: Sink, now: datetime) -> None:
    good = webhook("In Progress")
    refused = [
        post(good, secret="another secret of length"),
        post(good, sink="nobody"),
        post(good, **{"X-Hub-Signature": ""}),
        post(good + b" ", **{"X-Hub-Signature": "sha256=" + "0" * 64}),
    ]
    assert {problem(one, 403)["code"] for one in refused} == {"jira_signature_invalid"}
    assert Entry.objects.filter(verb="vendor_event.signature_failed").count() == 2  # of the sink, of no sink
    for at in (timezone.now() - timedelta(hours=25), timezone.now() + timedelta(minutes=10)):
        assert problem(post(webhook("In Progress", at=at)), 403)["code"] == "vendor_timestamp_stale"
    assert problem(post(webhook("In Progress", issue="OPS-2")), 404)["code"] == "jira_issue_unknown"
    for broken in (
        b"[]",
        b"{}",
        b'{"issue": 1}',
        b"\xff",
        webhook("x", changelog={"items": 3}),
        webhook("x", timestamp=1e300),
    ):
        assert post(broken).status_code == 400
    assert problem(post(b"x" * (1024 * 1024 + 1)), 413)["code"] == "too_large"
    sinks.SINKS.change(sink, {"options": {**OPTIONS, "vendors": "ACME"}}, actor="user:ada", reason="", now=now)
    assert problem(post(good), 404)["code"] == "jira_issue_unknown"  # of another vendor
    sinks.SINKS.change(sink, {"incoming_secret": ""}, actor="user:ada", reason="", now=now)
    assert problem(post(good), 403)["code"] == "jira_signature_invalid"
    followed.refresh_from_db()
    assert followed.state == "reported"
    ticket_doors.event_rates.forget()


def test_an_admin_makes_a_jira_sink_on_the_page(server: JiraServer, now: datetime) -> None:
    client = person("ada", "admin", now).client
    asked = {
        "name": "ops",
        "address": server.url,
        "secret": "token",
        "incoming_secret": SECRET,
        "whole": "no",
    } | OPTIONS
    refused = client.post("/audit/sinks/new/jira/", {**asked, "project": ""})
    assert refused.status_code == 422
    assert not Sink.objects.exists()
    assert client.post("/audit/sinks/new/jira/", asked).status_code == 302
    made = Sink.objects.get()
    assert (made.topics, made.incoming_key, made.options) == (["tickets"], SECRET, OPTIONS)
    shown = client.get("/api/v1/audit-sinks/ops").json()
    assert (shown["receives"], SECRET in str(shown)) == (True, False)
    page = client.get("/audit/sinks/").content.decode()
    assert "/api/v1/repairs/jira/ops/events" in page
    assert SECRET not in page
