"""Channels, routes and deliveries over REST: for admins, and no secret ever comes back."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Delivery, NamespaceRoute, Route
from kcover_portal.policies import services as policies
from tests.portal.api.conftest import Api, fields, person, problem

pytestmark = pytest.mark.django_db
SECRET = "a secret of some length"
HOOK = {"name": "on-call", "kind": "webhook", "url": "https://hooks.example/T0/hush", "secret": SECRET}
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: tell}
spec:
  rules:
    - {priority: 1, errorCode: ["62"], actions: [{name: cordon}, {name: notify, attribute: {channel: on-call}}]}
"""


def make(admin: Api, **more: Any) -> dict[str, Any]:
    response = admin.post("channels", {**HOOK, **more})
    assert response.status_code == 201, response.content
    body: dict[str, Any] = response.json()
    return body


def test_a_channel_is_made_changed_and_deleted_and_its_secrets_are_never_shown(admin: Api):
    made = make(admin, batching=5)
    assert (made["name"], made["kind"], made["host"], made["signed"]) == ("on-call", "webhook", "hooks.example", True)
    assert (made["batching"], made["min_interval"], made["enabled"], made["language"]) == (5, 60, True, "en")
    row = Channel.objects.get()
    assert (row.url, row.secret) == (HOOK["url"], SECRET)
    patch = {"url": "https://other.example/hush", "secret": SECRET, "enabled": False, "reason": "moved"}
    changed = admin.call("patch", "channels/on-call", patch)
    assert (changed.json()["host"], changed.json()["enabled"]) == ("other.example", False)
    assert Channel.objects.get().secret == SECRET
    said = str([admin.get("channels").json(), admin.get("channels/on-call").json(), made, changed.json()])
    assert admin.call("delete", "channels/on-call").status_code == 204
    assert not Channel.objects.exists()
    created, moved, deleted = Entry.objects.filter(verb__startswith="channel.").order_by("sequence")
    assert (created.verb, created.subject, created.actor) == ("channel.created", "channel on-call", "user:ada")
    assert moved.data["changed"]["url"] == {"before": "", "after": "changed"}
    assert moved.data["changed"]["enabled"] == {"before": True, "after": False}
    assert (moved.data["reason"], deleted.verb) == ("moved", "channel.deleted")
    for text in (said, str([created.data, moved.data, deleted.data])):
        assert "hush" not in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"name": "On Call"}, "name", "lower-case"),
        ({"kind": "pigeon"}, "kind", "not a valid choice"),
        ({"url": "ftp://x"}, "url", "Write an address"),
        ({"url": "https://a b"}, "url", "Write an address"),
        ({"url": "https://x:99999999/"}, "url", "Write an address"),
        ({"url": ""}, "url", "Write an address"),
        ({"url": "https://anna:pass@x.example/"}, "url", "Must not contain a user or password"),
        ({"secret": "short"}, "secret", "16 to 200"),
        ({"secret": ""}, "secret", "16 to 200 characters"),
        ({"kind": "dingtalk", "secret": "x" * 201}, "secret", "at most 200 characters"),
        ({"kind": "slack"}, "secret", "have no secret"),
        ({"recipients": ["a@b.example"]}, "recipients", "have a url"),
        ({"kind": "mail"}, "url", "not a url"),
        ({"kind": "mail", "url": "", "secret": ""}, "kind", "set KCOVER_MAIL_URL"),
        ({"recipients": ["nobody"]}, "recipients.0", "valid email"),
        ({"language": "fr"}, "language", "not a valid choice"),
        ({"batching": -1}, "batching", "greater than or equal to 0"),
        ({"min_interval": 86_401}, "min_interval", "less than or equal to 86400"),
        ({"remind": -1}, "remind", "greater than or equal to 0"),
        ({"remind": 2_592_001}, "remind", "less than or equal to 2592000"),
        ({"person": "nobody"}, "person", "Unknown user"),
        ({"person": "ada"}, "person", "cannot deliver to a person"),
        ({"colour": "red"}, "colour", "Unknown field"),
        ({"url": "https://x.example/\0"}, "url", "null"),
    ],
)
def test_an_invalid_channel_is_refused_by_field(admin: Api, body: dict[str, Any], field: str, words: str):
    found = fields(admin.post("channels", {**HOOK, **body}))
    assert list(found) == [field]
    assert words.lower() in found[field].lower()
    assert not Channel.objects.exists()


PAGER = {"name": "pager", "kind": "pagerduty", "secret": "0123456789abcdef0123456789ABCDEF"}


def test_a_pager_needs_a_key_and_knows_where_it_goes(admin: Api):
    made = admin.post("channels", PAGER).json()
    assert (made["kind"], made["host"], made["signed"]) == ("pagerduty", "events.pagerduty.com", True)
    assert PAGER["secret"] not in str([made, admin.get("channels").json(), admin.get("channels/pager").json()])
    key = {"secret": PAGER["secret"]}  # a new server needs it again
    changed = admin.call("patch", "channels/pager", {"url": "https://events.eu.pagerduty.com", **key}).json()
    assert changed["host"] == "events.eu.pagerduty.com"
    assert Channel.objects.get().secret == PAGER["secret"]
    assert PAGER["secret"] not in str(list(Entry.objects.values_list("data", flat=True)))
    assert admin.call("patch", "channels/pager", {"url": "", **key}).json()["host"] == "events.pagerduty.com"


def test_opsgenie_knows_where_it_goes_too(admin: Api):
    made = admin.post("channels", {**PAGER, "kind": "opsgenie", "secret": "01234567-89ab-cdef-0123-456789abcdef"})
    assert (made.status_code, made.json()["host"]) == (201, "api.opsgenie.com")
    assert "01234567" not in str([made.json(), admin.get("channels/pager").json()])


ALERTMANAGER = {"kind": "alertmanager", "url": "http://alertmanager.monitoring:9093", "secret": ""}


def test_an_alertmanager_needs_an_address_and_may_have_a_secret(admin: Api):
    made = admin.post("channels", {**PAGER, **ALERTMANAGER}).json()
    assert (made["kind"], made["host"], made["signed"]) == ("alertmanager", "alertmanager.monitoring", False)
    changed = admin.call("patch", "channels/pager", {"secret": "t" * 3000}).json()
    assert changed["signed"]
    assert "tttt" not in str([changed, list(Entry.objects.values_list("data", flat=True))])


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"secret": ""}, "secret", "32 letters and digits"),
        ({"secret": "0123"}, "secret", "32 letters and digits"),
        ({"secret": "0123456789abcdef-0123456789abcde"}, "secret", "32 letters and digits"),
        ({"url": "nowhere"}, "url", "Write an address"),
        ({"url": "https://events.pagerduty.com/?x=1"}, "url", "Must not contain '?' or '#'"),
        ({"person": "ada"}, "person", "whoever is on call"),
        ({"remind": 60}, "remind", "do not support reminders"),
        ({"recipients": ["a@b.example"]}, "recipients", "have a url"),
        ({"kind": "opsgenie", "secret": ""}, "secret", "the key of an API integration, alone"),
        ({"kind": "opsgenie", "secret": "GenieKey 01234567-89ab-cdef-0123-456789abcdef"}, "secret", "alone"),
        ({"kind": "alertmanager"}, "url", "Write an address"),
        ({**ALERTMANAGER, "secret": "a token"}, "secret", "USER:PASSWORD"),
        ({**ALERTMANAGER, "quiet_hours": "22:00-07:00"}, "quiet_hours", "schedules of their own"),
    ],
)
def test_an_odd_pager_is_refused_by_name(admin: Api, body: dict[str, Any], field: str, words: str):
    found = fields(admin.post("channels", {**PAGER, **body}))
    assert list(found) == [field]
    assert words in found[field]
    assert not Channel.objects.exists()


def test_a_pager_route_refuses_kinds_that_open_no_alert(admin: Api):
    admin.post("channels", PAGER)
    found = fields(admin.post("routes", {"channel": "pager", "kinds": ["rescue.failed", "rescue.healed"]}))
    assert found["kinds"].startswith("Pagers do not accept rescue.healed. Use approval.waiting, rescue.human")
    assert not Route.objects.exists()
    assert admin.post("routes", {"channel": "pager", "kinds": ["rescue.failed"]}).status_code == 201


def test_the_reminder_of_a_channel_is_set_and_unset(admin: Api):
    assert make(admin)["remind"] is None
    assert admin.call("patch", "channels/on-call", {"remind": 0}).json()["remind"] == 0
    assert admin.call("patch", "channels/on-call", {"remind": None}).json()["remind"] is None
    changed = Entry.objects.filter(verb="channel.changed").latest("sequence").data["changed"]
    assert changed == {"remind": {"before": 0, "after": None}}


def test_mail_has_recipients(admin: Api, settings: Any):
    settings.EMAIL_HOST = "mail.example"
    body = {"name": "mail", "kind": "mail", "recipients": ["a@example.com"], "person": "ada"}
    made = admin.post("channels", body)
    assert (made.json()["recipients"], made.json()["person"]) == (["a@example.com"], "ada")
    assert "Must list 1 to 20" in fields(admin.call("patch", "channels/mail", {"recipients": []}))["recipients"]


def test_a_name_is_taken_once(admin: Api):
    make(admin)
    again = admin.post("channels", HOOK)
    assert fields(again) == {"name": "Channel on-call already exists."}
    [error] = problem(again, 400)["errors"]
    assert (error["code"], error["params"]) == ("channel_exists", {"channel": "on-call"})


def test_an_invalid_change_changes_nothing(admin: Api):
    make(admin)
    found = fields(admin.call("patch", "channels/on-call", {"batching": 1, "url": "nowhere"}))
    assert list(found) == ["url"]
    assert Channel.objects.get().batching == 10
    assert list(fields(admin.call("patch", "channels/on-call", {"kind": "slack"}))) == ["kind"]


def test_a_channel_that_a_rule_names_stays(admin: Api, now: datetime):
    make(admin)
    policies.apply(POLICY, author="t", reason="", now=now)
    refused = problem(admin.call("delete", "channels/on-call"), 409)
    assert refused["detail"] == "Channel on-call is used by rule tell#1. Change the rule first."
    assert refused["code"] == "channel_in_use"


def test_routes_are_made_listed_and_deleted(admin: Api, east: Cluster):
    make(admin)
    body = {"channel": "on-call", "kinds": ["incident.opened", "rescue.failed"], "cluster": "east", "least": "fatal"}
    made = admin.post("routes", body).json()
    # In the order of their urgency, whatever order they were named in.
    assert (made["kinds"], made["cluster"], made["least"]) == (["rescue.failed", "incident.opened"], "east", "fatal")
    assert admin.get("routes").json()["results"] == [made]
    assert admin.get(f"routes/{made['id']}").json() == made
    assert admin.call("delete", f"routes/{made['id']}").status_code == 204
    assert not Route.objects.exists()
    verbs = Entry.objects.filter(subject="channel on-call").order_by("sequence").values_list("verb", flat=True)
    assert list(verbs) == ["channel.created", "route.created", "route.deleted"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"channel": "nobody"}, "channel"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["sunrise"]}, "kinds.0"),
        ({"cluster": "nowhere"}, "cluster"),
        ({"least": "bad"}, "least"),
    ],
)
def test_a_route_of_nonsense_is_refused(admin: Api, body: dict[str, Any], field: str):
    make(admin)
    whole = {"channel": "on-call", "kinds": ["rescue.failed"], **body}
    assert [name.removesuffix(".0") for name in fields(admin.post("routes", whole))] == [field.removesuffix(".0")]


def test_namespaces_are_bound_listed_and_unbound(admin: Api, east: Cluster):
    make(admin, for_owners=True)
    made = admin.post("namespace-routes", {"channel": "on-call", "cluster": "east", "namespace": "team-*"}).json()
    assert (made["channel"], made["cluster"], made["namespace"]) == ("on-call", "east", "team-*")
    assert admin.get("namespace-routes").json()["results"] == [made]
    assert admin.get(f"namespace-routes/{made['id']}").json() == made
    assert admin.call("delete", f"namespace-routes/{made['id']}").status_code == 204
    assert not NamespaceRoute.objects.exists()
    verbs = Entry.objects.filter(subject="channel on-call").order_by("sequence").values_list("verb", flat=True)
    assert list(verbs) == ["channel.created", "namespace_route.created", "namespace_route.deleted"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"channel": "nobody"}, "channel"),
        ({"channel": None}, "channel"),
        ({"cluster": "nowhere"}, "cluster"),
        ({"cluster": ""}, "cluster"),
        ({"namespace": "Team"}, "namespace"),
        ({"namespace": "a\0"}, "namespace"),
        ({"kinds": ["rescue.failed"]}, "kinds"),
    ],
)
def test_a_namespace_of_nonsense_is_refused(admin: Api, east: Cluster, body: dict[str, Any], field: str):
    make(admin, for_owners=True)
    whole = {"channel": "on-call", "cluster": "east", "namespace": "train", **body}
    assert list(fields(admin.post("namespace-routes", whole))) == [field]


def test_a_test_delivery_is_requested_and_read(admin: Api):
    make(admin)
    asked = admin.post("channels/on-call/test", Idempotency_Key="k")
    assert (asked.status_code, asked.json()["state"], asked.json()["test"]) == (202, "pending", True)
    assert admin.post("channels/on-call/test", Idempotency_Key="k").json()["id"] == asked.json()["id"]
    number = asked.json()["id"]
    assert admin.ids("deliveries?channel=on-call&state=pending&test=true") == [number]
    assert admin.ids("deliveries?state=sent") == []
    assert admin.get(f"deliveries/{number}").json()["events"] == []
    refused = problem(admin.post(f"deliveries/{number}/retry"), 409)
    assert refused["code"] == "delivery_not_failed"
    assert refused["detail"].startswith(f"Delivery {number} has not failed")
    Delivery.objects.update(state="failed", attempts=1)
    again = admin.post(f"deliveries/{number}/retry")
    assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (202, "pending", 0)


def test_deliveries_are_found_by_their_events(admin: Api, now: datetime):
    make(admin)
    channel = Channel.objects.get()
    services.make_route(channel, kinds=["automation.paused"], actor="t", now=now)
    services.sweep(now=now)
    admin.post("pause", {"reason": "fire drill"})
    services.sweep(now=now)
    (number,) = admin.ids("deliveries?kind=automation.paused")
    assert admin.ids("deliveries?kind=rescue.failed") == []
    assert admin.ids("deliveries?cluster=east") == []
    (reported,) = admin.get(f"deliveries/{number}").json()["events"]
    assert (reported["kind"], reported["because"]) == ("automation.paused", "ada: fire drill")


@pytest.mark.parametrize("path", ["channels", "channels/on-call", "routes", "namespace-routes", "deliveries"])
def test_only_admins_of_everything_see_any_of_it(
    admin: Api, operator: Api, viewer: Api, now: datetime, east: Cluster, path: str
):
    make(admin)
    part = person("paula", "admin", now, cluster=east)
    approver = person("abe", "approver", now)
    for api in (operator, viewer, part, approver):
        assert "role admin for all clusters" in problem(api.get(path), 403)["detail"]


def test_only_an_admin_of_all_clusters_changes_channels_and_routes(
    admin: Api, operator: Api, now: datetime, east: Cluster
):
    make(admin)
    part = person("paula", "admin", now, cluster=east)
    for api in (operator, part):
        assert problem(api.post("channels", {**HOOK, "name": "mine"}), 403)
        assert problem(api.call("patch", "channels/on-call", {"enabled": False}), 403)
        assert problem(api.call("delete", "channels/on-call"), 403)
        assert problem(api.post("channels/on-call/test"), 403)
        assert problem(api.post("routes", {"channel": "on-call", "kinds": ["rescue.failed"]}), 403)
        bound = {"channel": "on-call", "cluster": "east", "namespace": "train"}
        assert problem(api.post("namespace-routes", bound), 403)
    assert (Channel.objects.count(), Delivery.objects.count(), Route.objects.count()) == (1, 0, 0)
