"""The page of notifications: channels by kind, routes, a test, the log; for admins of everything only."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest

from kcover.notify import events
from kcover_portal.fleet import services as fleet
from kcover_portal.ledger.models import Entry
from kcover_portal.notify import queries, services
from kcover_portal.notify.models import Channel, Delivery, NamespaceRoute, Route
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import World

SECRET = "a secret of some length"
# The session, the person, the frame of every page; then channels, routes, namespaces, deliveries and what they tell.
QUERIES = 16
HOOK = {"name": "on-call", "url": "https://hooks.example/T0/hush", "secret": SECRET, "language": "en"}
FIRST = {**HOOK, "batching": "10", "min_interval": "60"}


def text(response: Any) -> str:
    return html.unescape(response.content.decode())


@pytest.fixture
def channel(world: World) -> Channel:
    given = {"url": HOOK["url"], "secret": SECRET}
    return services.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="t", now=world.now)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_the_page_is_for_admins(person, world: World, channel: Channel, role: str):
    client = person(role)
    paths = ("", "new/slack/", "channels/on-call/", "channels/on-call/delete/", "routes/new/", "namespaces/new/")
    assert {client.get(f"/notifications/{path}").status_code for path in paths} == {403}
    assert client.post("/notifications/channels/on-call/test/").status_code == 403
    assert "/notifications/" not in text(client.get("/"))
    assert client.get("/export/deliveries.csv").status_code == 200


def test_an_admin_of_one_cluster_cannot_open_notifications(person, world: World):
    client = person("admin", cluster=world.cluster)
    assert client.get("/notifications/").status_code == 403
    assert "/notifications/" not in text(client.get("/"))
    assert "/access/" in text(client.get("/"))


def test_the_form_of_a_channel_has_the_fields_of_its_kind(person, world: World):
    client = person("admin", name="anna")
    page = text(client.get("/notifications/"))
    assert "No channels yet" in page
    form = text(client.get("/notifications/new/webhook/"))
    assert 'name="secret"' in form
    assert 'name="person"' not in form
    assert 'name="secret"' not in text(client.get("/notifications/new/slack/"))
    assert 'name="recipients"' in text(client.get("/notifications/new/mail/"))
    assert client.get("/notifications/new/pigeon/").status_code == 404
    assert client.post("/notifications/new/webhook/", FIRST).status_code == 302
    row = Channel.objects.get()
    assert (row.name, row.url, row.secret, row.created_by) == ("on-call", HOOK["url"], SECRET, "user:anna")
    page = text(client.get("/notifications/"))
    assert "hooks.example" in page
    assert "hush" not in page + text(client.get("/notifications/channels/on-call/"))
    assert SECRET not in page + text(client.get("/notifications/channels/on-call/"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "nowhere"}, "Write an address"),
        ({"secret": "short"}, "16 to 200"),
        ({"name": "On Call"}, "lower-case"),
        ({"batching": "9999"}, "less than or equal"),
    ],
)
def test_an_error_is_shown_beside_its_field(person, world: World, change: dict[str, str], words: str):
    response = person("admin").post("/notifications/new/webhook/", {**FIRST, **change})
    assert response.status_code == 422
    assert words in text(response)
    assert not Channel.objects.exists()


def test_a_pager_asks_for_its_key_and_fills_in_its_address(person, world: World):
    client = person("admin")
    assert ">PagerDuty</a>" in text(client.get("/notifications/"))
    form = text(client.get("/notifications/new/pagerduty/"))
    assert "Integration key" in form
    assert "events.eu.pagerduty.com" in form
    assert 'name="person"' not in form
    given = {"name": "pager", "secret": "", "language": "en", "batching": "10", "min_interval": "60"}
    assert client.post("/notifications/new/pagerduty/", given).status_code == 422
    refused = client.post("/notifications/new/pagerduty/", {**given, "secret": "short"})
    assert "32 letters and digits" in text(refused)
    key = "0123456789abcdef0123456789abcdef"
    assert client.post("/notifications/new/pagerduty/", {**given, "secret": key}).status_code == 302
    assert "events.pagerduty.com" in text(client.get("/notifications/"))
    assert key not in text(client.get("/notifications/")) + text(client.get("/notifications/channels/pager/"))
    refused = client.post("/notifications/routes/new/", {"channel": "pager", "kinds": ["rescue.healed"]})
    assert (refused.status_code, "Pagers do not accept rescue.healed" in text(refused)) == (422, True)


def test_an_alertmanager_asks_for_its_address_and_no_secret(person, world: World):
    client = person("admin")
    form = text(client.get("/notifications/new/alertmanager/"))
    assert "alertmanager.monitoring:9093" in form
    assert 'name="quiet_hours"' not in form
    given = {"name": "am", "url": "", "secret": "", "language": "en", "batching": "10", "min_interval": "60"}
    assert client.post("/notifications/new/alertmanager/", given).status_code == 422
    made = client.post("/notifications/new/alertmanager/", {**given, "url": "http://am.example:9093"})
    assert made.status_code == 302
    row = Channel.objects.get()
    assert (row.kind, row.url, row.secret) == ("alertmanager", "http://am.example:9093", "")


def test_mail_without_a_server_names_the_setting(person, world: World):
    given = {**FIRST, "name": "mail", "recipients": "a@example.com, b@example.com"}
    response = person("admin").post("/notifications/new/mail/", given)
    assert "Set KCOVER_MAIL_URL" in text(response)


def test_empty_fields_keep_their_value(person, world: World, channel: Channel):
    given = {"url": "", "secret": "", "language": "zh-hans", "batching": "3", "min_interval": "0", "enabled": "no"}
    client = person("admin")
    assert client.post("/notifications/channels/on-call/", given).status_code == 422
    assert client.post("/notifications/channels/on-call/", {**given, "reason": "quiet"}).status_code == 302
    channel.refresh_from_db()
    assert (channel.url, channel.secret) == (HOOK["url"], SECRET)
    assert (channel.language, channel.batching, channel.min_interval, channel.enabled) == ("zh-hans", 3, 0, False)
    assert channel.remind is None
    assert client.post("/notifications/channels/on-call/", {**given, "remind": "900", "reason": "x"}).status_code == 302
    channel.refresh_from_db()
    assert channel.remind == 900
    assert 'value="900"' in text(client.get("/notifications/channels/on-call/"))
    assert Entry.objects.filter(verb="channel.changed").earliest("sequence").data["reason"] == "quiet"
    assert "Disabled" in text(client.get("/notifications/"))


def test_routes_are_chosen_by_event_kind(person, world: World, channel: Channel):
    client = person("admin")
    form = text(client.get("/notifications/routes/new/?channel=on-call"))
    assert form.count('name="kinds"') == len(events.KINDS)
    assert len(re.findall(r'value="[a-z.]+" checked', form)) == len(events.URGENT_KINDS)
    assert '<option value="on-call" selected>' in form
    assert client.post("/notifications/routes/new/", {"channel": "on-call"}).status_code == 422
    given = {"channel": "on-call", "kinds": ["rescue.failed", "incident.opened"], "cluster": "c1", "least": "fatal"}
    assert client.post("/notifications/routes/new/", given).status_code == 302
    route = Route.objects.get()
    assert (route.kinds, route.cluster, route.least) == (["rescue.failed", "incident.opened"], world.cluster, "fatal")
    page = text(client.get("/notifications/"))
    assert "Rescue failed" in page
    assert client.post(f"/notifications/routes/{route.pk}/delete/", {"reason": "noise"}).status_code == 302
    assert not Route.objects.exists()
    assert Entry.objects.get(verb="route.deleted").data["reason"] == "noise"


def test_a_namespace_is_bound_to_a_released_channel(person, world: World, channel: Channel):
    client = person("admin")
    assert "/notifications/namespaces/new/" not in text(client.get("/notifications/"))
    assert 'value="on-call"' not in text(client.get("/notifications/namespaces/new/"))
    Channel.objects.update(for_owners=True)
    assert "/notifications/namespaces/new/?channel=on-call" in text(client.get("/notifications/"))
    assert '<option value="on-call" selected>' in text(client.get("/notifications/namespaces/new/?channel=on-call"))
    given = {"channel": "on-call", "cluster": "c1", "namespace": "team-*"}
    for wrong in ({"namespace": "A b"}, {"cluster": "c9"}, {"channel": ""}):
        assert client.post("/notifications/namespaces/new/", {**given, **wrong}).status_code == 422
    assert client.post("/notifications/namespaces/new/", given).status_code == 302
    route = NamespaceRoute.objects.get()
    assert "team-*" in text(client.get("/notifications/"))
    assert "team-*" in text(client.get(f"/notifications/namespaces/{route.pk}/delete/"))
    assert client.post(f"/notifications/namespaces/{route.pk}/delete/", {"reason": "moved"}).status_code == 302
    assert not NamespaceRoute.objects.exists()
    assert Entry.objects.get(verb="namespace_route.deleted").data["reason"] == "moved"


def test_a_test_delivery_shows_its_outcome(person, world: World):
    receiver = Receiver(SECRET)
    given = {"url": receiver.url, "secret": SECRET}
    services.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="t", now=world.now)
    client = person("admin")
    receiver.statuses = [500, 200]
    client.post("/notifications/channels/on-call/test/")
    (delivery,) = Delivery.objects.all()
    services.send(delivery.pk, clock=lambda: delivery.opened_at)
    page = text(client.get("/notifications/"))
    assert "127.0.0.1 answered HTTP 500." in page
    assert "Failing" in page
    client.post(f"/notifications/deliveries/{delivery.pk}/retry/")
    delivery.refresh_from_db()
    services.send(delivery.pk, clock=lambda: delivery.due_at)
    receiver.stop()
    page = text(client.get("/notifications/"))
    assert "Working" in page
    assert "This is a test message. The channel on-call works." in page
    assert Entry.objects.get(verb="channel.tested").subject == "channel on-call"


def test_the_log_is_narrowed_and_goes_back_by_key(person, world: World, channel: Channel):
    services.make_route(channel, kinds=["automation.paused"], actor="t", now=world.now)
    services.sweep(now=world.now)
    for number in range(3):
        fleet.pause(cluster=None, reason=f"drill {number}", actor="user:x", now=world.now)
        services.sweep(now=world.now)
        sent = {"batching": False, "state": "sent", "subject": f"paused {number}", "text": "x"}
        Delivery.objects.filter(batching=True).update(**sent)
    client = person("admin")
    assert [f"paused {n}" in text(client.get("/notifications/?state=sent")) for n in range(3)] == [True] * 3
    assert "No deliveries match" in text(client.get("/notifications/?state=failed"))
    assert "No deliveries match" in text(client.get("/notifications/?kind=rescue.failed"))
    newest = Delivery.objects.latest("pk")
    page = text(client.get(f"/notifications/?before={newest.pk}"))
    assert "paused 2" not in page
    assert "paused 1" in page
    assert 'data-topics=""' in page


def test_a_channel_is_deleted_with_a_reason(person, world: World, channel: Channel):
    client = person("admin")
    assert client.post("/notifications/channels/on-call/delete/", {"reason": ""}).status_code == 422
    assert client.post("/notifications/channels/on-call/delete/", {"reason": "gone"}).status_code == 302
    assert not Channel.objects.exists()


@pytest.mark.parametrize("number", [1, 3])
def test_the_page_costs_as_many_queries_whatever_there_is(
    person, world: World, number: int, django_assert_num_queries: Any
):
    for index in range(number):
        given = {"url": HOOK["url"], "secret": SECRET}
        row = services.CHANNELS.make(Channel(name=f"c-{index}", kind="webhook"), given, actor="t", now=world.now)
        services.make_route(row, kinds=["rescue.failed"], cluster=world.cluster, actor="t", now=world.now)
        services.test(row, actor="t", now=world.now + timedelta(seconds=index))
    client = person("admin")
    client.get("/notifications/")
    with django_assert_num_queries(QUERIES):
        client.get("/notifications/", headers={"HX-Request": "true"})
    assert queries.channels().count() == number
