"""A refused request is in the ledger: requester, action, node and reason."""

from datetime import timedelta

import pytest

from kcover import audit, reasons
from kcover.plans import kce_actions
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import reconcile
from tests.codes import found_in
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


def reported() -> list[Entry]:
    return list(Entry.objects.filter(verb="request.refused").order_by("pk"))


def pause(world: World, reason: str = "fire") -> None:
    fleet.pause(cluster=world.cluster, reason=reason, actor="user:ann", now=world.now)


def ask(world: World, verb: str = "drain", *, actor: str = "user:bo", node: str = NODE) -> None:
    with pytest.raises(services.RescueRefused):
        services.request(world.node(node), verb, actor=actor, reason="it is loud", now=world.now)


def plan(world: World, *actions: str, node: str = NODE) -> None:
    named = [{"name": name} for name in actions or ("cordon",)]
    asked = kce_actions.parse({"nodeName": node, "xid": 79, "escalateTime": "", "actions": named}, now=world.now)
    services.request_plan(world.node(node), asked, actor="token:decision x", payload={}, now=world.now)


def test_a_persons_refused_request_is_on_record_and_changes_nothing(world: World) -> None:
    pause(world)
    with pytest.raises(services.RescueRefused) as refusal:
        services.request(
            world.node(), "drain", actor="user:bo", reason="it is loud", now=world.now, override=["floor", "budget"]
        )
    [entry] = reported()
    assert (entry.actor, entry.node, entry.subject, entry.rescue) == ("user:bo", NODE, f"node {NODE}", None)
    refused = audit.RequestRefused.of_entry(entry)
    assert (refused.requested, refused.reason, refused.override) == (("drain",), "it is loud", ("budget", "floor"))
    assert refused.because == refusal.value.reason
    assert reasons.of("paused_because", why="fire") in refused.because.parts
    assert ledger.verify("c1").intact
    assert not world.node().rescues.exists()


def test_a_refused_plan_of_a_decision_system_is_on_record(world: World) -> None:
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.kube.add_node("gpu-2", gpus=8)
    world.kube.add_node("gpu-3", gpus=8)
    world.sync()
    with pytest.raises(services.PreconditionFailed):
        plan(world, "cordon", "drain")
    cluster_settings.set_guards(world.cluster, {"plans": {"limit": 1}}, actor="t", reason="", now=world.now)
    plan(world, node="gpu-2")
    with pytest.raises(services.LimitReached):
        plan(world, node="gpu-3")
    unmet, full = reported()
    assert (unmet.actor, unmet.data["requested"], unmet.data["xid"]) == ("token:decision x", ["cordon", "drain"], 79)
    assert audit.RequestRefused.of_entry(unmet).because.code == "excluded"
    limit = audit.RequestRefused.of_entry(full).because
    assert (full.node, limit) == ("gpu-3", reasons.of("plan_limit", limit=1))


def test_a_repeated_refusal_is_recorded_once_in_ten_minutes(world: World) -> None:
    pause(world)
    for _ in range(20):
        ask(world)
        world.now += timedelta(seconds=29)
    assert len(reported()) == 1
    world.now += timedelta(seconds=20)
    ask(world)
    assert len(reported()) == 2


def test_each_different_refusal_is_on_record(world: World) -> None:
    world.kube.add_node("gpu-2", gpus=8)
    world.sync()
    pause(world)
    ask(world)
    ask(world, "reboot")
    ask(world, node="gpu-2")
    ask(world, actor="user:cid")
    pause(world, "flood")
    ask(world)
    ask(world)
    assert [(one.actor, one.node, one.data["requested"]) for one in reported()] == [
        ("user:bo", NODE, ["drain"]),
        ("user:bo", NODE, ["reboot"]),
        ("user:bo", "gpu-2", ["drain"]),
        ("user:cid", NODE, ["drain"]),
        ("user:bo", NODE, ["drain"]),
    ]
    last = audit.RequestRefused.of_entry(reported()[-1])
    assert dict(found_in(last.because, "paused_because").params)["why"] == "flood"


def test_a_dry_run_and_the_portals_own_attempts_are_no_requests(world: World) -> None:
    pause(world)
    assert services.preview(world.node(), "drain", now=world.now).held_back
    reconcile.let_go(world.node(), now=world.now)
    assert reported() == []
