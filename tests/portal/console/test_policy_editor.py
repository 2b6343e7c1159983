"""The editor: words to complete, the form of a rule, effects that must be agreed to, and the table of winning rules."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover import actions, reasons
from kcover.decisions import match
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.policies import services
from kcover_portal.policies.models import Policy
from kcover_portal.rescue.models import Rescue
from tests.portal.api.conftest import add_node
from tests.portal.api.test_policies_dry_run import add_incident
from tests.portal.policies.texts import policy

QUERIES = 15
EDIT, RULE = "/policies/edit/", "/policies/rule/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def admin(person: Any) -> Client:
    return person("admin")


def apply(text: str) -> None:
    services.apply(text, author="ops", reason="test", now=timezone.now())


def filled(form: Any, **more: Any) -> dict[str, Any]:
    """What a browser sends for the form as it is shown, with some fields filled in."""
    fields = {bound.html_name: bound.value() for bound in form}
    sent = {name: value for name, value in fields.items() if value not in (None, False, "")}
    return {name: "on" if value is True else value for name, value in (sent | more).items()}


def test_the_vocabulary_of_the_editor_is_explained_in_both_languages(admin: Client) -> None:
    words = admin.get("/policies/vocabulary/").json()
    assert set(words["actions"]) == set(actions.in_policies())
    assert {name for name, action in words["actions"].items() if set(action["attributes"])} >= {"drain", "reboot"}
    assert all(text for action in words["actions"].values() for text in action["attributes"].values())
    assert all(text for context in ("rule", "match", "approval") for text in words["keys"][context].values())
    assert words["codes"]["xid"]["79"][0]
    chinese = admin.get("/policies/vocabulary/", headers={"Accept-Language": "zh-hans"}).json()
    same = [key for key, text in words["keys"]["rule"].items() if chinese["keys"]["rule"][key] == text]
    assert same == []


def test_the_form_changes_a_rule_and_adds_one_in_the_text(admin: Client) -> None:
    text = policy("a", extra="      cooldown: 2h  # long\n") + "---\n" + policy("b")
    shown = admin.post(RULE, {"text": text, "rule": "1.0"}, headers=HTMX).context
    assert [name for _key, name in shown["rules"]] == ["a#1", "b#1"]
    first = admin.post(RULE, {"text": text, "rule": "0.0"}, headers=HTMX).context["rule"]
    untouched = {"text": text, "rule": "0.0", "apply": "1", **filled(first)}
    assert admin.post(RULE, untouched, headers=HTMX).context["text"] == text
    changes = {"rule-mode": "approve", "rule-xids": "62 79", "rule-do_drain": "on", "rule-drain-waittime": "5min"}
    changed = admin.post(RULE, {**untouched, **changes}, headers=HTMX).context
    assert changed["applied"]
    assert "# long" in changed["text"]
    new = services.validate(changed["text"]).policies[0].policy
    assert not isinstance(new, str)
    [rule] = new.rules  # type: ignore[union-attr]
    assert (rule.mode, rule.codes) == ("approve", ("62", "79"))
    assert [(action.name, dict(action.attribute)) for action in rule.actions] == [
        ("cordon", {}),
        ("drain", {"waittime": "5min"}),
    ]
    fresh = admin.post(RULE, {"text": text, "rule": "new"}, headers=HTMX).context["rule"]
    sent = {"text": text, "rule": "new", "apply": "1", **filled(fresh), "rule-priority": "30", "rule-xids": "79"}
    added = admin.post(RULE, sent).context  # without scripts: the whole page
    assert [name for _key, name in added["rules"]] == ["a#1", "b#1", "b#2"]
    assert services.validate(added["text"]).problems == ()


@pytest.mark.parametrize(
    "sent",
    [{"text": "a: ["}, {"text": policy("a"), "rule": "7.7", "apply": "1"}, {"text": "", "apply": "1", "rule": "new"}],
)
def test_an_odd_text_or_rule_is_refused_and_kept(admin: Client, sent: dict[str, str]) -> None:
    shown = admin.post(RULE, {**sent, "rule-mode": "shadow"}, headers=HTMX)
    assert (shown.status_code, bool(shown.context.get("applied"))) == (200, False)
    assert shown.context["text"] == sent["text"]


def test_a_time_that_would_have_no_effect_is_refused(admin: Client) -> None:
    text = policy("a")
    first = admin.post(RULE, {"text": text, "rule": "0.0"}, headers=HTMX).context["rule"]
    sent = {"text": text, "rule": "0.0", "apply": "1", **filled(first), "rule-expires": "30min"}
    shown = admin.post(RULE, sent, headers=HTMX).context
    assert (bool(shown.get("applied")), shown["text"]) == (False, text)
    assert shown["refused"] == str(reasons.of("rule_text_expiry"))
    assert admin.post(RULE, {**sent, "rule-approvers": "1"}, headers=HTMX).context["applied"]


def test_a_text_that_switches_rules_off_must_be_agreed_to(admin: Client) -> None:
    apply(policy("kept", priority=10, extra="      mode: enforce\n"))
    text = policy("over", priority=20, extra="      mode: shadow\n")
    asked = admin.post(EDIT, {"text": text, "reason": "try"})
    assert (asked.status_code, [one.reason.code for one in asked.context["effects"]]) == (422, ["rule_covered"])
    assert not Policy.objects.filter(name="over").exists()
    wrong = admin.post(EDIT, {"text": text, "reason": "try", "agreed": "0" * 64})
    assert wrong.status_code == 422
    agreed = {"text": text, "reason": "try", "agreed": asked.context["agreement"]}
    assert admin.post(EDIT, agreed).status_code == 302
    changed = text.replace('"62"', '"62", "79"')  # what holds already does not ask again
    page = admin.post("/policies/over/edit/", {"text": changed, "reason": "try", "expected": "1"})
    assert page.status_code == 302


@pytest.mark.parametrize(("mode", "says"), [("shadow", "shadow"), ("approve", "approval"), ("enforce", "enforce")])
def test_the_publish_button_shows_what_the_mode_allows(admin: Client, mode: str, says: str) -> None:
    shown = admin.post("/policies/validate/", {"text": policy("a", extra=f"      mode: {mode}\n")})
    assert says in shown.context["publish"]
    assert f'id="publish-label" hx-swap-oob="true">{shown.context["publish"]}' in shown.content.decode()


def test_the_editor_may_have_its_styles_and_nothing_else_changes(admin: Client) -> None:
    policies = {path: admin.get(path).headers["Content-Security-Policy"] for path in (EDIT, "/policies/")}
    style = next(part for part in policies[EDIT].split("; ") if part.startswith("style-src"))
    assert "'nonce-" in style
    assert "unsafe" not in policies[EDIT]
    assert "nonce" not in policies["/policies/"]


@pytest.fixture
def fleet(db: None, now: Any) -> Cluster:
    cluster = Cluster.objects.create(name="east", created_at=now)
    for name, pool in (("gpu-1", "a"), ("gpu-2", "a"), ("gpu-3", "b")):
        add_node(cluster, name, now)
        Node.objects.filter(name=name).update(pool=pool, labels={"pool": pool, "other": name}, in_cluster=True)
    return cluster


def test_the_winners_of_each_pool_are_shown_in_their_strictest_mode(person: Any, fleet: Cluster, now: Any) -> None:
    selector = "      nodeSelector: {operator: all, labels: {pool: a}}\n"
    apply(policy("low", priority=1, codes='["62", "79"]'))
    apply(policy("high", priority=9, extra=f"      mode: approve\n{selector}"))
    minimum = "      match: {minCount: 3, within: 1h}\n"
    apply(policy("rare", priority=20, codes='["79"]', extra=minimum))
    add_incident(Node.objects.get(name="gpu-3"), now)
    Cluster.objects.update(mode="shadow")
    viewer = person("viewer")
    found = viewer.get("/policies/winners/").context["found"]
    assert [(group.pool, group.nodes, dict(group.labels)) for group in found.groups] == [
        ("a", 2, {"pool": "a"}),
        ("b", 1, {"pool": "b"}),
    ]
    rows = {(row.kind, row.code): [[one.candidate.name for one in cell] for cell in row.cells] for row in found.rows}
    assert rows["xid", "62"] == [["high#1"], ["low#1"]]
    assert rows["xid", "79"] == [["rare#1", "low#1"], ["rare#1", "low#1"]]
    assert rows["xid", ""] == [[], []]
    assert {one.mode for row in found.rows for cell in row.cells for one in cell} == {"shadow"}
    one = viewer.get("/policies/winners/?code=62&node=east/gpu-3").context["found"]
    assert [(row.code, [cell[0].candidate.name for cell in row.cells]) for row in one.rows] == [("62", ["low#1"])]
    for query, wrong in (("code=x", "code"), ("kind=yid", "kind"), ("node=east/gpu-9", "node")):
        assert viewer.get(f"/policies/winners/?{query}").context["wrong"] == wrong
    shown = viewer.get("/api/v1/policies/winners?code=62&pool=a").json()
    assert [(group["pool"], group["nodes"]) for group in shown["groups"]] == [("a", 2)]
    assert [[one["rule"] for one in cell] for cell in shown["faults"][0]["winners"]] == [["high#1"]]
    assert viewer.get("/api/v1/policies/winners?code=x").json()["errors"]


@pytest.mark.parametrize("number", [1, 3])
def test_the_list_shows_the_order_of_rules_and_the_outcomes_of_their_rescues(
    person: Any, fleet: Cluster, now: Any, number: int, django_assert_num_queries: Any
) -> None:
    for index in range(number):
        apply(policy(f"p{index}", priority=index, codes=f'["{index + 60}"]'))
        for state, verified in (("succeeded", True), ("succeeded", None), ("failed", False), ("cancelled", None)):
            Rescue.objects.create(
                cluster=fleet,
                node=Node.objects.get(name="gpu-1"),
                origin=Rescue.Origin.POLICY,
                requester_kind=Rescue.Requester.POLICY,
                policy=f"p{index}",
                state=state,
                verified=verified,
                opened_at=now - timedelta(hours=1),
            )
    viewer = person("viewer")
    viewer.get("/policies/")
    with django_assert_num_queries(QUERIES):
        shown = viewer.get("/policies/").context
    assert [one.policy for one in shown["ranked"]] == [f"p{index}" for index in reversed(range(number))]
    found = [row["rescues"] for row in shown["rows"]]
    assert [(row.number, row.healed, row.finished, row.share) for row in found] == [(4, 1, 3, "33 %")] * number


def test_each_rule_shows_how_its_rescues_ended(person: Any, now: Any) -> None:
    apply(policy("heal"))
    cluster = Cluster.objects.create(name="east", created_at=now)
    node = add_node(cluster, "gpu-1", now)
    made = {"cluster": cluster, "node": node, "policy": "heal", "plan_hash": "x", "opened_at": now}
    for state, verified in (("succeeded", True), ("failed", False), ("cancelled", None)):
        Rescue.objects.create(**made, rule="heal#1", state=state, verified=verified, closed_at=now)
    Rescue.objects.create(**made, rule="heal#9", state="succeeded", verified=True, closed_at=now)
    client = person("viewer")
    page = client.get("/policies/heal/")
    assert (page.context["outcomes"]["heal#1"].number, page.context["outcomes"]["heal#1"].share) == (3, "50 %")
    assert "?rule=heal%231" in page.content.decode()
    [row] = client.get("/policies/").context["rows"]
    assert (row["rescues"].number, row["rescues"].finished, row["rescues"].healed) == (4, 3, 2)


@pytest.mark.parametrize(
    ("kind", "code", "reboots"),
    [
        *(("xid", "79", True), ("xid", "31", False), ("sxid", "20034", True), ("check", "remapped", False)),
        *(("agent", "silent", False), ("alert", "GPU温度过高", False), ("other", "mce", False)),
        ("overflow", "faults", False),
    ],
)
def test_the_editor_begins_with_a_rule_for_a_fault(admin: Client, kind: str, code: str, reboots: bool) -> None:
    shown = admin.get(EDIT, {"kind": kind, "code": code}).context
    assert shown["validated"].problems == ()
    [made] = shown["validated"].policies
    [rule] = made.policy.rules
    assert match.fault_refusal(rule, kind=kind, code=code, application=False) is None
    wanted = ["cordon", "drain", *(["reboot"] if reboots else [])]
    assert (rule.mode, [action.name for action in rule.actions]) == ("shadow", wanted)
    assert shown["trial"]["scope"].value() == "now"
    apply(shown["text"])
    again = admin.get(EDIT, {"kind": kind, "code": code}).context["validated"]
    assert again.policies[0].policy.name == f"{made.policy.name}-2"  # no revision of the one that exists


def test_an_unknown_fault_leaves_the_sample(admin: Client) -> None:
    usual = admin.get(EDIT).context
    assert (usual["trial"]["scope"].value(), usual["validated"].problems) == (None, ())
    for query in ({"kind": "moon", "code": "1"}, {"kind": "xid", "code": ""}, {"kind": "xid\0", "code": "\0"}):
        assert admin.get(EDIT, query).context["text"] == usual["text"]
