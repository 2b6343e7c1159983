"""The label step: a value given, and the value from before given back."""

from collections.abc import Iterator

import pytest

from kcover import audit, reasons
from kcover.nodes import marks
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: label}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - {name: label, attribute: {key: example.com/health, value: "xid-<code>"}}
"""


@pytest.fixture
def labelled() -> Iterator[World]:
    made = World(policy=POLICY)
    yield made
    made.uninstall()


def release(world: World) -> port.Node:
    world.sync()
    services.request(world.node(), "release", actor="user:anna", reason="", now=world.now)
    world.work()
    return world.kube.get_node(NODE)


def test_the_audit_log_shows_the_label_before_and_after(labelled: World) -> None:
    labelled.kube.label_node(NODE, {"example.com/health": "good"})
    labelled.sync()
    labelled.fault(62)
    labelled.work()
    answer = audit.ClusterCallDone.of_entry(Entry.objects.get(verb="label.done")).answer
    assert isinstance(answer, audit.NodePatched)
    assert answer.before.labels == ("example.com/health=good",)
    assert answer.after.labels == ("example.com/health=xid-62",)


@pytest.mark.parametrize("before", [None, "good"])
def test_the_value_from_before_comes_back(labelled: World, before: str | None) -> None:
    labelled.kube.label_node(NODE, {"example.com/health": before, "team": "a"})
    labelled.sync()
    old = labelled.kube.get_node(NODE)
    labelled.fault(62)
    labelled.work()

    node = labelled.kube.get_node(NODE)
    assert node.labels == {**old.labels, "example.com/health": "xid-62"}
    assert not node.unschedulable
    assert labelled.rescue().outcome == "done"
    assert labelled.step("label").why == reasons.of("labelled", label="example.com/health=xid-62")

    back = release(labelled)
    assert (back.labels, back.annotations, back.taints) == (old.labels, old.annotations, old.taints)


@pytest.mark.parametrize("now", [None, "by-hand"])
def test_a_label_value_that_another_person_set_is_kept(labelled: World, now: str | None) -> None:
    labelled.kube.label_node(NODE, {"example.com/health": "good"})
    labelled.fault(62)
    labelled.work()
    labelled.kube.label_node(NODE, {"example.com/health": now})
    back = release(labelled)
    assert back.labels.get("example.com/health") == now
    assert marks.ANNOTATION not in back.annotations


@pytest.mark.parametrize("after", [False, True])
def test_a_label_step_continues_after_its_worker_died(labelled: World, after: bool) -> None:
    labelled.kube.label_node(NODE, {"example.com/health": "good"})
    worker_kills.kill_at(labelled.kube, "apply_node", call=1, after=after)
    labelled.fault(62)
    assert worker_kills.work(labelled)
    labelled.work()
    assert labelled.rescue().state == "succeeded"
    assert release(labelled).labels["example.com/health"] == "good"
