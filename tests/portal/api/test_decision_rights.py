"""A decision system acts within its limits: it cannot set or end them, and cannot confirm that a fault is gone."""

from datetime import datetime, timedelta

import pytest

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.api.conftest import add_story, problem
from tests.portal.api.test_rescue_actions import asked, caller

pytestmark = pytest.mark.django_db


def test_a_decision_system_cannot_end_a_pause_or_approve_mode(node: Node, east: Cluster, now: datetime) -> None:
    api = caller(east, now)
    Cluster.objects.update(mode="approve")
    assert api.post("resume", {"cluster": "east", "mode": "enforce", "reason": "go"}).status_code == 403
    api.post("rescue-actions", asked("gpu-1", "cordon", "drain", "reboot"))
    assert Rescue.objects.get().state == "held"
    assert api.post("pause", {"cluster": "east", "reason": "I am not sure"}).json()["mode"] == "paused"
    assert api.post("resume", {"cluster": "east", "reason": "I am"}).status_code == 403


def test_a_decision_system_cannot_try_a_policy(node: Node, east: Cluster, now: datetime) -> None:
    refused = problem(caller(east, now).post("policies/try", {"yaml": "x"}), 403)
    assert refused["code"] == "decision_system_token"
    assert problem(caller(east, now).post("policies/tries/1/cancel", {}), 403)["code"] == "decision_system_token"


def test_a_decision_system_cannot_change_a_maintenance_window(node: Node, east: Cluster, now: datetime) -> None:
    until = now + timedelta(hours=1)
    window = cluster_settings.open_maintenance(
        east, starts_at=now, ends_at=until, reason="x", actor="user:ann", now=now
    )
    assert caller(east, now).call("delete", f"maintenance/{window.pk}").status_code == 403
    assert fleet.maintenance(east, now=now)


@pytest.mark.parametrize("kind", ["storm", "xid"])
def test_a_decision_system_cannot_close_a_storm_or_an_incident(
    node: Node, east: Cluster, now: datetime, kind: str
) -> None:
    where = {"node": None, "scope": ["gpu-1"]} if kind == "storm" else {"node": node}
    row = Incident.objects.create(cluster=east, kind=kind, code="62", opened_at=now, last_at=now, **where)
    assert caller(east, now).post(f"incidents/{row.pk}/close", {"reason": "mine"}).status_code == 403
    row.refresh_from_db()
    assert row.state == "open"


@pytest.mark.parametrize("verb", ["skip", "retry", "cancel", "take-over"])
def test_a_decision_system_cannot_steer_a_rescue_of_a_policy(
    node: Node, east: Cluster, now: datetime, verb: str
) -> None:
    rescue = add_story(node, now)
    Step.objects.filter(rescue=rescue, index=1).update(name="verify", state="failed")
    Rescue.objects.filter(pk=rescue.pk).update(hold="step")
    refused = problem(caller(east, now).post(f"rescues/{rescue.pk}/{verb}", {"reason": "I vouch"}), 403)
    assert refused["code"] == "rescue_of_others"
    assert Incident.objects.get().state == "open"


def test_a_decision_system_may_cancel_its_own_plan(node: Node, east: Cluster, now: datetime) -> None:
    api = caller(east, now)
    made = api.post("rescue-actions", asked("gpu-1", "cordon")).json()["rescueId"]
    assert api.post(f"rescues/{made}/cancel", {"reason": "never mind"}).json()["state"] == "cancelled"


@pytest.mark.parametrize("verb", ["uncordon", "release"])
def test_a_decision_system_cannot_take_back_a_persons_act(node: Node, east: Cluster, now: datetime, verb: str) -> None:
    held = services.request(node, "cordon", actor="user:ann", reason="hands off", now=now)
    answer = caller(east, now).post(f"nodes/east/gpu-1/{verb}", {"reason": "free it"})
    refused = problem(answer, 409)
    assert (refused["code"], refused["params"]) == ("requested_by_person", {"by": "user:ann", "rescue": str(held.pk)})
    held.refresh_from_db()
    assert held.state == "running"
