"""Policies that are accepted, and problems of the document around the rules."""

from typing import Any

import pytest

from kcover.policy import document
from tests.kcover.policy_documents import actions, policy, problems, rule, rule_problems


def test_an_empty_rule_cordons_for_any_fault_on_any_node() -> None:
    """KCE's global rule: priority 0, no errorCode, no nodeSelector; its default is cordon on."""
    for api in (document.KSYUN, document.KCOVER):
        assert document.read(policy({}, api=api)) == document.Policy(
            name="p",
            api_version=api,
            rules=(
                document.Rule(
                    index=0,
                    priority=0,
                    codes=None,
                    operator="all",
                    labels=None,
                    actions=(document.Action(name="cordon"),),
                    mode="enforce",
                    on_drain_timeout="",
                    verify=False,
                    verify_agent=True,
                    escalate=None,
                ),
            ),
        )


def test_a_rule_with_every_key() -> None:
    read = document.read(
        policy(
            {},
            {
                "priority": 7,
                "mode": "approve",
                "errorCode": ["62", "0"],
                "nodeSelector": {"operator": "any", "labels": {"app": "demo", "kcover.io/pool": "a"}},
                "actions": [
                    {"name": "taint", "attribute": {"key": "a/b", "value": "x-<code>", "effect": "NoExecute"}},
                    {"name": "cordon"},
                    {"name": "drain", "attribute": {"waittime": "1day2h3min"}},
                    {"name": "reboot", "attribute": {"waittime": "20min", "unCordon": "true"}},
                ],
                "onDrainTimeout": "force",
                "verify": {"agent": False},
                "escalate": "call",
            },
        )
    )
    first, second = read.rules
    assert (first.index, second.index) == (0, 1)
    assert (second.priority, second.mode, second.codes) == (7, "approve", ("62", "0"))
    assert (second.operator, second.labels) == ("any", {"app": "demo", "kcover.io/pool": "a"})
    assert [(action.name, action.attribute) for action in second.actions] == [
        ("taint", {"key": "a/b", "value": "x-<code>", "effect": "NoExecute"}),
        ("cordon", {}),
        ("drain", {"waittime": "1day2h3min"}),
        ("reboot", {"waittime": "20min", "unCordon": "true"}),
    ]
    assert (second.on_drain_timeout, second.verify, second.verify_agent, second.escalate) == (
        "force",
        True,
        False,
        "call",
    )


@pytest.mark.parametrize(
    ("asked", "uncordons"),
    [
        ([{"name": "reboot"}], False),
        ([{"name": "reboot", "attribute": {"unCordon": "true"}}], True),
        ([{"name": "reboot", "attribute": {"unCordon": "false"}}], False),
        ([{"name": "reboot"}, {"name": "unCordon"}], True),
    ],
)
def test_uncordons_depends_on_the_actions(asked: list[dict[str, Any]], uncordons: bool) -> None:
    assert rule(api=document.KSYUN, actions=[*actions("drain"), *asked]).uncordons is uncordons


def test_the_attribute_of_a_drain_does_not_uncordon() -> None:
    action = document.Action(name="drain", attribute={"unCordon": "true"})
    assert document.Rule(index=0, priority=0, actions=(action,)).uncordons is False


@pytest.mark.parametrize(
    ("value", "escalate"), [(None, None), (False, None), ("call anna", "call anna"), ("x", "x"), ("x" * 500,) * 2]
)
def test_escalation(value: object, escalate: str | None) -> None:
    assert rule(escalate=value).escalate == escalate


def test_escalate_true_has_a_default_sentence() -> None:
    assert rule(escalate=True).escalate == "a person must look at this node"


def test_a_rule_may_only_escalate() -> None:
    read = rule(actions=[], escalate=True)
    assert (read.actions, bool(read.escalate)) == ((), True)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, (False, True)),
        (False, (False, True)),
        (True, (True, True)),
        ({}, (True, True)),
        ({"agent": True}, (True, True)),
        ({"agent": False}, (True, False)),
    ],
)
def test_verification(value: object, read: tuple[bool, bool]) -> None:
    one = rule(verify=value)
    assert (one.verify, one.verify_agent) == read


@pytest.mark.parametrize("value", ["", "0min", "20min", "1h", "1day", "3650day"])
def test_wait_times_are_kept_as_written(value: str) -> None:
    assert rule(actions=[{"name": "drain", "attribute": {"waittime": value}}]).actions[0].attribute == {
        "waittime": value
    }


def test_an_empty_wait_time_is_kept_for_actions_that_wait() -> None:
    asked = [{"name": name, "attribute": {"waittime": ""}} for name in ("drain", "reboot")]
    assert [action.attribute for action in rule(actions=asked).actions] == [{"waittime": ""}] * 2


def test_other_empty_attributes_are_problems() -> None:
    assert rule_problems(actions=[{"name": "cordon", "attribute": {"force": ""}}]) == [
        (("actions", 0, "attribute", "force"), "cordon has no attribute 'force': it takes no attribute")
    ]


def test_attributes_after_an_ignored_wait_time_are_checked() -> None:
    asked = [{"name": "cordon", "attribute": {"waittime": "", "force": "x"}}]
    assert rule_problems(actions=asked) == [
        (("actions", 0, "attribute", "force"), "cordon has no attribute 'force': it takes no attribute")
    ]


@pytest.mark.parametrize("name", ["cordon", "unCordon"])
def test_an_empty_wait_time_is_ignored_for_actions_that_do_not_wait(name: str) -> None:
    """KCE's API sends waittime: "" with every action."""
    asked = [*actions("drain", "reboot"), {"name": name, "attribute": {"waittime": ""}}]
    assert rule(actions=asked).actions[-1] == document.Action(name=name)


def test_an_attribute_may_be_null() -> None:
    assert rule(actions=[{"name": "drain", "attribute": None}]).actions == (document.Action(name="drain"),)


@pytest.mark.parametrize(
    "selector", [{"operator": "any"}, {"operator": "any", "labels": None}, {"operator": "any", "labels": {}}]
)
def test_a_selector_without_labels_selects_every_node(selector: dict[str, Any]) -> None:
    read = rule(nodeSelector=selector)
    assert (read.operator, read.labels) == ("any", {})


@pytest.mark.parametrize("priority", [0, 1, 2**31 - 1])
def test_priorities(priority: int) -> None:
    assert rule(priority=priority).priority == priority


@pytest.mark.parametrize("name", ["a", "a-b.c", "0", "x" * 253])
def test_names(name: str) -> None:
    assert document.read(policy(metadata={"name": name, "labels": {"team": "x"}})).name == name


@pytest.mark.parametrize("mode", ["shadow", "approve", "enforce"])
def test_modes_of_a_rule_are_read(mode: str) -> None:
    assert rule(mode=mode).mode == mode


@pytest.mark.parametrize("content", [None, [], "text", 7])
def test_a_document_is_a_mapping(content: object) -> None:
    assert problems(content) == [((), "A policy must be a mapping with apiVersion, kind, metadata and spec.")]


@pytest.mark.parametrize("version", [None, "v1", 1, "kcover.io/v2"])
def test_an_unknown_version(version: object) -> None:
    message = f"Unknown apiVersion {version!r}: write rescue.ksyun.com/v1 or kcover.io/v1."
    assert problems(policy(apiVersion=version)) == [(("apiVersion",), message)]


@pytest.mark.parametrize(
    ("kind", "meant"),
    [(None, ""), ("Policy", " (did you mean RescuePolicy?)"), ("rescuepolicy", " (did you mean RescuePolicy?)")],
)
def test_an_unknown_kind(kind: object, meant: str) -> None:
    assert problems(policy(kind=kind)) == [
        (("kind",), f"Unknown kind {kind!r}: write RescuePolicy or WarmStandbyPolicy{meant}")
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "p",
        {},
        {"name": ""},
        {"name": 7},
        {"name": "A"},
        {"name": "a_b"},
        {"name": "-a"},
        {"name": "a-"},
        {"name": "x" * 254},
        {"name": "a\n"},
    ],
)
def test_a_policy_needs_a_name(metadata: object) -> None:
    message = "A policy needs a name of lower-case letters, digits, '-' and '.', at most 253."
    assert problems(policy(metadata=metadata)) == [(("metadata", "name"), message)]


@pytest.mark.parametrize("spec", [None, [], "rules"])
def test_a_policy_needs_a_spec(spec: object) -> None:
    assert problems(policy(spec=spec)) == [(("spec",), "spec is missing: write spec: with a list of rules")]


@pytest.mark.parametrize("rules", [None, [], {}, "x"])
def test_a_policy_needs_rules(rules: object) -> None:
    message = "rules must be a list with at least one rule"
    assert problems(policy(spec={"rules": rules})) == [(("spec", "rules"), message)]


@pytest.mark.parametrize("value", [None, "cordon", []])
def test_a_rule_is_a_mapping(value: object) -> None:
    message = "A rule must be a mapping with priority, errorCode, nodeSelector and actions."
    assert problems(policy({}, value)) == [(("spec", "rules", 1), message)]


def test_every_problem_is_found_at_once() -> None:
    rules = ({"priority": -1}, "cordon", {"errorCode": []})
    content = policy(*rules, apiVersion="x", kind="y", metadata={}, extra=1)
    assert [path for path, _ in problems(content)] == [
        ("extra",),
        ("apiVersion",),
        ("kind",),
        ("metadata", "name"),
        ("spec", "rules", 0, "priority"),
        ("spec", "rules", 1),
        ("spec", "rules", 2, "errorCode"),
    ]


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (
            policy(Spec={}),
            ("Spec",),
            "Unknown key 'Spec': known keys are apiVersion, kind, metadata, spec (did you mean spec?)",
        ),
        (policy(zzz=1), ("zzz",), "Unknown key 'zzz': known keys are apiVersion, kind, metadata, spec"),
        (
            policy(spec={"rules": [{}], "rule": []}),
            ("spec", "rule"),
            "Unknown key 'rule': known keys are rules (did you mean rules?)",
        ),
        (
            policy(spec={"rules": [{}], "mode": "shadow"}),
            ("spec", "mode"),
            "Unknown key 'mode': known keys are rules (it belongs in each rule: spec.rules[].mode)",
        ),
    ],
)
def test_an_unknown_key_names_the_most_similar_known_key(content: object, path: tuple[str, ...], message: str) -> None:
    assert problems(content) == [(path, message)]
