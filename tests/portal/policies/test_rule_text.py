"""A rule is changed inside its text: what differs is written, and everything else stays as its author wrote it."""

import itertools
from typing import Any

import pytest

from kcover_portal.policies.services import rule_text, yaml_reader
from tests.portal.policies.texts import KCE_EXAMPLE, policy, standby

NEW = {
    "priority": 5,
    "mode": "shadow",
    "errorCode": ["79"],
    "actions": [{"name": "drain", "attribute": {"waittime": "20min"}}],
}
CHANGES: list[dict[str, Any]] = [
    {"priority": 20},
    {"mode": "approve", "approval": {"required": True, "approvers": 2}},
    {"errorCode": ["62", "79"]},
    {"errorCode": None, "match": {"kinds": ["agent"], "sxid": ["12028"]}},
    {"nodeSelector": None},
    {"nodeSelector": {"operator": "all", "labels": {"app": "demo", "zone": "no", "spare": "true"}}},
    {"actions": [{"name": "cordon"}, {"name": "notify", "attribute": {"message": "look: # here"}}]},
    {"actions": [], "escalate": "look at it: now"},
    {"budget": "10%", "cooldown": "2h"},
]


def contents(text: str) -> list[Any]:
    found, problems = yaml_reader.read(text)
    assert problems == []
    return [one.content for one in found]


@pytest.mark.parametrize(("changes", "index"), list(itertools.product(CHANGES, (0, 1))))
def test_only_the_rule_changes_and_comments_of_other_lines_stay(changes: dict[str, Any], index: int) -> None:
    text = f"# head\n{KCE_EXAMPLE}# tail\n---\n{policy('other')}"
    rule = rule_text.rules(text)[index]
    changed = rule_text.change(text, rule, changes)
    before, after = contents(text), contents(changed)
    for key, value in changes.items():
        assert after[0]["spec"]["rules"][index].get(key) == value
    for document in (before, after):
        for key in changes:
            document[0]["spec"]["rules"][index].pop(key, None)
    assert after == before
    kept = [line for line in text.splitlines() if "#" in line and "any" not in line]
    assert [line for line in kept if line not in changed.splitlines()] == []
    assert rule_text.change(changed, rule_text.rules(changed)[index], changes) == changed


def test_a_rule_is_added_to_the_named_policy() -> None:
    text = f"{KCE_EXAMPLE}---\n{policy('other')}"
    added = rule_text.add(text, 1, NEW)
    assert contents(added)[1]["spec"]["rules"][1] == NEW
    assert [rule.name for rule in rule_text.rules(added)] == ["test-1#1", "test-1#2", "other#1", "other#2"]
    assert added.startswith(KCE_EXAMPLE)


def test_a_value_on_the_dash_gives_its_place_to_the_next_key() -> None:
    text = policy("a").replace("errorCode", "# why\n      errorCode")
    without = policy("a")
    assert contents(rule_text.change(without, rule_text.rules(without)[0], {"priority": None}))[0]["spec"]["rules"] == [
        {"errorCode": ["62"], "actions": [{"name": "cordon"}]}
    ]
    with pytest.raises(rule_text.Unchangeable):  # the comment would be lost
        rule_text.change(text, rule_text.rules(text)[0], {"priority": None})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: [", "rule_text_unreadable"),
        (policy("a", codes="[*x]").replace("kind:", "x: &x '62'\nkind:"), "rule_text_aliases"),
        (policy("a").replace("kind:", "x: &x 1\ny: &x 2\nkind:"), "rule_text_aliases"),
        ("spec: {rules: [text]}\n", "rule_text_style"),
        (policy("a", codes='["62", # why\n "63"]'), "rule_text_brackets"),
    ],
)
def test_a_text_that_would_lose_something_is_refused(text: str, code: str) -> None:
    rule = rule_text.RuleText(0, 0, "a", {})
    with pytest.raises(rule_text.Unchangeable) as refused:
        rule_text.change(text, rule, {"errorCode": ["79"]})
    assert refused.value.reason.code == code


def test_a_policy_in_brackets_and_one_of_standbys_have_no_place_for_a_rule() -> None:
    assert rule_text.rules(standby()) == []
    text = "apiVersion: kcover.io/v1\nkind: RescuePolicy\nmetadata: {name: a}\nspec: {rules: [{priority: 1}]}\n"
    with pytest.raises(rule_text.Unchangeable):
        rule_text.add(text, 0, NEW)
    assert contents(rule_text.change(text, rule_text.rules(text)[0], {"mode": "shadow"}))[0]["spec"]["rules"] == [
        {"priority": 1, "mode": "shadow"}
    ]
