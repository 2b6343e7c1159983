"""A rule's ``notify`` step: people are told before anything is taken away, and healing never depends on it."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from kcover import reasons
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Delivery
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.actions import notify
from kcover_portal.rescue.control import notify_steps
from tests.codes import code_of
from tests.portal.api.conftest import person
from tests.portal.notify.conftest import make_channel, tell
from tests.portal.notify.pages import pager
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: heal}}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {{name: notify, attribute: {{{attribute}}}}}
        - name: drain
"""


def rule(world: World, attribute: str = 'channel: on-call, message: "Xid <code>: call Bo"') -> None:
    policies.apply(POLICY.format(attribute=attribute), author="test", reason="", now=world.now)


@pytest.fixture
def silent(world: World, receiver: Receiver) -> Channel:
    """A channel without a route: only rules speak to it."""
    return make_channel(receiver, now=world.now)


def pass_time(world: World, seconds: float) -> None:
    world.now += timedelta(seconds=seconds)
    tell(world)
    world.sync()
    world.work()


def test_a_notify_step_sends_its_message_and_then_the_plan_continues(world: World, silent: Channel, receiver: Receiver):
    rule(world)
    world.fault(62)
    world.work()
    step = world.step("notify")
    assert (step.state, code_of(step.because)) == ("waiting", "notify_waiting")
    assert world.step("drain").state == "pending"
    pass_time(world, 0)
    pass_time(world, 2)
    (document,) = receiver.asked
    assert document["lines"][0].startswith("Message from a rule: Xid 62 · gpu-1 · c1 – Xid 62: call Bo")
    assert document["events"][0]["record"] == world.rescue().pk
    expected = reasons.of("notify_delivered", channel="on-call")
    assert (world.step("notify").state, world.step("notify").why) == ("done", expected)
    assert world.step("drain").state == "done"


def test_a_channel_that_is_down_stops_no_healing(world: World, silent: Channel, receiver: Receiver):
    receiver.statuses = [500]
    rule(world)
    world.fault(62)
    world.work()
    for _ in range(7):
        pass_time(world, 15)
    assert world.step("notify").state == "waiting"
    pass_time(world, 16)
    step = world.step("notify")
    assert (step.state, step.why) == ("done", reasons.of("notify_timeout", minutes=2))
    assert step.finished_at - step.started_at < notify.TIME_LIMIT + timedelta(seconds=30)
    assert world.step("drain").state == "done"


def test_a_refusal_settles_the_step_at_once(world: World, silent: Channel, receiver: Receiver):
    receiver.statuses = [404]
    rule(world)
    world.fault(62)
    world.work()
    pass_time(world, 0)
    pass_time(world, 2)
    step = world.step("notify")
    failed = reasons.of(
        "notify_failed", channel="on-call", why=reasons.of("host_answered", host="127.0.0.1", status="404")
    )
    assert (step.state, step.why) == ("done", failed)


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([400, 202], "Delivered to on-call."),
        ([202, 400], "Not delivered to on-call: 127.0.0.1 answered HTTP 400. 1 of 2 events were rejected."),
    ],
)
def test_the_step_counts_the_pagers_response_to_its_own_event(
    world: World, receiver: Receiver, statuses: list[int], said: str
):
    pager(world, receiver, "incident.opened", name="on-call")
    receiver.statuses = statuses
    rule(world)
    world.fault(62)
    world.work()
    pass_time(world, 0)
    pass_time(world, 2)
    assert [one["payload"]["class"] for one in receiver.asked] == ["incident.opened", "rule.notify"]
    assert Delivery.objects.get().state == "failed"
    assert str(world.step("notify").why) == said


def test_a_notify_step_without_a_sender_times_out_and_the_plan_continues(world: World, silent: Channel):
    rule(world)
    world.fault(62)
    world.work()
    world.until("done", step="notify", seconds=20)
    assert world.step("notify").why == reasons.of("notify_timeout", minutes=2)


def test_without_a_channel_the_routes_decide(world: World, receiver: Receiver):
    for name in ("a", "b", "c"):
        row = make_channel(receiver, name=name, now=world.now)
        if name != "c":
            services.make_route(row, kinds=["rule.notify"], actor="test", now=world.now)
    rule(world, 'message: "look"')
    world.fault(62)
    world.work()
    pass_time(world, 0)
    pass_time(world, 2)
    assert sorted(one["channel"] for one in receiver.asked) == ["a", "b"]
    assert code_of(world.step("notify").because) == "notify_delivered"


def test_a_notify_step_without_a_route_says_so(world: World, silent: Channel):
    rule(world, 'message: "look"')
    world.fault(62)
    world.work()
    pass_time(world, 0)
    assert code_of(world.step("notify").because) == "notify_no_route"


def test_the_failure_of_one_channel_does_not_hide_the_success_of_the_other(world: World, receiver: Receiver):
    other = Receiver()
    other.statuses = [404]
    for name, to in (("a", other), ("b", receiver)):
        row = make_channel(to, name=name, now=world.now)
        services.make_route(row, kinds=["rule.notify"], actor="test", now=world.now)
    rule(world, 'message: "look"')
    world.fault(62)
    world.work()
    pass_time(world, 0)
    pass_time(world, 2)
    other.stop()
    assert len(other.asked) == 1
    assert world.step("notify").why == reasons.of("notify_delivered", channel="b")


def test_a_disabled_channel_settles_the_step(world: World, silent: Channel, receiver: Receiver):
    rule(world)
    services.CHANNELS.change(silent, {"enabled": False}, actor="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    pass_time(world, 0)
    assert world.step("notify").why == reasons.of("notify_no_channel", channel="on-call")


def test_a_hundred_rescues_are_few_messages(db: None, receiver: Receiver):
    world = World(nodes=30)
    services.sweep(now=world.now)
    make_channel(receiver, now=world.now)
    rule(world)
    world.cluster.guards = {"storm": {"enabled": False}, "breaker": {"enabled": False}, "floor": {"percent": None}}
    world.cluster.save()
    for index in range(1, 31):
        world.fault(62, node=f"gpu-{index}")
    world.work()
    pass_time(world, 0)
    pass_time(world, 2)
    assert len(receiver.asked) == 1
    assert receiver.asked[0]["lines"][0].startswith("Message from a rule: Xid 62 · gpu-1, gpu-2")
    assert "and 22 more nodes" in receiver.asked[0]["lines"][0]
    assert {world.step("notify", f"gpu-{index}").state for index in range(1, 31)} == {"done"}
    world.uninstall()


def test_a_rescue_that_was_cancelled_is_not_woken(world: World, silent: Channel, receiver: Receiver):
    rule(world)
    world.fault(62)
    world.work()
    pass_time(world, 0)
    rescue.cancel(world.rescue(), actor="user:bo", reason="no", now=world.now)
    pass_time(world, 2)
    assert len(receiver.asked) == 1
    assert world.rescue().state == "cancelled"
    assert not notify_steps.settle_step(
        world.rescue().steps.get(name="notify").pk, because=reasons.of("notify_no_route"), now=world.now
    )


def test_a_manual_uncordon_cancels_a_rescue_in_its_notify_step(world: World, silent: Channel):
    rule(world)
    world.fault(62)
    world.work()
    world.kube.uncordon(NODE)
    world.pass_time()
    assert world.rescue().state == "cancelled"


def test_a_worker_that_died_sends_one_message(world: World, silent: Channel, receiver: Receiver):
    rule(world)
    world.fault(62)
    world.work()
    requested_at = world.step("notify").progress["requested_at"]
    for _ in range(3):
        pass_time(world, 0)
    assert world.step("notify").progress["requested_at"] == requested_at
    assert Delivery.objects.count() == 1


def by_service(channel: Channel, now: datetime) -> None:
    services.CHANNELS.delete(channel, actor="test", reason="", now=now)


def by_rest(channel: Channel, now: datetime) -> None:
    assert person("ada", "admin", now).call("delete", f"channels/{channel.name}").status_code == 204


def on_the_console(channel: Channel, now: datetime) -> None:
    address = f"/notifications/channels/{channel.name}/delete/"
    assert person("ada", "admin", now).client.post(address, {"reason": "gone"}).status_code == 302


@pytest.mark.parametrize("delete", [by_service, by_rest, on_the_console])
def test_the_delivery_of_a_deleted_channel_is_settled(
    world: World, silent: Channel, receiver: Receiver, delete: Callable[[Channel, datetime], None]
):
    rule(world)
    world.fault(62)
    world.work()
    pass_time(world, 0)
    policies.delete("heal", author="test", reason="", now=world.now)
    delete(silent, world.now)
    pass_time(world, 2)
    assert world.step("notify").why == reasons.of("notify_channel_deleted", channel="on-call")
    assert receiver.asked == []


# --- the rule


def problems(text: str) -> list[tuple[int, str]]:
    return [(one.line, one.message) for one in policies.validate(text).problems]


def test_an_unknown_channel_in_a_policy_is_a_problem_with_its_line(world: World):
    text = POLICY.format(attribute="channel: on-cal")
    none = "Unknown channel on-cal. An admin creates channels on the Notifications page."
    assert problems(text) == [(11, none)]


def test_existing_channels_are_named(world: World, silent: Channel):
    text = POLICY.format(attribute="channel: on-cal")
    assert problems(text) == [(11, "Unknown channel on-cal. Use one of on-call.")]
    assert problems(POLICY.format(attribute="channel: on-call")) == []


def test_a_channel_in_use_is_not_deleted(world: World, silent: Channel):
    rule(world)
    with pytest.raises(FieldError, match=r"Channel on-call is used by rule heal#1. Change the rule first"):
        services.CHANNELS.delete(silent, actor="test", reason="", now=world.now)
    assert Channel.objects.filter(name="on-call").exists()
