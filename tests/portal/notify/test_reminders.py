"""A pending approval request is sent once more, on the channels that sent it, and never after its answer."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Delivery, Notice
from kcover_portal.notify.services import collect, reminders
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.models import Rescue
from tests import codes
from tests.portal.notify import scenes
from tests.portal.notify.conftest import make_channel, tell
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_collect import APPROVE
from tests.portal.notify.test_pagers import KEY
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
HOUR = 3600


@pytest.fixture
def question(world: World, channel: Channel, delivered: Delivered) -> World:
    """A rescue that waits for a yes, for a day; a channel was told of it a minute later."""
    channel.routes.all().delete()
    services.make_route(channel, kinds=["approval.waiting"], actor="test", now=world.now)
    policies.delete("heal", author="test", reason="", now=world.now)
    policies.apply(APPROVE, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    assert len(delivered()) == 1
    return world


def remind(channel: Channel, seconds: int | None, world: World) -> None:
    services.CHANNELS.change(channel, {"remind": seconds}, actor="test", reason="", now=world.now)


def test_a_reminder_is_sent_after_half_of_the_time(question: World, channel: Channel, delivered: Delivered):
    assert len(delivered(12 * HOUR - 200)) == 1
    delivered(200)
    document = delivered()[1]
    (reminder,) = document["events"]
    row = question.rescue()
    assert (reminder["kind"], reminder["again"], reminder["record"]) == ("approval.waiting", True, row.pk)
    assert document["subject"] == "Approval waiting (reminder): Xid 62 · gpu-1 · c1"
    until = f"{row.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    assert document["lines"][0].endswith(f" – {reasons.of('still_unanswered', until=until)}")
    for _ in range(3):
        delivered(HOUR)
    assert len(delivered()) == 2


def test_the_channel_sets_the_time_of_the_reminder(question: World, channel: Channel, delivered: Delivered):
    remind(channel, 600, question)
    assert len(delivered(400)) == 1
    delivered(200)
    assert len(delivered()) == 2


@pytest.mark.parametrize("seconds", [0, 2 * 24 * HOUR])
def test_a_reminder_that_is_off_or_too_late_is_not_sent(
    question: World, channel: Channel, delivered: Delivered, seconds: int
):
    remind(channel, seconds, question)
    delivered(23 * HOUR)
    assert len(delivered()) == 1


def test_a_reminder_is_never_in_the_message_of_the_request(
    world: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    """However long a message gathers, and however often it is tried."""
    services.CHANNELS.change(channel, {"batching": 3600, "remind": 300}, actor="test", reason="", now=world.now)
    policies.delete("heal", author="test", reason="", now=world.now)
    policies.apply(APPROVE, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    delivered(400)
    receiver.statuses = [502, 200]
    delivered(HOUR)
    assert [one.state for one in Delivery.objects.all()] == ["pending"]
    assert not Notice.objects.filter(again=True).exists()
    delivered(600)
    assert [one.state for one in Delivery.objects.all()] == ["sent"]
    delivered(299)
    assert not Notice.objects.filter(again=True).exists()
    delivered(1)
    assert Notice.objects.get(again=True).delivery_id != Delivery.objects.earliest("pk").pk


def test_an_answered_request_is_not_reminded(question: World, channel: Channel, delivered: Delivered):
    rescue.approve(question.rescue(), actor="user:bo", reason="go on", now=question.now)
    delivered(13 * HOUR)
    assert len(delivered()) == 1


def test_a_withdrawn_request_is_not_reminded(question: World, channel: Channel, delivered: Delivered):
    rescue.cancel(question.rescue(), actor="user:bo", reason="no", now=question.now)
    delivered(13 * HOUR)
    assert len(delivered()) == 1


def test_an_expired_request_is_not_reminded(question: World, channel: Channel, delivered: Delivered):
    question.now += timedelta(days=1)
    delivered(0)
    assert len(delivered()) == 1


def test_an_answer_withdraws_a_gathering_reminder(question: World, channel: Channel, delivered: Delivered):
    services.CHANNELS.change(channel, {"batching": 600}, actor="test", reason="", now=question.now)
    question.now += timedelta(hours=12)
    services.sweep(now=question.now)
    assert Notice.objects.filter(again=True).exists()
    rescue.reject(question.rescue(), actor="user:bo", reason="no", now=question.now)
    assert len(delivered(601)) == 1
    delivery = Delivery.objects.latest("pk")
    assert (delivery.state, codes.code_of(delivery.because)) == ("dropped", "question_settled")
    channel.refresh_from_db()
    assert channel.trouble == {}


def test_a_new_request_of_the_same_rescue_withdraws_the_reminder(
    question: World, channel: Channel, delivered: Delivered
):
    services.CHANNELS.change(channel, {"batching": 600}, actor="test", reason="", now=question.now)
    question.now += timedelta(hours=12)
    services.sweep(now=question.now)
    Rescue.objects.update(expires_at=question.now + timedelta(hours=24))
    delivered(601)
    delivery = Delivery.objects.latest("pk")
    assert (delivery.state, codes.code_of(delivery.because)) == ("dropped", "question_settled")


def test_the_first_of_two_approvals_keeps_the_request_open(world: World, channel: Channel, delivered: Delivered):
    scenes.a_question_for_two(world, APPROVE)
    delivered()
    rescue.approve(world.rescue(), actor="user:bo", reason="", now=world.now)
    delivered()
    delivered(12 * HOUR)
    assert "Approval waiting (reminder)" in delivered()[-1]["subject"]


def test_only_channels_that_sent_the_request_send_a_reminder(
    question: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    late = make_channel(receiver, name="late", now=question.now)
    services.make_route(late, kinds=["approval.waiting"], actor="test", now=question.now)
    delivered(12 * HOUR)
    assert [one["channel"] for one in delivered()] == ["on-call", "on-call"]


def test_a_disabled_channel_and_a_pager_send_no_reminder(
    question: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    services.CHANNELS.change(channel, {"enabled": False}, actor="test", reason="", now=question.now)
    given = {"url": receiver.url, "secret": KEY}
    pager = services.CHANNELS.make(Channel(name="pager", kind="pagerduty"), given, actor="test", now=question.now)
    Notice.objects.update(channel=pager)
    delivered(12 * HOUR)
    assert len(delivered()) == 1


def test_a_collector_that_dies_in_between_reminds_once(
    question: World, channel: Channel, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
):
    """Half way through its transaction, and after it."""
    question.now += timedelta(hours=12)

    class Died(BaseException):
        pass

    def dying(*_: Any, **__: Any) -> None:
        raise Died

    monkeypatch.setattr(collect.doorbell, "publish", dying)
    with pytest.raises(Died):
        reminders.remind(now=question.now)
    monkeypatch.undo()
    assert not Notice.objects.filter(again=True).exists()
    assert reminders.remind(now=question.now) == 1
    assert reminders.remind(now=question.now) == 0
    delivered()
    assert len(delivered()) == 2


def test_a_personal_channel_gets_a_reminder_with_a_link(
    question: World, channel: Channel, delivered: Delivered, settings: Any
):
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    bo = accounts.make_user("bo", password="correct horse battery", role="approver", created_by="t", now=question.now)
    Channel.objects.update(kind="slack", secret="", person=bo, addressed_by="user:bo")
    delivered(12 * HOUR)
    assert "Answer about gpu-1 as bo: https://portal.example/approve/" in delivered()[1]["text"]


def test_a_reminder_is_in_chinese(question: World, channel: Channel, delivered: Delivered):
    services.CHANNELS.change(channel, {"language": "zh-hans"}, actor="test", reason="", now=question.now)
    delivered(12 * HOUR)
    assert "（提醒）" in delivered()[1]["subject"]


def test_without_a_request_the_reminder_costs_one_query(world: World, django_assert_num_queries: Any):
    with django_assert_num_queries(1):
        reminders.remind(now=world.now)
    tell(world)
