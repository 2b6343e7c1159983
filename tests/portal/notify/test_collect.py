"""Events reach the channels of their routes once, and a storm of events is one message."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import translation

from kcover import audit, reasons
from kcover.decisions import guards
from kcover.faults.fault import Fault
from kcover.notify import events
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import PortalFault, close_by_hand, record_faults
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import localization
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Cursor, Delivery, Notice
from kcover_portal.rescue import services as rescue
from tests import codes
from tests.portal.notify import scenes
from tests.portal.notify.conftest import make_channel, tell
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
APPROVE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask}
spec: {rules: [{priority: 10, errorCode: ["62"], approval: {required: true}, actions: [{name: cordon}, {name: drain}]}]}
"""


def kinds(document: Any) -> list[str]:
    return [one["kind"] for one in document["events"]]


def test_a_fault_and_its_rescue_are_one_signed_message(
    world: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    world.fault(62)
    world.work()
    (document,) = delivered()
    assert receiver.signed == [True]
    assert kinds(document) == ["incident.opened", "rescue.opened"]
    opened = next(one for one in document["events"] if one["kind"] == "incident.opened")
    incident = Incident.objects.get()
    assert (opened["cluster"], opened["node"], opened["what"]) == ("c1", NODE, "xid 62")
    assert (opened["severity"], opened["record"]) == (incident.severity, incident.pk)
    assert document["subject"] == f"Incident opened: Xid 62 ({incident.severity}) · gpu-1 · c1 (and 1 other)"
    assert receiver.headers[0]["X-Kcover-Delivery"] == document["delivery"]
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts, codes.code_of(delivery.because)) == ("sent", 1, "answered")
    assert delivery.text.startswith("Incident opened: Xid 62")
    channel.refresh_from_db()
    assert (channel.sent_at, channel.trouble) == (world.now, {})


def test_repeated_sweeps_record_each_event_once(world: World, channel: Channel, delivered: Delivered):
    world.fault(62)
    world.work()
    for _ in range(3):
        services.sweep(now=world.now)
    delivered()
    Cursor.objects.filter(name="incidents").update(position=0)
    Cursor.objects.filter(name="ledger c1").update(position=0)
    assert len(delivered()) == 1
    assert Notice.objects.count() == 2


def test_the_whole_story_of_a_healed_node(world: World, channel: Channel, delivered: Delivered):
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    delivered()
    assert [one.kind for one in Notice.objects.order_by("at", "pk")][:2] == ["incident.opened", "rescue.opened"]
    assert set(Notice.objects.values_list("kind", flat=True)) == {
        *("incident.opened", "rescue.opened", "incident.closed", "rescue.healed")
    }


def test_an_approval_request_and_its_answer_are_notified(
    world: World, channel: Channel, delivered: Delivered, settings: Any
):
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    world.uninstall()
    Notice.objects.all().delete()
    Cluster.objects.all().delete()
    asking = World(policy=APPROVE)
    asking.fault(62)
    asking.work()
    (document,) = delivered()
    question = asking.rescue()
    assert document["subject"] == "Approval waiting: Xid 62 · gpu-1 · c1 (and 2 others)"
    until = f"{question.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    address = f"https://portal.example/approvals/#question-{question.pk}"
    assert document["lines"][0].endswith(f"An answer counts until {until}. {address}")
    rescue.approve(question, actor="user:bo", reason="go on", now=asking.now)
    assert delivered()[1]["lines"] == [
        f"Approval answered: Xid 62 · gpu-1 · c1 – bo: go on https://portal.example/rescues/{question.pk}/"
    ]
    asking.uninstall()


def test_a_storm_of_three_hundred_is_one_message(world: World, channel: Channel, delivered: Delivered):
    for index in range(2, 302):
        world.kube.add_node(f"gpu-{index}", gpus=8)
    world.sync()
    for index in range(2, 302):
        seen = Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg")
        record_faults.keep_fault(world.node(f"gpu-{index}"), seen, boot_id="b", now=world.now)
    record_faults.keep_storm(
        world.cluster,
        guards.Symptom(trait="code", kind="xid", value="79", nodes=300),
        nodes=["gpu-2", "gpu-3"],
        now=world.now,
    )
    storm = Incident.objects.get(node=None)
    opened = audit.StormOpened(incident=storm.pk, trait="code", kind="xid", value="79", nodes=300, reached=3)
    ledger.record("c1", opened, actor="system", now=world.now)
    (document,) = delivered()
    assert [line.split(" – ")[0] for line in document["lines"]] == [
        "Storm: Xid 79 · 300 nodes · c1",
        "Incident opened: Xid 79 (fatal) · gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7, gpu-8, gpu-9"
        " and 292 more nodes · c1",
    ]
    assert len(document["events"]) == 301
    assert Delivery.objects.count() == 1


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("trait", guards.TRAITS)
def test_a_storm_is_notified_with_its_symptom(
    world: World, channel: Channel, delivered: Delivered, trait: str, language: str
):
    services.CHANNELS.change(channel, {"language": language}, actor="test", reason="", now=world.now)
    symptom = guards.Symptom(trait=trait, kind="xid" if trait == "code" else "", value="79", nodes=3)
    storm, _opened = record_faults.keep_storm(world.cluster, symptom, nodes=["gpu-1"], now=world.now)
    opened = audit.StormOpened(
        incident=storm.pk, trait=trait, kind=symptom.kind, value=symptom.value, nodes=3, reached=3
    )
    ledger.record("c1", opened, actor="system", now=world.now)
    close_by_hand(storm, actor="user:bo", reason="switched", now=world.now)
    (document,) = delivered()
    told_of = {one["kind"]: one for one in document["events"]}
    assert {kind: one["what"] for kind, one in told_of.items()} == dict.fromkeys(
        ("storm.opened", "incident.closed"), symptom.text
    )
    assert told_of["storm.opened"]["because_reason"] == {"code": f"storm_of_{trait}", "params": {"value": symptom.text}}
    with translation.override(language):
        sentence = localization.say(reasons.of(f"storm_of_{trait}", value=symptom.text))
    assert told_of["storm.opened"]["because"] == sentence
    assert document["lines"][0].partition(" – ")[2].startswith(sentence)


def test_events_beyond_the_limit_are_counted_in_the_message(
    world: World, channel: Channel, delivered: Delivered, monkeypatch: Any
):
    monkeypatch.setattr("kcover_portal.notify.services.collect.MAX_NOTICES", 3)
    for code in (13, 31, 43, 45, 48):
        world.fault(code)
    (document,) = delivered()
    assert (len(document["events"]), document["omitted"]) == (3, 2)
    assert document["lines"][-1] == "and 2 more"


def test_messages_keep_their_interval_and_events_gather_meanwhile(world: World, channel: Channel, delivered: Delivered):
    world.fault(62)
    assert len(delivered(10)) == 1
    for _ in range(5):
        world.now += timedelta(seconds=5)
        world.fault(31, pci=f"0000:{world.now.second:02x}:00")
        tell(world)
    assert len(delivered(5)) == 1
    assert len(delivered(31)) == 2


def test_a_pause_a_resume_and_a_changed_mode(world: World, channel: Channel, delivered: Delivered):
    fleet.pause(cluster=None, reason="fire drill", actor="user:anna", now=world.now)
    fleet.resume(cluster=None, reason="over", actor="user:anna", now=world.now)
    cluster_settings.set_cluster(world.cluster, {"mode": "paused"}, actor="user:bo", reason="cooling", now=world.now)
    cluster_settings.set_cluster(world.cluster, {"mode": "shadow"}, actor="user:bo", reason="", now=world.now)
    (document,) = delivered()
    assert set(document["lines"]) == {
        "Automation resumed – anna: over",
        "Automation resumed · c1 – by bo",
        "Automation paused – anna: fire drill",
        "Automation paused · c1 – bo: cooling",
    }


def test_a_recurring_fault_calls_a_person_once(db: None, receiver: Receiver):
    world = World()
    services.sweep(now=world.now)
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=["rescue.human"], actor="test", now=world.now)
    scenes.a_fault_that_comes_back(world)
    for _ in range(3):
        world.pass_time(60)
        tell(world)
    (document,) = receiver.asked
    (event,) = document["events"]
    assert (event["node"], event["what"]) == ("gpu-1", "xid 62")
    assert "An operator must inspect" in event["because"]
    world.uninstall()


def test_a_tripped_breaker_is_notified_once_a_window(db: None, receiver: Receiver):
    world = World(nodes=6, policy=CORDON)
    services.sweep(now=world.now)
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=["breaker.tripped"], actor="test", now=world.now)
    cluster_settings.set_guards(
        world.cluster,
        {
            "storm": {"enabled": False},
            "breaker": {"enabled": True, "limit": 1, "window": 3600},
            "floor": {"percent": None},
        },
        actor="test",
        reason="",
        now=world.now,
    )
    for index in range(1, 6):
        world.fault(62, node=f"gpu-{index}")
        world.work()
    world.now += timedelta(seconds=30)
    tell(world)
    world.now += timedelta(seconds=30)
    tell(world)
    (document,) = receiver.asked
    assert document["lines"] == ["Breaker tripped · c1 – " + document["events"][0]["because"]]
    assert document["events"][0]["because"].startswith("Breaker tripped: 1 of 6 nodes")
    assert document["events"][0]["because_reason"]["code"] == "breaker"
    world.uninstall()


def test_the_fault_of_a_program_is_sent_only_to_routes_for_it(world: World, receiver: Receiver, delivered: Delivered):
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=["incident.opened", "incident.closed"], actor="test", now=world.now)
    world.fault(31)
    assert delivered() == []
    services.make_route(row, kinds=["program.fault"], actor="test", now=world.now)
    world.fault(13)
    assert [one["what"] for one in delivered()[0]["events"]] == ["xid 13"]


def test_only_the_routes_cluster_and_severity(world: World, receiver: Receiver, delivered: Delivered):
    other = Cluster.objects.create(name="c2", created_at=world.now)
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=["incident.opened"], cluster=other, actor="test", now=world.now)
    services.make_route(row, kinds=["incident.opened"], least="fatal", actor="test", now=world.now)
    world.fault(63)
    world.fault(79)
    (document,) = delivered()
    assert [one["what"] for one in document["events"]] == ["xid 79"]


def test_without_a_route_nothing_is_sent_and_a_later_route_sends_no_old_events(
    world: World, receiver: Receiver, delivered: Delivered
):
    row = make_channel(receiver, now=world.now)
    world.fault(62)
    world.work()
    assert delivered() == []
    services.make_route(row, kinds=events.KINDS, actor="test", now=world.now)
    assert delivered() == []


def test_events_from_before_the_first_channel_are_not_sent(db: None, receiver: Receiver):
    """Later events are collected, even if the first look comes after them: a worker may start last."""
    world = World()
    world.fault(62)
    world.work()
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=["incident.opened", "automation.paused"], actor="test", now=world.now)
    world.now += timedelta(seconds=1)
    world.fault(79)
    fleet.pause(cluster=None, reason="drill", actor="user:anna", now=world.now)
    services.sweep(now=world.now)
    kinds = Notice.objects.order_by("kind").values_list("kind", "what")
    assert list(kinds) == [("automation.paused", ""), ("incident.opened", "xid 79")]
    world.uninstall()


def test_a_cluster_that_is_new_is_read_from_its_beginning(world: World, channel: Channel, delivered: Delivered):
    fresh = Cluster.objects.create(name="c2", created_at=world.now)
    fleet.pause(cluster=fresh, reason="not yet", actor="user:anna", now=world.now)
    assert delivered()[0]["lines"] == ["Automation paused · c2 – anna: not yet"]


def test_events_from_before_a_long_outage_are_not_sent(world: World, channel: Channel, delivered: Delivered):
    world.fault(62)
    world.now += events.MAX_AGE + timedelta(hours=1)
    world.fault(79)
    assert [one["what"] for one in delivered()[0]["events"]] == ["xid 79"]


def test_an_incident_whose_id_was_there_before_it_was_committed(world: World, channel: Channel, delivered: Delivered):
    """Two transactions: the one that took the lower id ends later."""
    world.fault(62)
    late = Incident.objects.get()
    number = late.pk
    fields = {field.attname: getattr(late, field.attname) for field in Incident._meta.concrete_fields}
    late.delete()
    world.now += timedelta(seconds=1)
    seen = Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg")
    record_faults.keep_fault(world.node(), seen, boot_id="b", now=world.now)
    if Incident.objects.get().pk == number:  # SQLite gives the id anew
        Incident.objects.filter(pk=number).update(pk=number + 1)
    assert [one["what"] for one in delivered()[0]["events"]] == ["xid 79"]
    Incident.objects.create(**fields)
    assert [one["what"] for one in delivered()[1]["events"]] == ["xid 62"]
    assert str(number) not in Cursor.objects.get(name="incidents").gaps


def test_a_silent_agent_is_no_fault_of_the_node(world: World, channel: Channel, delivered: Delivered):
    because = reasons.of("agent_silent", since="8")
    seen = PortalFault(kind="agent", code="silent", because=because, source="portal")
    record_faults.keep_fault(world.node(), seen, boot_id="b", now=world.now)
    Incident.objects.update(is_user_fault=True)
    (document,) = delivered()
    assert document["lines"] == [f"Agent silent: agent silent (warning) · gpu-1 · c1 – {because}"]


def test_a_silent_agent_is_notified_in_the_language_of_the_channel(
    world: World, channel: Channel, delivered: Delivered
):
    services.CHANNELS.change(channel, {"language": "zh-hans"}, actor="test", reason="", now=world.now)
    because = reasons.of("agent_silent", since="8")
    seen = PortalFault(kind="agent", code="silent", because=because, source="portal")
    record_faults.keep_fault(world.node(), seen, boot_id="b", now=world.now)
    Incident.objects.update(is_user_fault=True)
    (document,) = delivered()
    with translation.override("zh-hans"):
        chinese = localization.say(because)
    assert chinese != str(because)
    assert document["lines"][0].endswith(f" – {chinese}")


def test_a_disabled_channel_gathers_no_events(world: World, channel: Channel, delivered: Delivered):
    services.CHANNELS.change(channel, {"enabled": False}, actor="test", reason="", now=world.now)
    world.fault(62)
    assert delivered() == []
    assert not Delivery.objects.exists()


def test_a_sweep_without_events_writes_nothing(
    world: World, channel: Channel, delivered: Delivered, django_assert_num_queries: Any
):
    world.fault(62)
    delivered()
    delivered()
    Cursor.objects.filter(name="incidents").update(gaps={})  # PostgreSQL counts on from other tests' ids
    with django_assert_num_queries(10) as captured:
        services.sweep(now=world.now)
    assert all(query["sql"].startswith(("SELECT", "(SELECT")) for query in captured.captured_queries)
