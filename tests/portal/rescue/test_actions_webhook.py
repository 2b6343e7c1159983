"""Webhooks: another system told, or given the node until it calls back (invariant 10)."""

import socket
from datetime import timedelta
from typing import Any

import pytest

from kcover import audit, reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.kube import port
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import outgoing
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import handover
from tests.codes import code_of, codes_of, found_in, refused
from tests.portal.rescue import worker_kills
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
SECRET = "shared"
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: hook}}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {{name: webhook, attribute: {{url: "{url}"{wait}}}}}
"""


@pytest.fixture
def other():
    made = OtherSystem(SECRET)
    yield made
    made.stop()


@pytest.fixture
def make(other: OtherSystem):
    made = []

    def world(wait: str = "", *, url: str = "", secret: str = SECRET) -> World:
        waiting = f', waittime: "{wait}"' if wait else ""
        one = World(policy=POLICY.format(url=url or other.url, wait=waiting))
        made.append(one)
        one.cluster.decision_secret = secret
        one.cluster.save()
        return one

    yield world
    for one in made:
        one.uninstall()


def cluster_calls(world: World) -> int:
    return len([call for call in world.kube.calls if call.verb not in ("list_nodes", "emit")])


# --- told only


def test_a_webhook_is_sent_signed_and_the_plan_continues(make, other: OtherSystem, settings: Any) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    world = make()
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, world.step("webhook").why) == ("succeeded", reasons.of("webhook_delivered", host="127.0.0.1"))
    (reported,) = other.asked
    assert (reported["cluster"], reported["node"], reported["rescue"], reported["code"]) == (
        "c1",
        NODE,
        rescue.pk,
        "xid 62",
    )
    assert [(one["name"], one["state"]) for one in reported["steps"]] == [("cordon", "done"), ("webhook", "running")]
    assert reported["callback"] is None
    assert other.headers[0][handover.DELIVERY] == reported["delivery"] == f"webhook-{rescue.pk}-1-0"
    begun, done = Entry.objects.filter(verb__startswith="webhook.").order_by("sequence")
    assert (begun.verb, begun.subject) == ("webhook.begun", "host 127.0.0.1")
    answered = reasons.of("host_answered", host="127.0.0.1", status="204")
    assert audit.ClusterCallDone.of_entry(done).answer == audit.WebhookAnswer(taken=True, because=answered)
    assert "hush" not in str(begun.data) + str(done.data) + str(reported)


def test_a_failing_webhook_is_retried_a_few_times_and_the_plan_continues(make, other: OtherSystem) -> None:
    other.statuses = [500]
    world = make()
    world.fault(62)
    assert world.until("succeeded", seconds=20)
    assert other.calls == len(handover.BACKOFF_SECONDS) + 1
    assert len({one["delivery"] for one in other.asked}) == 1
    assert world.step("webhook").why == reasons.both(
        reasons.of("webhook_not_delivered", host="127.0.0.1"),
        reasons.of("host_answered", host="127.0.0.1", status="500"),
    )


def test_a_webhook_is_delivered_at_the_third_attempt(make, other: OtherSystem) -> None:
    other.statuses = [503, 500, 200]
    world = make()
    world.fault(62)
    world.until("succeeded", seconds=5)
    assert other.calls == 3
    assert world.step("webhook").why == reasons.of("webhook_delivered", host="127.0.0.1")


@pytest.mark.parametrize("status", [302, 404])
def test_a_refusal_is_not_repeated_and_no_redirect_followed(make, other: OtherSystem, status: int) -> None:
    other.statuses = [status]
    world = make()
    world.fault(62)
    world.work()
    assert world.rescue().state == "succeeded"
    assert world.step("webhook").why == reasons.both(
        reasons.of("webhook_not_delivered", host="127.0.0.1"),
        reasons.of("host_answered", host="127.0.0.1", status=str(status)),
    )
    assert other.calls == 1


def test_without_a_secret_a_webhook_is_sent_unsigned(make, other: OtherSystem) -> None:
    world = make(secret="")
    world.fault(62)
    world.work()
    assert outgoing.SIGNATURE not in other.headers[0]


def test_nothing_is_sent_while_paused(make, other: OtherSystem) -> None:
    world = make("1h")
    world.fault(62)
    world.kube.fail("get_node", port.Unavailable("down"))
    world.work()
    fleet.pause(cluster=world.cluster, reason="x", actor="t", now=world.now)
    world.pass_time(30)
    assert other.calls == 0
    fleet.resume(cluster=world.cluster, reason="x", actor="t", now=world.now)
    world.pass_time(30)
    assert other.calls == 1


# --- given


def given(world: World) -> Rescue:
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold) == ("waiting", "external")
    return rescue


def test_inv_10_a_node_that_was_handed_over_is_not_acted_on(make, other: OtherSystem, settings: Any) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    world = make("2h")
    rescue = given(world)
    (reported,) = other.asked
    assert reported["callback"] == f"https://portal.example/api/v1/rescues/{rescue.pk}/callback"
    assert reported["until"] == (world.now + timedelta(hours=2)).isoformat()
    world.fault(62)
    before = cluster_calls(world)
    for _ in range(20):
        world.kube.label_node(NODE, {"other": str(world.now)})  # the other system at work, and the watch tells of it
        world.pass_time(60)
    assert cluster_calls(world) == before
    with pytest.raises(services.RescueRefused):
        services.request(world.node(), "reboot", actor="user:anna", reason="", now=world.now)
    assert (world.rescue().state, world.rescue().hold) == ("waiting", "external")
    assert other.calls == 1


def test_a_successful_callback_gives_the_node_back(make, other: OtherSystem) -> None:
    world = make("2h")
    rescue = given(world)
    world.now += timedelta(minutes=5)
    services.callback(rescue, "done", now=world.now, message="board replaced")
    assert services.callback(rescue, "done", now=world.now).state == "running"  # told twice
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold) == ("succeeded", "")
    assert world.step("webhook").why == reasons.of("handed_back_because", host="127.0.0.1", message="board replaced")
    assert Entry.objects.filter(verb="rescue.called_back").count() == 1
    assert ledger.verify("c1").intact
    with refused(services.RescueRefused, "not_handed_over"):
        services.callback(rescue, "done", now=world.now)


def test_a_late_callback_of_an_earlier_delivery_is_ignored(make, other: OtherSystem) -> None:
    world = make("2h")
    rescue = given(world)
    services.callback(rescue, "failed", now=world.now, delivery=f"webhook-{rescue.pk}-1-0")
    world.work()
    services.retry(world.rescue(), actor="user:ann", reason="once more", now=world.now)
    world.work()
    assert (other.calls, world.step("webhook").state) == (2, "waiting")
    with pytest.raises(services.RescueRefused, match=f"the current delivery is webhook-{rescue.pk}-1-1, not"):
        services.callback(rescue, "failed", now=world.now, delivery=f"webhook-{rescue.pk}-1-0")
    with refused(services.RescueRefused, "delivery_needed"):
        services.callback(rescue, "failed", now=world.now)
    services.callback(rescue, "done", now=world.now, delivery=f"webhook-{rescue.pk}-1-1")
    world.work()
    assert world.rescue().state == "succeeded"


def test_a_failed_callback_is_held_for_a_person(make, other: OtherSystem) -> None:
    world = make("2h")
    services.callback(given(world), "failed", now=world.now, message="no spare part")
    with refused(services.RescueRefused, "called_back_already"):
        services.callback(world.rescue(), "done", now=world.now)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.needs_human) == ("held", "step", True)
    assert rescue.why == reasons.of("not_repaired_because", host="127.0.0.1", message="no spare part")
    with pytest.raises(services.RescueRefused):
        services.callback(rescue, "done", now=world.now)
    with pytest.raises(ValueError, match="unknown outcome"):
        services.callback(rescue, "maybe", now=world.now)


def test_a_callback_time_out_is_held_for_a_person(make, other: OtherSystem) -> None:
    world = make("1h")
    given(world)
    world.pass_time(3599)
    assert world.rescue().state == "waiting"
    world.pass_time(31)
    assert world.rescue().why == reasons.of("callback_timeout", host="127.0.0.1")
    assert world.rescue().state == "held"
    services.retry(world.rescue(), actor="user:anna", reason="it was down", now=world.now)
    world.work()
    assert [one["delivery"][-2:] for one in other.asked] == ["-0", "-1"]


def test_an_operator_takes_over_a_node(make, other: OtherSystem) -> None:
    world = make("1h")
    rescue = given(world)
    services.take_over(rescue, actor="user:anna", reason="they are on strike", now=world.now)
    world.pass_time(7200)
    rescue = world.rescue()
    taken_over = reasons.of("taken_over_by_because", by="user:anna", why="they are on strike")
    assert (rescue.state, rescue.why) == ("held", taken_over)
    assert ledger.replay("c1", rescue=rescue.pk).state == "held"
    with pytest.raises(services.RescueRefused):
        services.callback(rescue, "done", now=world.now)
    services.skip(rescue, actor="user:anna", reason="mended", now=world.now)
    world.work()
    assert world.rescue().state == "succeeded"


def test_inv_08_a_rescue_after_a_take_over_waits_for_the_pending_handover(
    make, other: OtherSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("1h")
    real = outgoing.send

    def taken_over(*args: Any, **more: Any) -> Any:
        answer = real(*args, **more)
        rescue = world.rescue()
        services.take_over(rescue, actor="user:anna", reason="now", now=world.now)
        made = services.request(world.node(), "release", actor="user:anna", reason="", now=world.now)
        services.run(made.pk, clock=world.clock)
        assert world.rescue().state == "running"  # it has not begun
        return answer

    monkeypatch.setattr(outgoing, "send", taken_over)
    world.fault(62)
    world.work()
    assert other.calls == 1
    assert world.node().locked_until is None
    world.work()
    assert world.rescue().state == "succeeded"


def test_an_operator_cancels_or_releases_a_handover(make, other: OtherSystem) -> None:
    world = make("1h")
    rescue = given(world)
    world.sync()
    services.request(world.node(), "release", actor="user:anna", reason="", now=world.now)
    world.work()
    rescue.refresh_from_db()
    assert rescue.state == "cancelled"
    assert not world.kube.get_node(NODE).unschedulable
    with pytest.raises(services.RescueRefused):
        services.callback(rescue, "done", now=world.now)


def test_a_callback_that_is_faster_than_the_answer_counts(
    make, other: OtherSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("1h")
    real = outgoing.send

    def calls_back(*args: Any, **more: Any) -> Any:
        reply = real(*args, **more)
        services.callback(world.rescue(), "done", now=world.now)
        return reply

    monkeypatch.setattr(outgoing, "send", calls_back)
    world.fault(62)
    world.work()
    assert world.rescue().state == "succeeded"


def test_a_request_that_may_have_arrived_is_not_sent_again(make, other: OtherSystem) -> None:
    other.cut = True
    world = make("1h")
    rescue = given(world)
    assert codes_of(rescue.because) == ["handed_over", "host_unreachable", "host_not_answering"]
    world.pass_time(300)
    assert other.calls == 1
    services.callback(rescue, "done", now=world.now)
    world.work()
    assert world.rescue().state == "succeeded"


def test_a_refused_handover_is_retried_and_then_held_for_a_person(make, other: OtherSystem) -> None:
    other.statuses = [503, 429, 202]
    world = make("1h")
    world.fault(62)
    world.work()
    assert (world.rescue().state, world.rescue().hold) == ("waiting", "")
    with pytest.raises(services.RescueRefused):
        services.callback(world.rescue(), "done", now=world.now)
    world.pass_time(2)
    world.pass_time(10)
    assert (world.rescue().hold, other.calls) == ("external", 3)


def test_a_handover_to_an_unreachable_host_is_held(make, other: OtherSystem) -> None:
    world = make("1h", url="http://127.0.0.1:9/")
    world.fault(62)
    rescue = world.until("held", seconds=30)
    assert dict(found_in(rescue.because, "handover_failed").params)["host"] == "127.0.0.1"


def test_a_refusal_of_the_node_is_held_for_a_person(make, other: OtherSystem) -> None:
    other.statuses = [404]
    world = make("1h")
    world.fault(62)
    world.work()
    answered = reasons.of("host_answered", host="127.0.0.1", status="404")
    assert world.rescue().why == reasons.of("handover_failed", host="127.0.0.1", why=answered)


def test_without_a_secret_no_node_is_handed_over(make, other: OtherSystem) -> None:
    world = make("1h", secret="")
    world.fault(62)
    world.work()
    assert code_of(world.rescue().because) == "no_callback_secret"
    assert other.calls == 0


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_in_the_call_hands_the_node_over_once(
    make, other: OtherSystem, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    world = make("1h")
    send, died = outgoing.send, []

    def dying(*args: Any, **more: Any) -> Any:
        if died:
            return send(*args, **more)
        died.append(send(*args, **more) if after else None)
        raise worker_kills.Killed

    monkeypatch.setattr(outgoing, "send", dying)
    world.fault(62)
    assert worker_kills.work(world)
    world.work()
    assert (world.rescue().state, world.rescue().hold) == ("waiting", "external")
    assert other.calls == after
    world.pass_time(3700)
    assert world.rescue().why == reasons.of("callback_timeout", host="127.0.0.1")


# --- where nothing is sent


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://0.0.0.0/",
        "http://127.0.0.2/",
        "file:///etc/passwd",
    ],
)
def test_addresses_of_metadata_are_never_called(url: str) -> None:
    with pytest.raises(outgoing.NoResponse) as caught:
        outgoing.send(url, {}, secret="", seconds=0.2)
    assert not caught.value.arrived
    assert "is a blocked address" in str(caught.value) or "is not an HTTP address" in str(caught.value)


def test_a_listed_metadata_address_is_called(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ["169.254.1.1"]
    dialled: list[str] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        dialled.append(address[0])
        raise OSError("nobody listens")

    monkeypatch.setattr(socket, "create_connection", connect)
    for host in ("169.254.1.1", "169.254.1.2"):
        with pytest.raises(outgoing.NoResponse):
            outgoing.send(f"http://{host}/hook", {}, secret="", seconds=5)
    assert dialled == ["169.254.1.1"]


def test_the_next_address_of_a_host_is_tried_after_a_refused_connection(
    other: OtherSystem, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, *args: Any, **more: Any) -> Any:
        names = ("127.0.0.2", "127.0.0.1") if host == "two" else (host,)
        return [info for name in names for info in real(name, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    settings.KCOVER_OUTGOING_HOSTS = ["two"]
    url = f"http://two:{other.server.server_port}/x"
    assert outgoing.send(url, {}, secret=SECRET, seconds=5).status == 204


def test_a_host_is_called_at_the_checked_address(other: OtherSystem) -> None:
    name = f"localhost:{other.server.server_port}"
    assert outgoing.send(f"http://{name}/x", {}, secret=SECRET, seconds=5).status == 204
    assert other.headers[0]["Host"] == name
