"""A new action needs its module of the core, its module of the engine and a line in each registry.

The verifier of proofs, sentences and documents are in docs/recipes.md.

It is read from a policy, decided, run on a cluster, shown in English and Chinese, and replayed from the ledger.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from kcover import actions
from kcover.policy import document
from kcover_portal.accounts import services as accounts
from kcover_portal.ledger import queries as ledger
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import registry
from kcover_portal.rescue.models import Decision
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import NODE, World
from tests.portal.toy_action import engine, spec

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: maintained}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - {name: markMaintenance, attribute: {message: "xid-<code>"}}
        - name: cordon
"""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(actions.ACTIONS, spec.SPEC.name, spec.SPEC)
    monkeypatch.setitem(registry.ACTIONS, spec.SPEC.name, engine.run)


@pytest.fixture
def maintained(_registered: None) -> Iterator[World]:
    made = World(policy=POLICY)
    yield made
    made.uninstall()


def test_a_policy_asks_for_it(maintained: World) -> None:
    assert policies.validate(POLICY).problems == ()
    alone = POLICY.replace("        - name: cordon\n", "")
    [problem] = policies.validate(alone).problems
    assert problem.message == "markMaintenance needs cordon or drain: add cordon before it"
    [problem] = policies.validate(POLICY.replace("xid-<code>", "no label!")).problems
    assert (problem.path, problem.line) == ("spec.rules[0].actions[0].attribute.message", 10)


def test_the_action_needs_the_portals_api_version() -> None:
    assert "markMaintenance" in actions.in_policies()
    with pytest.raises(document.PolicyInvalid, match=r"needs apiVersion: kcover\.io/v1"):
        document.read(
            {
                "apiVersion": "rescue.ksyun.com/v1",
                "kind": "RescuePolicy",
                "metadata": {"name": "a"},
                "spec": {"rules": [{"actions": [{"name": "cordon"}, {"name": "markMaintenance"}]}]},
            }
        )


def test_a_fault_is_rescued_with_the_action(maintained: World) -> None:
    maintained.fault(62)
    rescue = maintained.until("succeeded")
    decided = [{"name": "cordon", "args": {}}, {"name": "mark_maintenance", "args": {"message": "xid-62"}}]
    assert Decision.objects.get().steps == decided
    node = maintained.kube.get_node(NODE)
    assert (node.unschedulable, node.labels[engine.LABEL]) == (True, "xid-62")
    assert rescue.outcome == "isolated"
    assert "RescueMarkMaintenance" in {event.reason for event in maintained.kube.list_events().items}
    services.request(maintained.node(), "release", actor="user:anna", reason="", now=maintained.now)
    maintained.until("succeeded")
    node = maintained.kube.get_node(NODE)
    assert (node.unschedulable, engine.LABEL in node.labels) == (False, False)


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_in_its_call(maintained: World, *, after: bool) -> None:
    maintained.fault(62)
    worker_kills.kill_at(maintained.kube, "apply_node", call=2, after=after)  # the first is the cordon's
    assert worker_kills.work(maintained)
    maintained.until("succeeded")
    assert maintained.kube.get_node(NODE).labels[engine.LABEL] == "xid-62"


@pytest.mark.parametrize(
    ("language", "texts"),
    [("en", ("Maintenance", "Message", "xid-62", "When")), ("zh-hans", ("维护", "消息", "xid-62", "时间"))],
)
def test_the_page_of_the_rescue(maintained: World, language: str, texts: tuple[str, ...]) -> None:
    maintained.fault(62)
    rescue = maintained.until("succeeded")
    accounts.make_user("vera", password="a-long-passphrase", role="viewer", created_by="test", now=maintained.now)
    client = Client(headers={"accept-language": language})
    assert client.login(username="vera", password="a-long-passphrase")
    page = client.get(f"/rescues/{rescue.pk}/").content.decode()
    with translation.override(language):
        assert [text for text in texts if text not in page] == []


def test_the_ledger_replays_the_rescue(maintained: World) -> None:
    maintained.fault(62)
    rescue = maintained.until("succeeded")
    again = ledger.replay(maintained.cluster.name, rescue=rescue.pk)
    reported: list[tuple[str, Any, str]] = [(step.name, step.args, step.state) for step in again.steps.values()]
    assert reported == [("cordon", {}, "done"), ("mark_maintenance", {"message": "xid-62"}, "done")]
    assert (again.state, again.outcome) == (rescue.state, rescue.outcome)
