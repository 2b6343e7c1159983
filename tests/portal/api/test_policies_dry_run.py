"""Asking over REST: what changed, which rule would win, what a text would have decided."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover import reasons
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.models import Entry
from kcover_portal.policies.models import Revision
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.api.conftest import Api, add_node, fields, person, problem
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db


def tried(api: Api, body: dict[str, object]) -> dict[str, Any]:
    """What a try finds, with a worker that does it at once."""
    begun = api.post("policies/try", body)
    assert begun.status_code == 202, begun.content
    pk = begun.json()["id"]
    while pk in policy_tries.due(now=timezone.now()):
        policy_tries.advance(pk, clock=timezone.now)
    found: dict[str, Any] = api.get(f"policies/tries/{pk}").json()
    assert found["state"] == "done"
    return found


# --- what changed


def test_two_revisions_are_compared_as_lines_and_as_values(admin: Api, viewer: Api) -> None:
    for codes in ('["62"]', '["63"]', '["63", "64"]'):
        admin.call("put", "policies/a", text=policy("a", codes=codes))
    last = viewer.get("policies/a/diff").json()
    assert (last["from"], last["to"]) == (2, 3)
    assert last["changes"] == [{"path": "spec.rules[0].errorCode", "old": ["63"], "new": ["63", "64"]}]
    whole = viewer.get("policies/a/diff?from=1&to=3").json()
    assert whole["unified"].split("\n")[:2] == ["--- a revision 1", "+++ a revision 3"]
    assert '-      errorCode: ["62"]' in whole["unified"].split("\n")
    assert '+      errorCode: ["63", "64"]' in whole["unified"].split("\n")
    assert viewer.get("policies/a/diff?from=3&to=2").json()["changes"][0]["new"] == ["63"]
    assert viewer.get("policies/a/diff?from=2&to=2").json()["changes"] == []


def test_incomparable_revisions_are_refused(admin: Api, viewer: Api) -> None:
    admin.call("put", "policies/a", text=policy("a"))
    assert viewer.get("policies/a/diff").json()["unified"] == ""
    problem(viewer.get("policies/b/diff"), 404)
    assert problem(viewer.get("policies/a/diff?from=9"), 404)["detail"] == "Policy a has no revision 9."
    assert fields(viewer.get("policies/a/diff?from=x")) == {"from": "Must be a revision number."}
    admin.call("delete", "policies/a")
    assert "Policy a is not active" in problem(viewer.get("policies/a/diff?from=1"), 404)["detail"]
    assert viewer.get("policies/a/diff?from=1&to=1").json()["changes"] == []


def test_a_text_is_compared_with_the_policy_in_force(admin: Api, viewer: Api) -> None:
    admin.call("put", "policies/a", text=policy("a"))
    text = "# why\n" + policy("a", priority=11)
    body = viewer.post("policies/a/diff", text=policy("b") + "---\n" + text).json()
    assert (body["from"], body["to"]) == (1, None)
    assert body["changes"] == [{"path": "spec.rules[0].priority", "old": 10, "new": 11}]
    assert "+# why" in body["unified"].split("\n")
    problem(viewer.post("policies/a/diff", text=policy("a", codes="[]")), 422)
    assert "does not contain" in problem(viewer.post("policies/a/diff", text=policy("b")), 422)["detail"]
    assert Revision.objects.count() == 1


def test_archived_policies_are_listed_apart_and_brought_back(admin: Api, viewer: Api) -> None:
    for name in ("a", "b"):
        admin.call("put", f"policies/{name}", text=policy(name))
    admin.call("delete", "policies/a?reason=too+eager")
    assert [row["name"] for row in viewer.get("policies").json()["results"]] == ["b"]
    [row] = viewer.get("policies?archived=true").json()["results"]
    assert (row["name"], row["revision"], row["archived_by"], row["archived_because"]) == (
        "a",
        1,
        "user:ada",
        "too eager",
    )
    assert row["archived_at"] is not None
    back = admin.post("policies/a/rollback", {"revision": 1, "reason": "needed after all"})
    assert (back.status_code, back.headers["ETag"], back.json()["archived_at"]) == (200, '"2"', None)
    assert viewer.get("policies?archived=true").json()["results"] == []


@pytest.mark.parametrize("reason", [None, "", "  "])
def test_going_back_needs_a_reason(reason: str | None, admin: Api) -> None:
    for codes in ('["62"]', '["63"]'):
        admin.call("put", "policies/a", text=policy("a", codes=codes))
    body = {"revision": 1} if reason is None else {"revision": 1, "reason": reason}
    assert "reason" in fields(admin.post("policies/a/rollback", body))
    assert Revision.objects.count() == 2


def test_a_rollback_to_the_revision_in_force_is_refused(admin: Api) -> None:
    admin.call("put", "policies/a", text=policy("a"))
    body = problem(admin.post("policies/a/rollback", {"revision": 1, "reason": "x"}), 412)
    assert body["detail"] == "Revision 1 of a is already active."


# --- which rule would win


def test_the_rule_that_would_win(admin: Api, viewer: Api, node: Node) -> None:
    selector = "      nodeSelector: {operator: any, labels: {pool: a}}\n"
    admin.call("put", "policies/a", text=policy("a", priority=20, extra=selector))
    admin.call("put", "policies/b", text=policy("b", codes="~"))
    body = viewer.get("policies/effective?code=62&label=pool=a").json()
    assert (body["rule"], body["policy"], body["revision"], body["mode"]) == ("a#1", "a", 1, "enforce")
    assert body["steps"] == [{"name": "cordon", "args": {}}]
    assert body["tried"] == [{"rule": "a#1", "matched": True, "because": "Code and labels match."}]

    body = viewer.get("policies/effective?code=62").json()
    assert body["rule"] == "b#1"
    assert body["tried"][0] == {
        "rule": "a#1",
        "matched": False,
        "because": "The node has none of these labels: pool=a.",
    }
    Node.objects.filter(pk=node.pk).update(labels={"pool": "a"})
    assert viewer.get("policies/effective?code=62&node=east/gpu-1").json()["rule"] == "a#1"
    assert viewer.get("policies/effective?kind=sxid&code=11004").json()["rule"] == "b#1"
    nobody = viewer.get("policies/effective?kind=check&code=remapped").json()
    assert (nobody["rule"], nobody["steps"], len(nobody["tried"])) == (None, [], 2)


def test_an_application_fault_may_match_no_rule(admin: Api, viewer: Api) -> None:
    text = policy("a", codes="~", extra="      match: {kinds: [pod], applicationFaults: false}\n")
    [rule] = admin.call("put", "policies/a", text=text).json()["rules"]
    assert (rule["match"]["kinds"], rule["match"]["applicationFaults"]) == (["pod"], False)
    query = "policies/effective?kind=pod&code=Error&application="
    assert [viewer.get(query + value).json()["rule"] for value in ("false", "true")] == ["a#1", None]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "code"),
        ("code=x", "code"),
        ("code=62&kind=xids", "kind"),
        ("code=62&label=pool", "label"),
        ("code=62&node=east/none", "node"),
        ("code=62&nod=x", "nod"),
        ("code=62&application=x", "application"),
    ],
)
def test_an_invalid_query_for_the_effective_rule_is_refused(query: str, field: str, viewer: Api) -> None:
    assert field in fields(viewer.get(f"policies/effective?{query}"))


# --- what a text would have decided


@pytest.fixture
def incident(admin: Api, node: Node, now: datetime) -> Incident:
    """An open Xid 62, judged in shadow by a rule that cordons."""
    admin.call("put", "policies/a", text=policy("a", extra="      mode: shadow\n"))
    return add_incident(node, now)


def add_incident(node: Node, now: datetime, **more: object) -> Incident:
    row = Incident.objects.create(
        **{
            "cluster": node.cluster,
            "node": node,
            "kind": "xid",
            "code": "62",
            "count": 1,
            "opened_at": now,
            "last_at": now,
            "decide_at": now,
            **more,
        }
    )
    rescue.decide(row.pk, now=now)
    return row


def rows_of_everything() -> list[int]:
    return [model.objects.count() for model in (Revision, Decision, Rescue, Entry)]


def test_a_text_is_tried_on_open_incidents(incident: Incident, viewer: Api) -> None:
    before = rows_of_everything()
    body = tried(viewer, {"yaml": policy("a")})
    assert (body["incidents"], body["changed"], body["truncated"]) == (1, 1, False)
    assert body["answers"] == {"before": {"shadow": 1}, "after": {"rescue": 1}}
    [one] = body["results"]
    assert (one["incident"], one["cluster"], one["node"], one["kind"], one["code"]) == (
        incident.pk,
        "east",
        "gpu-1",
        "xid",
        62,
    )
    assert (one["before"]["answer"], one["after"]["answer"], one["after"]["rule"]) == ("shadow", "rescue", "a#1")
    assert (one["after"]["steps"], one["after"]["because"][-1]) == (["cordon"], str(reasons.of("nothing_holds_back")))
    assert rows_of_everything() == before


def test_a_text_is_tried_beside_the_policies_that_it_does_not_replace(incident: Incident, viewer: Api) -> None:
    body = tried(viewer, {"yaml": policy("b", priority=9), "now": True})
    assert (body["changed"], body["results"][0]["after"]["rule"]) == (0, "a#1")
    body = tried(viewer, {"yaml": policy("b", priority=11), "node": "east/gpu-1"})
    assert (body["changed"], body["results"][0]["after"]["rule"]) == (1, "b#1")


def test_days_are_judged_on_the_facts_of_then(incident: Incident, node: Node, viewer: Api, now: datetime) -> None:
    Incident.objects.filter(pk=incident.pk).update(state="closed", opened_at=datetime.now(tz=now.tzinfo))
    Node.objects.filter(pk=node.pk).update(labels={"kcover.io/exclude": "true"})
    assert tried(viewer, {"yaml": policy("a")})["incidents"] == 0
    body = tried(viewer, {"yaml": policy("a"), "days": 7})
    assert body["answers"] == {"before": {"shadow": 1}, "after": {"rescue": 1}}
    long_ago = datetime.now(tz=now.tzinfo) - timedelta(days=8)
    Incident.objects.filter(pk=incident.pk).update(opened_at=long_ago)
    assert tried(viewer, {"yaml": policy("a"), "days": 7})["incidents"] == 0
    assert tried(viewer, {"yaml": policy("a"), "days": 9})["incidents"] == 1


def test_limits_of_a_rule_are_counted_for_the_tried_text_too(incident: Incident, viewer: Api) -> None:
    extra = "      budget: 1\n      cooldown: 1h\n"
    [one] = tried(viewer, {"yaml": policy("new", priority=99, extra=extra)})["results"]
    assert (one["after"]["answer"], one["after"]["rule"]) == ("rescue", "new#1")


WANTS_THREE = policy("a", extra="      match: {minCount: 3, within: 1h}\n")


def test_occurrences_are_counted_for_the_texts_own_windows(incident: Incident, node: Node, viewer: Api) -> None:
    today = datetime.now(tz=incident.opened_at.tzinfo)
    Incident.objects.filter(pk=incident.pk).update(last_at=today)
    for count, ago, answer in ((2, 10, "none"), (5, 90, "none"), (1, 20, "rescue")):
        at = today - timedelta(minutes=ago)
        Occurrence.objects.create(incident=incident, node=node, source="kmsg", count=count, at=at)
        [one] = tried(viewer, {"yaml": WANTS_THREE})["results"]
        assert one["after"]["answer"] == answer


def test_occurrences_of_the_past_are_counted_up_to_then(
    incident: Incident, node: Node, viewer: Api, now: datetime
) -> None:
    Incident.objects.filter(pk=incident.pk).update(state="closed", opened_at=datetime.now(tz=now.tzinfo))
    because = "Rule a#1 does not apply. Requires 3 occurrences within 1h; 2 were seen."
    for count, ago, answer in ((2, 10, "none"), (5, 90, "none"), (5, -10, "none"), (1, 20, "rescue")):
        at = now - timedelta(minutes=ago)
        Occurrence.objects.create(incident=incident, node=node, source="kmsg", count=count, at=at)
        [one] = tried(viewer, {"yaml": WANTS_THREE, "days": 1})["results"]
        assert one["after"]["answer"] == answer
        assert answer == "rescue" or one["after"]["because"] == [because]


def test_a_policy_is_tried_only_on_clusters_that_the_caller_sees(
    incident: Incident, west: Cluster, now: datetime, viewer: Api
) -> None:
    add_incident(add_node(west, "gpu-2", now), now)
    wanda = person("wanda", "viewer", now, cluster=west)
    assert [one["cluster"] for one in tried(wanda, {"yaml": policy("a")})["results"]] == ["west"]
    assert "node" in fields(wanda.post("policies/try", {"yaml": policy("a"), "node": "east/gpu-1"}))
    assert tried(viewer, {"yaml": policy("a")})["incidents"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "yaml"),
        ({"yaml": "x", "days": 0}, "days"),
        ({"yaml": "x", "days": 91}, "days"),
        ({"yaml": "x", "days": 1, "now": True}, "days"),
        ({"yaml": "x", "node": "east/none"}, None),
        ({"yaml": "x", "nodes": []}, "nodes"),
    ],
)
def test_an_invalid_try_is_refused(body: dict[str, object], field: str | None, viewer: Api) -> None:
    response = viewer.post("policies/try", body)
    if field is None:
        problem(response, 422)
    else:
        assert field in fields(response)
