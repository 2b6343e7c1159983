"""An external system that is asked to decide: signed, bounded, and held back by the same guards."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.db import connection

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import outgoing
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import counts
from tests import codes
from tests.portal.rescue.world import HEAL, NODE, World
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "shared"


class Decider:
    """A decision system: answers what it was told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: bytes = b'{"actions": []}'
        self.status = 200
        self.pause = threading.Event()
        self.pause.set()
        self.asked: list[dict[str, Any]] = []
        self.dripping = False
        self.meanwhile: Callable[[], object] = lambda: None
        decider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outgoing.signed(SECRET, body, self.headers.get(outgoing.SIGNATURE, "")):
                    decider.asked.append(json.loads(body))
                decider.pause.wait(60)
                try:
                    decider.meanwhile()
                finally:
                    connection.close()  # of this thread
                self.send_response(decider.status)
                self.send_header("Content-Length", str(len(decider.answer)))
                self.end_headers()
                for byte in decider.answer if decider.dripping else ():
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.05)
                if not decider.dripping:
                    self.wfile.write(decider.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/decide"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.pause.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def decider() -> Iterator[Decider]:
    one = Decider()
    yield one
    one.stop()


@pytest.fixture
def world(decider: Decider) -> Iterator[World]:
    one = World(policy=HEAL, nodes=4)
    one.cluster.decision_secret = SECRET
    one.cluster.save()
    Cluster.objects.update(decision_timeout=1, decision_mode="external", decision_url=decider.url)
    yield one
    one.uninstall()


def judge(world: World) -> None:
    world.fault(62)
    services.decide_and_run([Incident.objects.get().pk], clock=world.clock)


def test_the_actions_of_an_external_decider_are_done(world: World, decider: Decider) -> None:
    decider.answer = b'{"actions": [{"name": "cordon", "waittime": "", "maps": []}]}'
    judge(world)
    rescue = Rescue.objects.get()
    assert (rescue.origin, rescue.requested_by) == ("api", "external:127.0.0.1")
    assert [step.name for step in rescue.steps.all()] == ["cordon"]
    assert world.kube.get_node(NODE).unschedulable
    [asked] = decider.asked
    assert (asked["node"], asked["incident"]["kind"], asked["incident"]["code"]) == (NODE, "xid", "62")


def test_an_external_decider_may_request_no_action(world: World, decider: Decider) -> None:
    judge(world)
    assert Decision.objects.get().answer == "none"
    assert Decision.objects.get().reasons[0] == reasons.of("external_nothing", system="127.0.0.1")
    assert not Rescue.objects.exists()


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (b"not json", 200, "answer_not_json"),
        (b"[]", 200, "actions_missing"),
        (b'{"actions": [{"name": "explode"}]}', 200, "request_action_name"),
        (b'{"actions": [{"name": "reboot"}]}', 200, "action_needs"),
        (b"{}", 500, "host_answered"),
        (b" " * (outgoing.MAX_RESPONSE_BYTES + 1), 200, "answer_too_large"),
    ],
)
def test_an_invalid_answer_counts_as_silence_and_holds_the_decision(
    world: World, decider: Decider, answer: bytes, status: int, code: str
) -> None:
    Cluster.objects.update(decision_fallback="hold")
    decider.answer, decider.status = answer, status
    judge(world)
    held = Decision.objects.get()
    assert held.answer == "hold"
    assert code in codes.codes_of(held.reasons[0])
    assert not world.kube.get_node(NODE).unschedulable


def test_silence_lets_the_policies_decide_with_that_fallback(world: World, decider: Decider) -> None:
    decider.pause.clear()
    judge(world)
    assert world.kube.get_node(NODE).unschedulable
    assert Rescue.objects.get().rule == "heal#1"


def test_a_dripping_answer_is_silence_in_time(world: World, decider: Decider) -> None:
    decider.dripping = True
    decider.answer = b'{"actions": [{"name": "cordon"}]}' + b" " * 4_000  # three minutes
    began = time.monotonic()
    judge(world)
    assert time.monotonic() - began < HANG_SECONDS
    assert Rescue.objects.get().rule == "heal#1"  # the policies decide in its place


def test_an_answer_is_not_used_once_policies_decide(world: World, decider: Decider) -> None:
    decider.answer = b'{"actions": [{"name": "cordon"}]}'
    decider.meanwhile = lambda: Cluster.objects.update(decision_mode="policies")
    judge(world)
    rescue = Rescue.objects.get()
    assert (rescue.origin, rescue.rule) == ("policy", "heal#1")


@pytest.mark.parametrize("change", [{"decision_mode": "both"}, {"decision_url": "http://127.0.0.1:9/other"}])
def test_the_answer_to_an_outdated_query_is_discarded_and_queried_again(
    world: World, decider: Decider, change: dict[str, str]
) -> None:
    decider.answer = b'{"actions": [{"name": "cordon"}]}'
    decider.meanwhile = lambda: Cluster.objects.update(**change)
    judge(world)
    assert not Rescue.objects.exists()
    assert not Decision.objects.exists()
    decider.meanwhile = lambda: None
    Cluster.objects.update(decision_url=decider.url)
    services.decide_and_run([Incident.objects.get().pk], clock=world.clock)
    assert Rescue.objects.get().requested_by == "external:127.0.0.1"


def test_an_answer_is_not_used_if_the_mode_changes_while_guards_are_counted(
    world: World, decider: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    decider.answer = b'{"actions": [{"name": "cordon"}]}'
    lock = counts.lock

    def changed_meanwhile(*args: Any) -> Cluster:
        lock(*args)
        Cluster.objects.update(decision_mode="policies")
        return Cluster.objects.get()

    monkeypatch.setattr(counts, "lock", changed_meanwhile)
    judge(world)
    assert not Rescue.objects.exists()
    services.decide_and_run([Incident.objects.get().pk], clock=world.clock)
    assert Rescue.objects.get().rule == "heal#1"


def test_inv_11_the_guards_hold_an_external_decision(world: World, decider: Decider) -> None:
    cluster_settings.set_guards(world.cluster, {"floor": {"percent": 100}}, actor="t", reason="", now=world.now)
    decider.answer = b'{"actions": [{"name": "cordon"}]}'
    judge(world)
    assert Decision.objects.get().answer == "hold"
    assert not world.kube.get_node(NODE).unschedulable


def test_a_metadata_address_is_never_called() -> None:
    with pytest.raises(outgoing.NoResponse, match="is a blocked address"):
        outgoing.post("http://169.254.169.254/latest", {}, secret="", seconds=1)


def test_a_signature_is_of_one_body_and_one_secret() -> None:
    header = outgoing.signature("a", b"body")
    assert outgoing.signed("a", b"body", header)
    assert not outgoing.signed("a", b"Body", header)
    assert not outgoing.signed("b", b"body", header)
    assert not outgoing.signed("", b"body", outgoing.signature("", b"body"))
