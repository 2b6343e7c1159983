"""Tries of past days: the guards count what the tried rules would have done before."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.policies.models import PolicyTry
from kcover_portal.rescue.decide import policy_tries
from tests.portal.api.conftest import Api, add_node
from tests.portal.api.test_policies_dry_run import add_incident, tried
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db

BOUNDED = policy("a", extra="      budget: 1\n")


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def fault(cluster: Cluster, name: str, *, ago: int, lasted: int | None = None) -> Incident:
    """An incident that was opened and decided so many minutes ago, on a node of its own."""
    at = timezone.now() - timedelta(minutes=ago)
    row = add_incident(add_node(cluster, name, at), at)
    if lasted is not None:
        Incident.objects.filter(pk=row.pk).update(state="closed", closed_at=at + timedelta(minutes=lasted))
    return row


def answers(body: dict[str, Any]) -> dict[str, str]:
    return {one["node"]: one["after"]["answer"] for one in body["results"]}


def test_a_budget_is_held_by_the_node_whose_incident_is_still_open(east: Cluster, viewer: Api) -> None:
    first = fault(east, "gpu-1", ago=60, lasted=30)
    fault(east, "gpu-2", ago=50)
    last = fault(east, "gpu-3", ago=20)
    body = tried(viewer, {"yaml": BOUNDED, "days": 1})
    assert answers(body) == {"gpu-1": "rescue", "gpu-2": "hold", "gpu-3": "rescue"}
    assert body["guards"] == {"budget": 1}

    # A later slice goes on with what the earlier ones counted.
    row = PolicyTry.objects.get(pk=body["id"])
    row.results.filter(incident=last.pk).delete()
    Incident.objects.filter(pk=first.pk).update(closed_at=None)
    PolicyTry.objects.filter(pk=row.pk).update(state=PolicyTry.State.WAITING, pending=[last.pk])
    policy_tries.advance(row.pk, clock=timezone.now)
    assert answers(viewer.get(f"policies/tries/{row.pk}").json())["gpu-3"] == "hold"


def test_a_storm_of_then_is_held(east: Cluster, viewer: Api) -> None:
    Cluster.objects.update(guards={"storm": {"nodes": 2, "percent": 1}})
    fault(east, "gpu-1", ago=200)
    fault(east, "gpu-2", ago=31)
    fault(east, "gpu-3", ago=30)
    body = tried(viewer, {"yaml": policy("a"), "days": 1})
    assert answers(body)["gpu-1"] == "rescue"
    assert answers(body)["gpu-3"] == "hold"
