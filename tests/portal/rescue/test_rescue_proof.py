"""Each rescue has a proof, and false statements are refused although they are signed with the valid key."""

import copy
import random
from datetime import timedelta
from typing import Any

import pytest

from kcover.faults.fault import Fault
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import proof
from tests import forgeries, proofs
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db

APPROVED = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: careful}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      approval: {required: true, approvers: 2, expires: 1h}
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""

WHOLE_KIND = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: others}
spec: {rules: [{priority: 10, match: {kinds: [other], applicationFaults: false}, actions: [{name: cordon}]}]}
"""


def healed(*, pods: int = 1, on_drain_timeout: str = "hold", **more: Any) -> dict[str, Any]:
    """The statements about a rescue by a rule, with pods that were evicted."""
    world = World(**more)
    Cluster.objects.update(on_drain_timeout=on_drain_timeout)
    for number in range(pods):
        world.kube.add_pod("train", f"worker-{number + 1}", node="gpu-1")
    world.fault(62)
    for _ in range(5):
        world.work()
        world.now += timedelta(seconds=1)
    world.uninstall()
    return proof.unsigned(Rescue.objects.get())


def approved() -> dict[str, Any]:
    """The statements about a rescue that two people approved."""
    world = World(policy=APPROVED)
    world.kube.add_pod("train", "worker-1", node="gpu-1")
    world.fault(62)
    world.work()
    for who in ("user:ann", "user:bob"):
        services.approve(Rescue.objects.get(), actor=who, reason="", now=world.now)
    world.work()
    world.uninstall()
    return proof.unsigned(Rescue.objects.get())


def verbs(statements: dict[str, Any]) -> list[str]:
    return [entry["verb"] for entry in forgeries.entries(statements)]


def test_the_proof_of_a_rescue_by_a_rule_is_valid() -> None:
    statements = healed()
    assert proofs.refusal(proofs.sign(statements)) == ""
    assert {"decision.rescue", "rescue.opened", "guard.passed", "evict.begun"} <= set(verbs(statements))
    assert proofs.broken_claim(Rescue.objects.get()) == ""


def test_the_proof_knows_what_the_cluster_says_about_drains() -> None:
    statements = healed(on_drain_timeout="proceed")
    assert proofs.refusal(proofs.sign(statements)) == ""
    [opened] = [entry for entry in forgeries.entries(statements) if entry["verb"] == "rescue.opened"]
    [drain] = [step for step in opened["data"]["steps"] if step["name"] == "drain"]
    assert drain["args"]["on_timeout"] == "proceed"


def test_the_proof_of_an_approved_rescue_is_valid_and_bound_to_its_votes() -> None:
    statements = approved()
    assert proofs.refusal(proofs.sign(statements)) == ""
    assert "evict.begun" in verbs(statements)
    for lie in (
        {"actor": "user:ann"},
        {"actor": "policy:careful#1"},
        {"node": "gpu-2"},
        {"data": {"plan_hash": "0" * 16}},
        {"data": {"step": 2}},
        {"data": {"uid": "another"}},
    ):
        forged = copy.deepcopy(statements)
        second = forgeries.entries(forged, "rescue.approved")[1]
        data = {**second["data"], **lie.pop("data", {})}  # type: ignore[dict-item]
        second.update(lie, data=data)
        forgeries.rewrite(forged)
        assert proofs.refusal(proofs.sign(forged)) == "votes", lie


def test_a_vote_without_consequence_cannot_be_left_out() -> None:
    """The first of two votes before a cancellation: no later entry depends on it."""
    world = World(policy=APPROVED)
    world.kube.add_pod("train", "worker-1", node="gpu-1")
    world.fault(62)
    world.work()
    services.approve(world.rescue(), actor="user:ann", reason="", now=world.now)
    services.cancel(world.rescue(), actor="user:bob", reason="", now=world.now, approver=True)
    world.uninstall()
    statements = proof.unsigned(Rescue.objects.get())
    assert proofs.refusal(proofs.sign(statements)) == ""
    forged = copy.deepcopy(statements)
    forged["segment"]["links"].remove(forgeries.entries(forged, "rescue.approved")[0])
    forgeries.rewrite(forged)
    assert proofs.refusal(proofs.sign(forged)) == "votes"
    statements["rescue"]["steps"][-1]["state"] = "done"
    assert proofs.refusal(proofs.sign(statements)) == "steps"


def test_the_proof_of_a_manual_request_is_valid() -> None:
    world = World(policy="")
    services.request(world.node(), "reboot", actor="user:ann", reason="so", now=world.now)
    world.work()
    world.uninstall()
    statements = proof.unsigned(Rescue.objects.get())
    assert proofs.refusal(proofs.sign(statements)) == ""
    assert (statements["facts"], statements["rules"], statements["policy"]) == (None, [], None)


def test_a_decision_that_opens_another_rescue_has_facts_of_its_own() -> None:
    world = World()
    for _ in range(2):
        world.fault(62)
        world.work()
        rescue = Rescue.objects.order_by("-pk").first()
        assert rescue is not None
        services.cancel(rescue, actor="user:ann", reason="", now=world.now)
        services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
        world.work()
        world.now += timedelta(minutes=1)
    world.uninstall()
    by_rule = Rescue.objects.filter(origin="policy")
    assert by_rule.count() == 2 == Decision.objects.filter(answer="rescue").count()
    assert [proofs.broken_claim(rescue) for rescue in Rescue.objects.all()] == [""] * 4


def in_storm(*, late: bool) -> dict[str, Any]:
    """The statements about the third node with one symptom, which was cordoned at once or after an approval."""
    world = World(policy=APPROVED if late else CORDON, nodes=24)
    if late:
        fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
        Cluster.objects.update(isolate_before_approval=False)
    for number in (1, 2, 3):
        world.fault(62, node=f"gpu-{number}")
    world.work()
    if late:
        world.now += timedelta(minutes=2)
        for who in ("user:ann", "user:bob"):
            services.approve(world.rescue("gpu-3"), actor=who, reason="", now=world.now)
        world.work()
    world.uninstall()
    assert world.kube.get_node("gpu-3").unschedulable
    return proof.unsigned(world.rescue("gpu-3"))


@pytest.mark.parametrize("late", [False, True])
def test_the_proof_of_a_cordon_in_a_storm_is_valid_and_bound_to_its_class_of_fault(*, late: bool) -> None:
    statements = in_storm(late=late)
    assert proofs.refusal(proofs.sign(statements)) == ""
    assert "storm_cordon" in [passed["code"] for passed in statements["facts"]["passed"]]
    lies: list[dict[str, Any]] = [
        {"hardware": False},
        {"slots": {"by": "cluster", "name": "c", "eligible": 24, "taken": 6}},
    ]
    for lie in lies:
        forged = copy.deepcopy(statements)
        forged["facts"]["counts"].update(lie)
        if late and "slots" in lie:
            forged = copy.deepcopy(statements)
            forgeries.entries(forged, "guard.passed")[0]["data"]["figures"]["facts"].update(lie, holds_slot=False)
        forgeries.rewrite(forged)
        assert proofs.refusal(proofs.sign(forged)) == "guards"
    forged = copy.deepcopy(statements)
    forged["facts"]["fault"]["drill"] = True
    forgeries.rewrite(forged)
    assert proofs.refusal(proofs.sign(forged)) == "guards"


def test_a_rule_for_a_whole_kind_skips_application_faults_and_its_proof_says_so() -> None:
    world = World(policy=WHOLE_KIND)
    world.report(Fault(kind="other", code="mce", source="kmsg"))
    Incident.objects.update(is_user_fault=True)
    world.work()
    decision = Decision.objects.get()
    assert (decision.answer, decision.tried[0]["because"]["code"]) == ("none", "application_faults_left_out")
    Incident.objects.update(is_user_fault=False, decide_at=world.now)
    world.work()
    world.uninstall()
    assert world.kube.get_node("gpu-1").unschedulable
    statements = proof.unsigned(Rescue.objects.get())
    assert proofs.refusal(proofs.sign(statements)) == ""
    forged = copy.deepcopy(statements)
    forged["facts"]["fault"]["application"] = True
    assert proofs.refusal(proofs.sign(forged)) == "facts"
    forgeries.rewrite(forged)
    assert proofs.refusal(proofs.sign(forged)) == "rule"
    listed = copy.deepcopy(forged)
    listed["rules"][0]["rule"]["match"].pop("applicationFaults")
    forgeries.rewrite(listed)
    assert proofs.refusal(proofs.sign(listed)) == "", "such a rule matches application faults too"
    del statements["facts"]["fault"]["application"]  # as in the proofs of earlier versions
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == ""


def test_a_policy_that_changed_since_changes_no_proof() -> None:
    world = World()
    world.fault(62)
    world.work()
    policies.apply(APPROVED.replace("careful", "heal"), author="ann", reason="", now=world.now)
    world.uninstall()
    assert proofs.broken_claim(Rescue.objects.get()) == ""


def test_published_heads_find_a_history_that_was_rewritten_as_a_whole() -> None:
    statements = healed()
    last = Entry.objects.order_by("-sequence")[0]
    heads = [{"cluster": "c1", "sequence": last.sequence, "digest": last.digest}]
    assert proofs.refusal(proofs.sign(statements), heads) == ""
    forgeries.entries(statements, "step.done")[0]["data"]["because"] = None
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == ""
    assert proofs.refusal(proofs.sign(statements), heads) == "anchor"
    assert proofs.refusal(proofs.sign(statements), []) == "anchor_missing"


def test_a_short_rescue_reaches_the_next_published_head() -> None:
    world = World(nodes=2)
    world.fault(62)
    for _ in range(5):
        world.work()
        world.now += timedelta(seconds=1)
    world.fault(62, node="gpu-2")
    world.work()
    head = Entry.objects.order_by("-sequence")[0]
    world.now += timedelta(minutes=3)
    world.fault(64, node="gpu-2")
    world.work()
    world.uninstall()
    first = Rescue.objects.order_by("pk")[0]
    assert head.rescue != first.pk
    statements = proof.unsigned(first)
    heads = [{"cluster": "c1", "sequence": head.sequence, "digest": head.digest}]
    assert proofs.refusal(proofs.sign(statements), heads) == ""
    assert statements["segment"]["head"] == head.digest, "two minutes are enough"


def test_figures_of_an_earlier_attempt_let_no_call_pass() -> None:
    statements = healed(pods=2)
    drained = next(entry for entry in forgeries.entries(statements, "guard.passed") if entry["data"]["act"] == "drain")
    first, evicted = forgeries.entries(statements, "evict.begun")
    evicted["data"]["attempt"] += 1
    links = statements["segment"]["links"]
    assert links.index(drained) + 1 == links.index(first), "one call has figures of its own"
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == "guards"


def test_a_request_carries_the_figures_that_let_it_pass() -> None:
    world = World(policy="")
    services.request(world.node(), "reboot", actor="user:ann", reason="so", now=world.now)
    world.work()
    world.uninstall()
    statements = proof.unsigned(Rescue.objects.get())
    statements["segment"]["links"].remove(forgeries.entries(statements, "guard.passed")[0])
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == "guards"


@pytest.mark.parametrize("kind", forgeries.KINDS)
def test_signed_forgeries_are_refused(kind: str) -> None:
    genuine = [approved()]
    chance = random.Random(kind)
    for _ in range(100):
        forged, lie = forgeries.forge(genuine, kind, form="signed", chance=chance)
        assert proofs.refusal(proofs.sign(forged)), lie


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"eligible": 0}, "guards"),
        ({"symptoms": [{"trait": "code", "kind": "xid", "value": "62", "nodes": 50}]}, "guards"),
        ({"faulty": {"ten_minutes": 9, "hour": 9, "six_hours": 9}}, "guards"),
        ({"node": "gpu-9"}, "guards"),
    ],
)
def test_the_guards_arithmetic_is_repeated(lie: dict[str, Any], code: str) -> None:
    statements = healed()
    forgeries.entries(statements, "guard.passed")[0]["data"]["figures"]["facts"].update(lie)
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == code
