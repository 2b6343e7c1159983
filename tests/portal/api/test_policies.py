"""Policies over REST: publishing a text, ETags, and errors with their lines."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.policies.models import Policy, Revision
from tests.portal.api.conftest import Api, caller, fields, person, problem
from tests.portal.policies.texts import KCE_EXAMPLE, policy

pytestmark = pytest.mark.django_db


def put(api: Api, name: str, text: str, **more: str) -> object:
    return api.call("put", f"policies/{name}", text=text, **more)


def test_a_text_is_validated_and_not_applied(viewer: Api) -> None:
    response = viewer.post("policies/validate", text=KCE_EXAMPLE)
    assert response.status_code == 200
    body = response.json()
    assert (body["valid"], body["warnings"]) == (True, [])
    [parsed] = body["policies"]
    assert (parsed["name"], parsed["apiVersion"]) == ("test-1", "rescue.ksyun.com/v1")
    rule = parsed["rules"][0]
    assert (rule["priority"], rule["errorCode"]) == (10, ["62"])
    assert rule["nodeSelector"] == {"operator": "any", "labels": {"app": "demo", "env": "test"}}
    assert rule["actions"] == [
        {"name": "cordon", "attribute": {}, "seconds": None},
        {"name": "drain", "attribute": {"waittime": "20min"}, "seconds": 1200},
        {"name": "reboot", "attribute": {"waittime": "20min", "unCordon": "true"}, "seconds": 1200},
    ]
    assert (rule["mode"], rule["onDrainTimeout"], rule["verify"], rule["escalate"]) == ("enforce", None, False, None)
    assert not Policy.objects.exists()


def test_a_rule_without_codes_and_labels_is_shown_as_such(viewer: Api) -> None:
    text = policy("a", codes="~", extra="      escalate: call somebody\n      verify: {agent: false}\n")
    rule = viewer.post("policies/validate", {"yaml": text}).json()["policies"][0]["rules"][0]
    assert (rule["errorCode"], rule["nodeSelector"]) == (None, None)
    assert (rule["escalate"], rule["verify"], rule["verifyAgent"]) == ("call somebody", True, False)


@pytest.mark.parametrize(
    "kind",
    ["application/yaml", "text/yaml", "application/x-yaml", "text/plain", "application/x-www-form-urlencoded", ""],
)
def test_yaml_goes_by_several_names(kind: str, viewer: Api) -> None:
    address = "/api/v1/policies/validate"
    response = viewer.client.post(address, policy("a"), content_type=kind, headers=viewer.headers)
    assert response.status_code == 200
    refused = viewer.client.post(address, policy("a"), content_type="text/html", headers=viewer.headers)
    assert problem(refused, 415)["detail"] == (
        'Unsupported media type "text/html" in request. Send application/json or application/yaml or text/yaml or'
        " application/x-yaml or text/plain or application/x-www-form-urlencoded."
    )


def test_every_mistake_has_its_line(viewer: Api) -> None:
    body = problem(viewer.post("policies/validate", text=policy("Bad", codes='["62", 63]')), 422)
    assert body["detail"] == "The text has 2 errors. Nothing was applied."
    first, second = body["errors"]
    assert (first["line"], first["path"], first["field"]) == (3, "metadata.name", "metadata.name")
    assert (second["line"], second["column"], second["path"]) == (7, 25, "spec.rules[0].errorCode[1]")
    assert second["message"] == 'An error code is a string of digits: write "63", not 63.'
    assert second["reason"] == f"line 7, column 25: {second['message']}"
    assert [first["code"], second["code"]] == ["policy_name_invalid", "code_invalid"]
    assert second["params"]["value"] == "63"


def test_a_warning_does_not_block_a_policy(viewer: Api) -> None:
    [warning] = viewer.post("policies/validate", text=policy("a", codes='["13"]')).json()["warnings"]
    assert (warning["line"], warning["path"]) == (7, "spec.rules[0].errorCode[0]")
    assert "caused by a program" in warning["message"]
    assert (warning["code"], warning["params"]) == ("xid_of_program", {"kind": "Xid", "code": "13"})


def test_a_body_that_is_too_large_is_refused_with_its_size(admin: Api) -> None:
    large = "#" * 300_000
    for answer in (
        admin.post("policies/validate", text=large),
        admin.post("policies", text=large),
        admin.call("put", "policies/a", text=large),
    ):
        assert problem(answer, 413)["detail"] == "The body has 300000 bytes. The limit is 262144."
    refused = problem(admin.post("policies", {"text": large}), 413)
    assert (refused["code"], refused["params"]) == ("text_too_large", {"bytes": 300_000, "limit": 262_144})
    assert not Policy.objects.exists()


@pytest.mark.parametrize("content", [{"text": ""}, {"text": " \n"}, {"body": {}}, {"body": {"text": ""}}])
def test_an_empty_body_is_refused_with_what_to_send(content: dict[str, Any], admin: Api) -> None:
    for method, path in (("post", "policies/validate"), ("post", "policies"), ("put", "policies/a")):
        assert problem(admin.call(method, path, **content), 422)["detail"] == (
            'The body is empty. Send the policies as YAML (Content-Type: application/yaml) or as JSON {"text": "..."}.'
        )


def test_a_text_that_is_no_utf8_has_its_place(viewer: Api) -> None:
    address = "/api/v1/policies/validate"
    response = viewer.client.post(address, b"a: \xff", content_type="text/yaml", headers=viewer.headers)
    assert problem(response, 422)["errors"][0]["column"] == 4


def test_a_saved_policy_returns_its_warnings(admin: Api) -> None:
    put(admin, "a", policy("a"))
    [warning] = put(admin, "b", policy("b")).json()["warnings"]
    assert (warning["line"], warning["path"]) == (6, "spec.rules[0]")
    assert warning["message"].startswith("a#1 and b#1 both have priority 10 and can match Xid 62 on one node")
    rows = admin.post("policies", text=policy("c", codes='["13"]') + "---\n" + policy("d", codes='["48"]')).json()
    assert [len(row["warnings"]) for row in rows] == [1, 1]
    assert put(admin, "d", policy("d", codes='["48"]')).json()["warnings"] == []
    assert "warnings" not in admin.get("policies/a").json()


def test_a_policy_is_put_read_and_put_again(admin: Api, viewer: Api, now: datetime) -> None:
    response = put(admin, "a", policy("a"))
    assert (response.status_code, response.headers["ETag"]) == (201, '"1"')
    assert put(admin, "a", policy("a", codes='["63"]') + "# new\n", If_Match='"1"').headers["ETag"] == '"2"'
    stale = put(admin, "a", policy("a", codes='["64"]'), If_Match='"1"')
    refused = problem(stale, 412)
    assert refused["detail"].startswith("You edited revision 1 of a, but revision 2 is active")
    assert (refused["code"], refused["params"]["policy"]) == ("revision_changed", "a")
    read = viewer.get("policies/a")
    assert (read.status_code, read.headers["ETag"]) == (200, '"2"')
    body = read.json()
    assert (body["name"], body["revision"], body["author"]) == ("a", 2, "user:ada")
    assert body["text"].endswith("# new\n")
    assert body["rules"][0]["errorCode"] == ["63"]
    numbers = [row["number"] for row in viewer.get("policies/a/revisions").json()["results"]]
    assert numbers == [2, 1]
    problem(viewer.get("policies/b"), 404)
    problem(viewer.get("policies/b/revisions"), 404)


def test_the_same_text_makes_no_new_revision(admin: Api) -> None:
    put(admin, "a", policy("a"))
    assert put(admin, "a", policy("a")).headers["ETag"] == '"1"'
    assert Revision.objects.count() == 1


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"If_Match": "*"}, 412),
        ({"If_Match": '"1"'}, 412),
        ({"If_Match": "abc"}, 412),
        ({"If_None_Match": "*"}, 201),
        ({"If_None_Match": '"1"'}, 400),
        ({"If_Match": '"0"'}, 201),
    ],
)
def test_conditions_on_a_policy_that_is_new(header: dict[str, str], status: int, admin: Api) -> None:
    assert put(admin, "a", policy("a"), **header).status_code == status
    assert Policy.objects.exists() is (status == 201)


@pytest.mark.parametrize(
    ("header", "status"),
    [({"If_Match": "*"}, 200), ({"If_Match": 'W/"1"'}, 200), ({"If_Match": "1"}, 200), ({"If_None_Match": "*"}, 412)],
)
def test_conditions_on_a_policy_that_is_there(header: dict[str, str], status: int, admin: Api) -> None:
    put(admin, "a", policy("a"))
    assert put(admin, "a", policy("a", codes='["63"]'), **header).status_code == status


def test_the_address_and_the_text_must_agree(admin: Api) -> None:
    body = problem(put(admin, "a", policy("b")), 422)
    assert "The text must contain only the policy a. It contains b." in body["errors"][0]["message"]
    assert not Policy.objects.exists()


def test_many_policies_are_posted_all_or_none(admin: Api) -> None:
    problem(admin.post("policies", text=KCE_EXAMPLE + "---\n" + policy("b", codes="[]")), 422)
    assert not Policy.objects.exists()
    body = {"text": policy("b") + "---\n" + KCE_EXAMPLE, "reason": "start"}
    names = [row["name"] for row in admin.post("policies", body, Idempotency_Key="k").json()]
    assert names == ["b", "test-1"]
    again = admin.post("policies", body, Idempotency_Key="k")
    assert [row["revision"] for row in again.json()] == [1, 1]
    assert [row["name"] for row in admin.get("policies").json()["results"]] == names
    assert [row["name"] for row in admin.get("policies?q=demo").json()["results"]] == ["test-1"]
    assert set(Revision.objects.values_list("reason", flat=True)) == {"start"}


def test_the_reason_of_a_yaml_body_is_a_parameter(admin: Api) -> None:
    admin.call("put", "policies/a?reason=why", text=policy("a"))
    assert Revision.objects.get().reason == "why"
    assert fields(admin.call("put", f"policies/a?reason={'x' * 501}", text=policy("a"))) == {
        "reason": "Must have at most 500 characters."
    }
    assert "resaon" in fields(admin.call("put", "policies/a?resaon=why", text=policy("a")))


def test_a_policy_is_rolled_back_and_deleted(admin: Api) -> None:
    put(admin, "a", policy("a"))
    put(admin, "a", policy("a", codes='["63"]'))
    problem(admin.call("post", "policies/a/rollback", {"revision": 1, "reason": "oops"}, If_Match='"1"'), 412)
    back = admin.call("post", "policies/a/rollback", {"revision": 1, "reason": "oops"}, If_Match='"2"')
    assert (back.status_code, back.headers["ETag"], back.json()["rules"][0]["errorCode"]) == (200, '"3"', ["62"])
    problem(admin.post("policies/a/rollback", {"revision": 9, "reason": "oops"}), 404)
    assert "revision" in fields(admin.post("policies/a/rollback", {"revision": 0}))

    problem(admin.call("delete", "policies/a", If_Match='"2"'), 412)
    assert admin.call("delete", "policies/a", If_Match='"3"').status_code == 204
    problem(admin.get("policies/a"), 404)
    problem(admin.call("delete", "policies/a"), 404)
    assert [row["number"] for row in admin.get("policies/a/revisions").json()["results"]] == [3, 2, 1]


def test_only_an_admin_of_everything_writes_policies(now: datetime, operator: Api) -> None:
    for one in (operator, caller("decision", now), person("pat", "approver", now)):
        for call in (
            one.post("policies", text=policy("a")),
            put(one, "a", policy("a")),
            one.call("delete", "policies/a"),
            one.post("policies/a/rollback", {"revision": 1}),
        ):
            problem(call, 403)
    assert not Policy.objects.exists()


def test_a_policy_that_this_version_cannot_read_is_still_shown(admin: Api) -> None:
    put(admin, "a", policy("a"))
    Revision.objects.update(document={"kind": "FuturePolicy"})
    row = admin.get("policies/a").json()
    assert (row["rules"], row["text"]) == ([], policy("a"))
