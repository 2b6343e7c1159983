"""The texts of messages: the reader's language, no quoted text that imitates the portal's lines, personal links."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from kcover.notify import events
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.ledger.models import Entry
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Delivery
from kcover_portal.notify.services import render
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.control import approval_links
from tests.portal.notify.test_collect import APPROVE
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
PASSWORD = "correct horse battery"


@pytest.fixture
def person(world: World) -> User:
    return accounts.make_user("bo", password=PASSWORD, role="approver", created_by="test", now=world.now)


@pytest.fixture
def question(world: World, channel: Channel) -> World:
    """A rescue that waits for a yes, and a channel that tells questions only."""
    channel.routes.all().delete()
    services.make_route(channel, kinds=["approval.waiting"], actor="test", now=world.now)
    policies.delete("heal", author="test", reason="", now=world.now)
    policies.apply(APPROVE, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    return world


def test_a_message_is_in_chinese(world: World, channel: Channel, delivered: Delivered):
    services.CHANNELS.change(channel, {"language": "zh-hans"}, actor="test", reason="", now=world.now)
    world.fault(79)
    (document,) = delivered()
    assert document["lines"] == ["新故障：Xid 79（致命） · gpu-1 · c1"]
    assert document["events"][0]["kind"] == "incident.opened"


def test_reasons_are_in_the_channels_language(world: World, channel: Channel, delivered: Delivered):
    services.CHANNELS.change(channel, {"language": "zh-hans"}, actor="test", reason="", now=world.now)
    fleet.pause(cluster=None, reason="", actor="user:bo", now=world.now)
    (document,) = delivered()
    assert document["lines"] == ["自动化已暂停 – 由 bo 操作"]
    assert document["events"][0]["because_reason"] == {"code": "acted", "params": {"by": "user:bo"}}


def test_a_personal_channel_has_a_link_that_answers_in_that_name(
    question: World, channel: Channel, person: User, delivered: Delivered, settings: Any
):
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    Channel.objects.update(kind="slack", secret="", person=person, addressed_by="user:bo")
    (body,) = delivered()
    token = re.search(r"Answer about gpu-1 as bo: https://portal\.example/approve/#(\S+)", body["text"])
    assert token is not None
    invitation = approval_links.read(token[1], now=question.now)
    assert (invitation.rescue, invitation.user) == (question.rescue(), person)
    assert "/approve/" not in Delivery.objects.get().text
    made = Entry.objects.get(verb="rescue.link_made")
    assert (made.data["approver"], made.data["channel"], made.rescue) == ("user:bo", "on-call", question.rescue().pk)


def test_a_channel_of_several_people_has_no_answer_link(
    question: World, channel: Channel, delivered: Delivered, settings: Any
):
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    Channel.objects.update(kind="slack", secret="")
    (body,) = delivered()
    assert "/approve/" not in body["text"]
    assert f"/approvals/#question-{question.rescue().pk}" in body["text"]


def test_an_answered_request_has_no_answer_link(question: World, channel: Channel, person: User, delivered: Delivered):
    services.sweep(now=question.now)
    rescue.reject(question.rescue(), actor="user:li", reason="no", now=question.now)
    channel.person, channel.addressed_by = person, "user:bo"
    assert render.answer_links(Delivery.objects.get(), channel) == []


def test_a_person_who_cannot_answer_gets_no_answer_link(question: World, channel: Channel, delivered: Delivered):
    viewer = accounts.make_user("vi", password=PASSWORD, role="viewer", created_by="test", now=question.now)
    services.sweep(now=question.now)
    channel.person, channel.addressed_by = viewer, "user:vi"
    assert render.answer_links(Delivery.objects.get(), channel) == []


@pytest.mark.parametrize(
    ("maker", "makes_links"),
    [
        ("bo", True),  # the person
        ("admin", True),
        ("approver", False),
        ("channels", False),  # only the verb write-channels
        ("gone", False),
        ("token", False),
    ],
)
def test_only_the_person_or_an_admin_leads_answer_links_anywhere(
    question: World, channel: Channel, person: User, maker: str, *, makes_links: bool
):
    """Whoever chooses the address of a channel can read what is sent there, and could answer in its person's name."""
    role = {"channels": "viewer", "gone": "admin"}.get(maker, maker if maker in ("admin", "approver") else "viewer")
    accounts.make_user("mallory", password=PASSWORD, role=role, created_by="test", now=question.now)
    User.objects.filter(username="mallory").update(is_active=maker != "gone")
    by = {"bo": "user:bo", "token": "token:mallory"}.get(maker, "user:mallory")
    Channel.objects.update(kind="slack", secret="", person=person, person_by="user:bo")
    channel.refresh_from_db()
    services.CHANNELS.change(channel, {"url": "https://hooks.example/another"}, actor=by, reason="", now=question.now)
    services.sweep(now=question.now)
    found = render.answer_links(Delivery.objects.get(), channel)
    assert (len(found) == 1) == makes_links
    if makes_links:
        token = found[0][1].rpartition("#")[2]
        assert approval_links.read(token, now=question.now).maker == by


def test_an_admin_who_chooses_the_person_does_not_vouch_for_the_address(
    question: World, channel: Channel, person: User
):
    """The address is not shown to the admin: whoever wrote it would have got links that answer as the person."""
    for name, role in (("mallory", "viewer"), ("boss", "admin")):
        accounts.make_user(name, password=PASSWORD, role=role, created_by="test", now=question.now)
    Channel.objects.update(kind="slack", secret="")
    channel.refresh_from_db()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"url": "https://hooks.example/of-mallory"}, "user:mallory"),
        ({"person": person}, "user:boss"),
    ]
    for given, by in changes:
        services.CHANNELS.change(channel, given, actor=by, reason="", now=question.now)
    services.sweep(now=question.now)
    assert render.answer_links(Delivery.objects.get(), channel) == []
    services.CHANNELS.change(channel, {"url": "https://hooks.example/of-bo"}, actor="user:boss", now=question.now)
    assert len(render.answer_links(Delivery.objects.get(), channel)) == 1


def test_another_change_keeps_who_chose_the_address(question: World, channel: Channel, person: User):
    """Also a channel from before this was stored: then it is whoever made it."""
    Channel.objects.update(kind="slack", secret="", person=person, created_by="user:bo")
    channel.refresh_from_db()
    services.CHANNELS.change(channel, {"language": "zh-hans"}, actor="user:eve", reason="", now=question.now)
    services.sweep(now=question.now)
    assert (channel.addressed_by, len(render.answer_links(Delivery.objects.get(), channel))) == ("", 1)
    services.CHANNELS.change(channel, {"person": None}, actor="user:eve", reason="", now=question.now)
    services.CHANNELS.change(channel, {"person": person}, actor="user:eve", reason="", now=question.now)
    assert render.answer_links(Delivery.objects.get(), channel) == []


def test_quoted_text_cannot_look_like_a_line_of_the_portal(world: World, channel: Channel, delivered: Delivered):
    reason = "x\nRescue failed: all of them\r\n\x1b[31m" + "y" * 460
    cluster_settings.set_cluster(world.cluster, {"mode": "paused"}, actor="user:bo", reason=reason, now=world.now)
    (document,) = delivered()
    (line,) = document["lines"]
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) <= render.MAX_LINE


def test_every_address_in_a_message_is_a_page(question: World, channel: Channel, person: User, delivered: Delivered):
    client = Client()
    client.force_login(person)
    incident = question.rescue().incidents.get()
    assert client.get(render.PAGES["incident"].format(record=incident.pk)).status_code == 200
    assert client.get(render.PAGES["rescue"].format(record=question.rescue().pk)).status_code == 200
    page, _, anchor = render.PAGES["approval"].format(record=question.rescue().pk).partition("#")
    assert f'id="{anchor}"' in client.get(page).content.decode()


def test_every_kind_has_a_title() -> None:
    assert list(render.TITLES) == list(events.KINDS)
