"""Packs of policies over REST."""

import pytest

from kcover_portal.policies import queries
from tests.portal.api.conftest import Api, problem

pytestmark = pytest.mark.django_db


def test_a_pack_is_installed_in_a_mode(admin: Api) -> None:
    answer = admin.post("policies/install", {"pack": "kce", "mode": "enforce", "reason": "move"})
    assert answer.status_code == 200
    assert [one["name"] for one in answer.json()] == ["kce", "kce-fallen-off-the-bus", "kce-global"]
    assert {one.rule.mode for one in queries.candidates()} == {"enforce"}
    assert admin.post("policies/install", {"pack": "kcover"}).status_code == 200
    assert {one.rule.mode for one in queries.candidates() if one.policy == "kcover"} == {"shadow"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"pack": "x"}, 422),
        ({"pack": "kce", "mode": "paused"}, 422),
        ({"pack": 7, "mode": []}, 422),
        ({"pack": "kce", "more": 1}, 422),
        ({"pack": "x" * 100}, 422),
    ],
)
def test_an_invalid_request_installs_no_pack(admin: Api, body: dict[str, object], status: int) -> None:
    assert admin.post("policies/install", body).status_code in (400, status)
    assert queries.candidates() == ()


def test_only_policy_writers_install_packs(viewer: Api) -> None:
    problem(viewer.post("policies/install", {"pack": "kce"}), 403)


def test_a_pack_lists_what_it_would_install(admin: Api, viewer: Api) -> None:
    listed = {one["name"]: one for one in viewer.get("policies/packs").json()["results"]}
    assert list(listed) == ["kcover", "konduktor", "kce", "autopilot", "nvidia", "ladder"]
    assert (listed["konduktor"]["mode"], listed["konduktor"]["installed"]) == ("shadow", [])
    assert listed["konduktor"]["changes"] == {"konduktor": "new"}
    [rule] = listed["konduktor"]["policies"][0]["rules"]
    assert [action["name"] for action in rule["actions"]] == ["taint"]
    admin.post("policies/install", {"pack": "konduktor"})
    assert viewer.get("policies/packs/konduktor").json()["changes"] == {"konduktor": "unchanged"}
    one = viewer.get("policies/packs/konduktor?mode=enforce").json()
    assert (one["mode"], one["installed"], one["changes"]) == ("enforce", ["konduktor"], {"konduktor": "changed"})
    assert one["policies"][0]["rules"][0]["mode"] == "enforce"
    assert admin.post("policies/validate", {"text": one["text"]}).json()["valid"]


def test_an_unknown_pack_mode_or_parameter_is_named(viewer: Api) -> None:
    assert problem(viewer.get("policies/packs/x"), 404)["code"] == "not_found"
    assert problem(viewer.get("policies/packs?mode=paused"), 400)["errors"][0]["field"] == "mode"
    assert problem(viewer.get("policies/packs?more=1"), 400)["errors"][0]["field"] == "more"
