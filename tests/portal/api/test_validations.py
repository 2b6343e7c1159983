"""Validations and their profiles over REST: shapes, codes and who may."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from kcover.validation import profiles
from kcover_portal.checks.models import Validation
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.portal.api.conftest import Api, caller, person, problem
from tests.portal.checks.test_validations import conclude, passes
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
ASKED: dict[str, Any] = {"cluster": "c1", "nodes": ["gpu-1", "gpu-2"], "profile": "light", "reason": "new board"}
PCIE = {"checks": [{"check": "pciebw", "threshold": 20, "required": True}], "probes": ["nvlink"]}


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy="", nodes=2)
    made.now = timezone.now()
    for number in (1, 2):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def codes(response: Any, status: int) -> dict[str, str]:
    """The codes of a problem by field."""
    return {error["field"]: error["code"] for error in problem(response, status)["errors"]}


def test_a_validation_is_requested_and_read(world: World, operator: Api) -> None:
    answer = operator.post("validations", ASKED)
    row = Validation.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"id": row.pk})
    shown = operator.get(f"validations/{row.pk}").json()
    assert (shown["state"], shown["profile"], shown["reason"], shown["check_run"]) == (
        *("running", "light", "new board"),
        row.run_id,
    )
    assert [(one["node"], one["state"], one["proof"]) for one in shown["nodes"]] == [
        ("gpu-1", "waiting", "none"),
        ("gpu-2", "waiting", "none"),
    ]
    conclude(world, row)
    passes(world, "gpu-1")
    passes(world, "gpu-2", dcgm="skipped")
    conclude(world, row)
    shown = operator.get(f"validations/{row.pk}").json()
    assert (shown["state"], [one["state"] for one in shown["nodes"]]) == ("error", ["passed", "error"])
    assert [why["code"] for why in shown["nodes"][1]["reasons"]] == ["validation_skipped"]
    assert len(shown["nodes"][1]["because"]) == 1
    [dcgm] = [one for one in shown["results"] if (one["node"], one["check"]) == ("gpu-2", "dcgm")]
    named = {"device": "", "status": "skipped", "value": None, "unit": "", "message": "", "proof": "none"}
    named["reported_by"] = "agent"
    assert dcgm == {"node": "gpu-2", "check": "dcgm", **named}
    assert operator.ids("validations?state=error&profile=light&node=gpu-2&cluster=c1") == [row.pk]
    assert operator.ids("validations?state=passed") == operator.ids("validations?node=gpu-9") == []


def test_a_repeated_request_validates_once(world: World, operator: Api) -> None:
    first, second = (operator.post("validations", ASKED, idempotency_key="k").json() for _ in range(2))
    assert first == second
    assert Validation.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"profile": "deep"}, "profile", "profile_unknown"),
        ({"nodes": ["gpu-1", "gpu-9"]}, "nodes", "nodes_missing"),
        ({"nodes": []}, "nodes", ""),
        ({"cluster": "c9"}, "cluster", "unknown_cluster"),
        ({"level": 4}, "level", "unknown_field"),
    ],
)
def test_an_invalid_validation_is_refused_by_field(
    world: World, operator: Api, change: dict[str, Any], field: str, code: str
) -> None:
    found = codes(operator.post("validations", ASKED | change), 400)
    assert list(found) == [field]
    assert code in ("", found[field])
    assert not Validation.objects.exists()


def test_a_validation_is_cancelled_once(world: World, operator: Api, viewer: Api) -> None:
    key = operator.post("validations", ASKED).json()["id"]
    problem(viewer.post(f"validations/{key}/cancel", {"reason": "x"}), 403)
    assert operator.post(f"validations/{key}/cancel", {"reason": "x"}).json()["state"] == "cancelled"
    assert problem(operator.post(f"validations/{key}/cancel", {}), 409)["code"] == "validation_ended"
    problem(operator.post("validations/999/cancel", {}), 404)


def test_operators_of_the_cluster_request_validations_and_viewers_read_them(
    world: World, viewer: Api, now: datetime
) -> None:
    problem(viewer.post("validations", ASKED), 403)
    elsewhere = caller("operator", now, cluster=Cluster.objects.create(name="c2", created_at=now))
    assert codes(elsewhere.post("validations", ASKED), 400) == {"cluster": "unknown_cluster"}
    key = caller("operator", now).post("validations", ASKED).json()["id"]
    assert viewer.get(f"validations/{key}").status_code == 200
    assert elsewhere.ids("validations") == []
    problem(elsewhere.get(f"validations/{key}"), 404)


def test_profiles_are_read_and_changed_by_admins(viewer: Api, operator: Api, admin: Api, now: datetime) -> None:
    listed = viewer.get("profiles").json()
    assert [(one["name"], one["built_in"]) for one in listed] == [(name, True) for name in profiles.DEFAULTS]
    assert viewer.get("profiles/burn-in").json() == listed[2]
    problem(viewer.get("profiles/deep"), 404)
    problem(admin.call("put", "profiles/deep", PCIE), 404)
    of_cluster = person("al", "admin", now, cluster=Cluster.objects.create(name="c2", created_at=now))
    for other in (viewer, operator, of_cluster):
        problem(other.call("put", "profiles/light", PCIE), 403)
        problem(other.call("delete", "profiles/light"), 403)
    changed = admin.call("put", "profiles/light", {**PCIE, "reason": "gen 5"})
    assert (changed.status_code, changed.json()) == (
        200,
        {"name": "light", "built_in": False, **PCIE, "time_limit": 600},
    )
    assert Entry.objects.get(verb="profile.changed").data["reason"] == "gen 5"
    assert admin.call("delete", "profiles/light").json() == listed[0]


def test_a_bad_profile_is_refused_by_its_path(admin: Api) -> None:
    bad = {"checks": [{"check": "dcgm", "level": 9}, {"check": "pvc"}], "probes": ["x"], "reason": "x"}
    assert codes(admin.call("put", "profiles/full", bad), 400) == {
        "checks/0/level": "number_out_of_range",
        "checks/1/check": "profile_check_unknown",
        "probes/0": "profile_probe_unknown",
    }
    assert codes(admin.call("put", "profiles/full", []), 400) == {"body": "not_an_object"}
    assert not Entry.objects.filter(verb="profile.changed").exists()
