"""The WarmStandbyPolicy over REST: the same endpoints as for RescuePolicies, at most one object."""

import pytest

from kcover import reasons
from kcover.policy import document
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from tests.portal.api.conftest import Api, problem
from tests.portal.policies.texts import KCE_EXAMPLE, STANDBY_EXAMPLE, standby

pytestmark = pytest.mark.django_db
NAME = "cluster-warm-standby"


def test_kces_own_example_goes_in_and_out(admin: Api, viewer: Api) -> None:
    put = admin.call("put", f"standby-policies/{NAME}?reason=start", text=STANDBY_EXAMPLE)
    assert (put.status_code, put.headers["ETag"]) == (201, '"1"')
    [row] = viewer.get("standby-policies").json()["results"]
    assert (row["name"], row["kind"], row["revision"], row["reason"]) == (NAME, "WarmStandbyPolicy", 1, "start")
    assert (row["rules"], row["text"]) == ([], STANDBY_EXAMPLE)
    assert row["matches"] == [{"originNode": {"env": "dev"}, "targetNode": {"env": "dev"}}]
    assert viewer.get(f"standby-policies/{NAME}").headers["ETag"] == '"1"'
    assert viewer.get("policies").json()["results"] == []
    problem(viewer.get(f"policies/{NAME}"), 404)
    assert queries.standby_rules() == (document.StandbyRule(index=0, origin={"env": "dev"}, target={"env": "dev"}),)


def test_both_kinds_are_posted_in_one_text(admin: Api) -> None:
    rows = admin.post("policies", text=f"{KCE_EXAMPLE}---\n{STANDBY_EXAMPLE}").json()
    assert [(row["kind"], row["name"]) for row in rows] == [("RescuePolicy", "test-1"), ("WarmStandbyPolicy", NAME)]
    assert (len(rows[0]["rules"]), len(rows[1]["matches"])) == (2, 1)


def test_a_text_is_validated(viewer: Api) -> None:
    [parsed] = viewer.post("policies/validate", text=STANDBY_EXAMPLE).json()["policies"]
    assert (parsed["kind"], parsed["name"], len(parsed["matches"])) == ("WarmStandbyPolicy", NAME, 1)
    body = problem(viewer.post("policies/validate", text=STANDBY_EXAMPLE.replace("env: dev", "env: 1")), 422)
    assert {error["path"] for error in body["errors"]} == {
        "spec.matches[0].originNode.env",
        "spec.matches[0].targetNode.env",
    }


def test_a_second_one_is_refused(admin: Api) -> None:
    admin.call("put", f"standby-policies/{NAME}", text=STANDBY_EXAMPLE)
    body = problem(admin.call("put", "standby-policies/other", text=standby("other")), 422)
    assert body["errors"][0]["message"] == (
        f"Only one WarmStandbyPolicy is allowed. {NAME} is active. Use its name or disable it."
    )
    assert admin.call("delete", f"standby-policies/{NAME}").status_code == 204
    assert admin.call("put", "standby-policies/other", text=standby("other")).status_code == 201


def test_a_standby_policy_is_changed_compared_and_rolled_back(admin: Api) -> None:
    admin.call("put", f"standby-policies/{NAME}", text=STANDBY_EXAMPLE)
    changed = STANDBY_EXAMPLE.replace("      targetNode:\n        env: dev", "      targetNode:\n        env: spare")
    assert admin.call("put", f"standby-policies/{NAME}", text=changed, If_Match='"1"').status_code == 200
    problem(admin.call("put", f"standby-policies/{NAME}", text=STANDBY_EXAMPLE, If_Match='"1"'), 412)
    diff = admin.get(f"standby-policies/{NAME}/diff").json()
    assert (diff["from"], diff["to"]) == (1, 2)
    assert diff["changes"] == [{"path": "spec.matches[0].targetNode.env", "old": "dev", "new": "spare"}]
    back = admin.post(f"standby-policies/{NAME}/rollback", {"revision": 1, "reason": "too few"})
    assert (back.status_code, back.headers["ETag"]) == (200, '"3"')
    rows = admin.get(f"standby-policies/{NAME}/revisions").json()["results"]
    assert [row["reason"] for row in rows] == ["too few", "", ""]
    assert [row["because"] for row in rows] == [reasons.of("policy_rolled_back", revision=1).to_json(), None, None]


def test_the_address_determines_the_kind(admin: Api) -> None:
    body = problem(admin.call("put", f"policies/{NAME}", text=STANDBY_EXAMPLE), 422)
    assert body["errors"][0]["message"] == (
        f"The text must contain only the policy {NAME}. It contains WarmStandbyPolicy {NAME}."
    )
    assert not Policy.objects.exists()
