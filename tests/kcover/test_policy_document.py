"""Reading a policy: what KCE writes, what the portal adds, and every mistake by its path."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from kcover import limits, waits
from kcover.policy import document
from tests.kcover import policy_texts as texts

RULE = ("spec", "rules", 0)
KNOWN = "cordon, drain, reboot, enableWarmStandby, unCordon"
OWN = "taint, label, gpuReset, restartJobs, notify, webhook, runChecks"


def policy(*rules: Any, api: str = document.KCOVER, **changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": api,
        "kind": "RescuePolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": list(rules) or [{}]},
    }
    return {**whole, **changes}


def rule(api: str = document.KCOVER, **fields: Any) -> document.Rule:
    return document.read(policy(fields, api=api)).rules[0]


def problems(content: object) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(document.PolicyInvalid) as caught:
        document.read(content)
    assert str(caught.value) == "; ".join(f"{'.'.join(map(str, p.path))}: {p.message}" for p in caught.value.problems)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def rule_problems(api: str = document.KCOVER, **fields: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Problems of one rule, with paths from the rule on."""
    found = problems(policy(fields, api=api))
    assert all(path[:3] == RULE for path, _ in found)
    return [(path[3:], message) for path, message in found]


def actions(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


# --- what is read


def test_the_emptiest_rule_cordons_for_any_fault_on_any_node() -> None:
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
                    on_drain_timeout="hold",
                    verify=False,
                    verify_agent=True,
                    escalate=None,
                ),
            ),
        )


def test_a_rule_with_everything() -> None:
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
def test_whether_a_node_is_to_be_schedulable_again(asked: list[dict[str, Any]], uncordons: bool) -> None:
    assert rule(api=document.KSYUN, actions=[*actions("drain"), *asked]).uncordons is uncordons


def test_a_drains_attribute_does_not_uncordon() -> None:
    action = document.Action(name="drain", attribute={"unCordon": "true"})
    assert document.Rule(index=0, priority=0, actions=(action,)).uncordons is False


@pytest.mark.parametrize(
    ("value", "escalate"), [(None, None), (False, None), ("call anna", "call anna"), ("x", "x"), ("x" * 500,) * 2]
)
def test_escalation(value: object, escalate: str | None) -> None:
    assert rule(escalate=value).escalate == escalate


def test_escalation_without_words() -> None:
    assert rule(escalate=True).escalate == "a person must look at this node"


def test_a_rule_may_only_call_a_person() -> None:
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


def test_an_empty_wait_time_is_kept_where_one_is_read() -> None:
    asked = [{"name": name, "attribute": {"waittime": ""}} for name in ("drain", "reboot")]
    assert [action.attribute for action in rule(actions=asked).actions] == [{"waittime": ""}] * 2


def test_nothing_else_that_is_empty_is_passed_over() -> None:
    assert rule_problems(actions=[{"name": "cordon", "attribute": {"force": ""}}]) == [
        (("actions", 0, "attribute", "force"), "cordon has no attribute 'force': it takes no attribute")
    ]


def test_what_follows_a_wait_time_that_is_passed_over_is_still_read() -> None:
    asked = [{"name": "cordon", "attribute": {"waittime": "", "force": "x"}}]
    assert rule_problems(actions=asked) == [
        (("actions", 0, "attribute", "force"), "cordon has no attribute 'force': it takes no attribute")
    ]


@pytest.mark.parametrize("name", ["cordon", "unCordon"])
def test_an_empty_wait_time_is_passed_over_where_none_is_read(name: str) -> None:
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
def test_modes(mode: str) -> None:
    assert rule(mode=mode).mode == mode


# --- the document around the rules


@pytest.mark.parametrize("content", [None, [], "text", 7])
def test_a_document_is_a_mapping(content: object) -> None:
    assert problems(content) == [((), "a policy is a mapping with apiVersion, kind, metadata and spec")]


@pytest.mark.parametrize("version", [None, "v1", 1, "kcover.io/v2"])
def test_an_unknown_version(version: object) -> None:
    message = f"unknown apiVersion {version!r}: write rescue.ksyun.com/v1 or kcover.io/v1"
    assert problems(policy(apiVersion=version)) == [(("apiVersion",), message)]


@pytest.mark.parametrize(
    ("kind", "meant"),
    [(None, ""), ("Policy", " (did you mean RescuePolicy?)"), ("rescuepolicy", " (did you mean RescuePolicy?)")],
)
def test_an_unknown_kind(kind: object, meant: str) -> None:
    assert problems(policy(kind=kind)) == [
        (("kind",), f"unknown kind {kind!r}: write RescuePolicy or WarmStandbyPolicy{meant}")
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
    message = "a policy needs a name of lower-case letters, digits, '-' and '.', at most 253"
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
    message = "a rule is a mapping with priority, errorCode, nodeSelector and actions"
    assert problems(policy({}, value)) == [(("spec", "rules", 1), message)]


def test_every_mistake_is_found_in_one_go() -> None:
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
            "unknown key 'Spec': known here are apiVersion, kind, metadata, spec (did you mean spec?)",
        ),
        (policy(zzz=1), ("zzz",), "unknown key 'zzz': known here are apiVersion, kind, metadata, spec"),
        (
            policy(spec={"rules": [{}], "rule": []}),
            ("spec", "rule"),
            "unknown key 'rule': known here are rules (did you mean rules?)",
        ),
    ],
)
def test_an_unknown_key_is_told_what_it_resembles(content: object, path: tuple[str, ...], message: str) -> None:
    assert problems(content) == [(path, message)]


# --- rules


def test_an_unknown_key_of_a_rule() -> None:
    [(path, message)] = rule_problems(errorcode=["62"])
    assert path == ("errorcode",)
    assert message.startswith(
        "unknown key 'errorcode': known here are priority, errorCode, nodeSelector, actions, mode"
    )
    assert message.endswith("(did you mean errorCode?)")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "shadow"),
        ("onDrainTimeout", "hold"),
        ("verify", True),
        ("escalate", True),
        ("match", {"kinds": ["sxid"]}),
        ("budget", 2),
        ("cooldown", "1h"),
        ("approval", True),
    ],
)
def test_the_portals_own_keys_need_its_own_version(key: str, value: object) -> None:
    found = rule_problems(api=document.KSYUN, actions=actions("drain"), **{key: value})
    assert found == [((key,), f"{key} needs apiVersion: kcover.io/v1")]


def test_what_needs_another_version_is_read_for_mistakes_all_the_same() -> None:
    assert [path for path, _ in rule_problems(api=document.KSYUN, match={"kinds": ["x"]}, cooldown="0min")] == [
        ("match",),
        ("cooldown",),
        ("match", "kinds", 0),
        ("cooldown",),
    ]


@pytest.mark.parametrize("value", [-1, 2**31, "10", 1.0, True, None, []])
def test_a_priority_is_a_whole_number(value: object) -> None:
    assert rule_problems(priority=value) == [(("priority",), f"priority must be a whole number from 0, not {value!r}")]


@pytest.mark.parametrize("value", [[], "62", 62, {}])
def test_codes_are_a_list(value: object) -> None:
    message = 'errorCode must be a list of strings, ["62"] for example; leave it out for any code'
    assert rule_problems(errorCode=value) == [(("errorCode",), message)]


@pytest.mark.parametrize(
    ("code", "written"),
    [
        (62, '"62"'),
        (True, '"62" for example'),
        (None, '"62" for example'),
        (6.2, '"62" for example'),
        ("", '"62" for example'),
        ("062", '"62" for example'),
        ("-1", '"62" for example'),
        ("6x", '"62" for example'),
        ("62\n", '"62" for example'),
        ("٦٢", '"62" for example'),
        ("1" * 11, '"62" for example'),
    ],
)
def test_a_code_is_a_string_of_digits(code: object, written: str) -> None:
    message = f"an error code is a string of digits: write {written}, not {code!r}"
    assert rule_problems(errorCode=["48", code]) == [(("errorCode", 1), message)]


def test_ten_digits_are_a_code() -> None:
    assert rule(errorCode=["4294967295"]).codes == ("4294967295",)


@pytest.mark.parametrize("value", ["app=demo", [], 7])
def test_a_selector_is_a_mapping(value: object) -> None:
    message = "nodeSelector is a mapping with operator (any or all) and labels"
    assert rule_problems(nodeSelector=value) == [(("nodeSelector",), message)]


@pytest.mark.parametrize(
    ("operator", "what"),
    [(None, "is missing"), ("or", "'or' is unknown"), ("ANY", "'ANY' is unknown"), (True, "True is unknown")],
)
def test_a_selectors_operator_is_any_or_all(operator: object, what: str) -> None:
    message = f'operator {what}: write "any" (one label is enough) or "all"'
    assert rule_problems(nodeSelector={"operator": operator, "labels": {"a": "b"}}) == [
        (("nodeSelector", "operator"), message)
    ]
    assert rule_problems(nodeSelector={"labels": {"a": "b"}})[0][0] == ("nodeSelector", "operator")


@pytest.mark.parametrize("labels", [[], "a", 0, False, ""])
def test_labels_are_a_mapping(labels: object) -> None:
    assert rule_problems(nodeSelector={"operator": "all", "labels": labels}) == [
        (("nodeSelector", "labels"), "labels is a mapping of label names to strings")
    ]


@pytest.mark.parametrize("key", ["", "-a", "a/b/c", "a b", "/a", "A/b", 7, "x" * 64, "a/" + "x" * 64])
def test_a_label_has_a_name(key: object) -> None:
    assert rule_problems(nodeSelector={"operator": "all", "labels": {key: "v"}}) == [
        (("nodeSelector", "labels", key), f"{key!r} is no label name")
    ]


@pytest.mark.parametrize("value", [1, True, None, "a b", "-a", "x" * 64])
def test_a_label_has_a_short_value(value: object) -> None:
    message = f'a label\'s value is a short string, "true" for example: {value!r}'
    assert rule_problems(nodeSelector={"operator": "all", "labels": {"a": value}}) == [
        (("nodeSelector", "labels", "a"), message)
    ]


@pytest.mark.parametrize("labels", [{"a.b/C_d": "x" * 63, "Q": "", "x" * 63: "A.b_c-1"}])
def test_odd_but_valid_labels(labels: dict[str, str]) -> None:
    assert rule(nodeSelector={"operator": "all", "labels": labels}).labels == labels


def test_an_unknown_key_of_a_selector() -> None:
    [(path, message)] = rule_problems(nodeSelector={"operator": "all", "label": {}})
    assert path == ("nodeSelector", "label")
    assert message.endswith("known here are operator, labels (did you mean labels?)")


# --- actions


@pytest.mark.parametrize("value", ["cordon", {}, 7])
def test_actions_are_a_list(value: object) -> None:
    assert rule_problems(actions=value) == [(("actions",), "actions is a list of mappings with a name")]


def test_a_rule_does_something() -> None:
    message = "a rule needs at least one action, cordon for example"
    assert rule_problems(actions=[]) == [(("actions",), message)]


@pytest.mark.parametrize("item", ["cordon", None, {}, {"name": 7}, {"attribute": {}}])
def test_an_action_has_a_name(item: object) -> None:
    """And a list of nothing but nameless actions is not told to have at least one as well."""
    assert rule_problems(actions=[item]) == [(("actions", 0), "an action is a mapping with a name")]


@pytest.mark.parametrize(
    ("api", "name", "message"),
    [
        (
            document.KSYUN,
            "cordn",
            f"unknown action 'cordn': use one of {KNOWN} (did you mean cordon?)",
        ),
        (
            document.KSYUN,
            "uncordon",
            f"unknown action 'uncordon': use one of {KNOWN} (did you mean unCordon?)",
        ),
        (
            document.KCOVER,
            "explode",
            f"unknown action 'explode': use one of {KNOWN}, {OWN}",
        ),
        (
            document.KSYUN,
            "taint",
            "action taint needs apiVersion: kcover.io/v1",
        ),
        (document.KSYUN, "gpuReset", "action gpuReset needs apiVersion: kcover.io/v1"),
    ],
)
def test_an_action_that_cannot_be_done(api: str, name: str, message: str) -> None:
    assert rule_problems(api=api, actions=actions("cordon", name)) == [(("actions", 1, "name"), message)]


def test_an_action_is_named_once() -> None:
    assert rule_problems(actions=actions("cordon", "drain", "cordon")) == [
        (("actions", 2, "name"), "cordon is named twice")
    ]


@pytest.mark.parametrize(
    ("api", "asked", "needed", "first"),
    [
        (document.KSYUN, ("cordon", "reboot"), "drain", "drain"),
        (document.KSYUN, ("drain", "unCordon"), "reboot", "reboot"),
        (document.KCOVER, ("drain", "unCordon"), "reboot or gpuReset", "reboot"),
        (document.KCOVER, ("cordon", "gpuReset"), "drain", "drain"),
        (document.KSYUN, ("enableWarmStandby",), "cordon, drain or reboot", "cordon"),
        (document.KCOVER, ("taint", "enableWarmStandby"), "cordon, drain or reboot", "cordon"),
        (document.KCOVER, ("notify", "restartJobs"), "cordon or drain", "cordon"),
    ],
)
def test_preconditions(api: str, asked: tuple[str, ...], needed: str, first: str) -> None:
    index = len(asked) - 1
    assert rule_problems(api=api, actions=actions(*asked)) == [
        (("actions", index, "name"), f"{asked[-1]} needs {needed}: add {first} before it")
    ]


def test_a_reset_and_a_reboot_are_one_too_many() -> None:
    assert rule_problems(actions=actions("drain", "reboot", "gpuReset")) == [
        (
            ("actions", 2, "name"),
            "gpuReset and reboot in one rule: a reboot resets the GPUs as well, take out one of the two",
        )
    ]


def test_a_precondition_is_named_at_its_own_action_after_a_bad_one() -> None:
    found = rule_problems(actions=["bad", {"name": "explode"}, *actions("reboot")])
    assert [path for path, _ in found] == [("actions", 0), ("actions", 1, "name"), ("actions", 2, "name")]


def test_the_order_of_actions_is_free() -> None:
    names = ["reboot", "unCordon", "cordon", "drain"]
    assert [action.name for action in rule(actions=actions(*names)).actions] == names


def test_an_unknown_key_of_an_action() -> None:
    [(path, message)] = rule_problems(actions=[{"name": "drain", "waittime": "20min"}])
    assert path == ("actions", 0, "waittime")
    assert message == "unknown key 'waittime': known here are name, attribute"


@pytest.mark.parametrize("value", ["20min", [], 0, False, ""])
def test_an_attribute_is_a_mapping(value: object) -> None:
    assert rule_problems(actions=[{"name": "drain", "attribute": value}]) == [
        (("actions", 0, "attribute"), "attribute is a mapping")
    ]


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("cordon", "waittime", "cordon has no attribute 'waittime': it takes no attribute"),
        ("drain", "unCordon", "drain has no attribute 'unCordon': it takes waittime"),
        ("reboot", "force", "reboot has no attribute 'force': it takes waittime, unCordon"),
        ("taint", "waittime", "taint has no attribute 'waittime': it takes key, value, effect"),
    ],
)
def test_an_attribute_that_an_action_does_not_take(name: str, key: str, message: str) -> None:
    asked = [{"name": name, "attribute": {key: "1min"}}]
    if name == "reboot":
        asked += actions("drain")
    assert rule_problems(actions=asked) == [(("actions", 0, "attribute", key), message)]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("waittime", 20, 'waittime must be a string: write "20min"'),
        ("waittime", None, 'waittime must be a string: write "20min" for example'),
        ("waittime", True, 'waittime must be a string: write "20min" for example'),
        ("waittime", 1.5, 'waittime must be a string: write "20min" for example'),
        ("unCordon", True, 'unCordon must be a string: write "true"'),
        ("unCordon", False, 'unCordon must be a string: write "false"'),
        ("unCordon", 1, 'unCordon must be a string: write "1"'),
        ("unCordon", None, "unCordon must be a string: write it in quotes"),
        ("unCordon", "True", 'unCordon must be "true" or "false", not "True"'),
        ("unCordon", "yes", 'unCordon must be "true" or "false", not "yes"'),
    ],
)
def test_attributes_are_strings(key: str, value: object, message: str) -> None:
    asked = [*actions("drain"), {"name": "reboot", "attribute": {key: value}}]
    assert rule_problems(actions=asked) == [(("actions", 1, "attribute", key), message)]


@pytest.mark.parametrize("value", ["20m", "20 min", "1h2day", "-1min", "1.5h", "3651day"])
def test_a_wait_time_has_a_grammar(value: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "drain", "attribute": {"waittime": value}}])
    assert path == ("actions", 0, "attribute", "waittime")
    with pytest.raises(waits.WaitError) as caught:
        waits.parse(value)
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("effect", "NoRun", "unknown effect 'NoRun': use one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("key", "a b", "'a b' is no taint key"),
        ("value", "a b", "'a b' is no taint value"),
        ("value", "<Code>", "'<Code>' is no taint value"),
    ],
)
def test_a_taint_is_one_that_kubernetes_takes(key: str, value: str, message: str) -> None:
    assert rule_problems(actions=[{"name": "taint", "attribute": {key: value}}]) == [
        (("actions", 0, "attribute", key), message)
    ]


def test_a_taint_may_have_a_key_of_the_portals() -> None:
    """Its default is one: kcover.io/unhealthy."""
    attribute = {"key": "kcover.io/unhealthy", "value": "kcover.io"}
    assert rule(actions=[{"name": "taint", "attribute": attribute}]).actions[0].attribute == attribute


def test_a_taints_code_counts_as_one_character_at_least() -> None:
    value = "x" * 62 + "<code>"
    assert rule(actions=[{"name": "taint", "attribute": {"value": value}}]).actions[0].attribute == {"value": value}


# --- the portal's own keys


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mode", "enforced", "unknown mode 'enforced': use one of shadow, approve, enforce (did you mean enforce?)"),
        ("mode", "paused", "unknown mode 'paused': use one of shadow, approve, enforce"),
        ("mode", None, "unknown mode None: use one of shadow, approve, enforce"),
        ("onDrainTimeout", "wait", "unknown onDrainTimeout 'wait': use one of hold, proceed, force"),
    ],
)
def test_a_choice_is_one_of_its_words(key: str, value: object, message: str) -> None:
    assert rule_problems(actions=actions("drain"), **{key: value}) == [((key,), message)]


def test_what_happens_after_a_drain_needs_a_drain() -> None:
    assert rule_problems(actions=actions("cordon"), onDrainTimeout="force") == [
        (("onDrainTimeout",), "onDrainTimeout needs the action drain")
    ]


@pytest.mark.parametrize("value", ["yes", 1, [], {"agent": "no"}, {"agent": None}])
def test_verification_that_is_none(value: object) -> None:
    message = "verify is true, or a mapping: verify: {agent: false} when the node has no agent"
    assert rule_problems(verify=value) == [(("verify",), message)]


def test_an_unknown_key_of_the_verification() -> None:
    assert rule_problems(verify={"agents": False})[0] == (
        ("verify", "agents"),
        "unknown key 'agents': known here are agent (did you mean agent?)",
    )


@pytest.mark.parametrize("value", ["", "x" * 501, 1, [], {}])
def test_escalation_that_is_none(value: object) -> None:
    message = "escalate is true, or a sentence of at most 500 characters that says what to do"
    assert rule_problems(escalate=value) == [(("escalate",), message)]


# --- which faults


def test_what_a_rule_may_match_beyond_error_codes() -> None:
    read = rule(
        errorCode=["79"],
        match={"sxid": ["12028", "0"], "checks": ["remapped"], "kinds": ["agent"], "minCount": 3, "within": "1h30min"},
    )
    assert (read.codes, read.sxids, read.checks, read.kinds) == (("79",), ("12028", "0"), ("remapped",), ("agent",))
    assert read.minimum == document.Minimum(count=3, within=timedelta(minutes=90))
    assert not read.any_fault


def test_a_minimum_alone_leaves_the_rule_for_any_fault() -> None:
    assert rule(match={"minCount": 1, "within": "1day"}).any_fault
    assert rule().any_fault
    assert not rule(errorCode=["62"]).any_fault


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_how_often_at_the_least_and_at_the_most(count: int) -> None:
    minimum = document.Minimum(count=count, within=timedelta(hours=1))
    assert rule(match={"minCount": count, "within": "1h"}).minimum == minimum


@pytest.mark.parametrize("kind", ["xid", "sxid", "check"])
def test_a_kind_by_itself(kind: str) -> None:
    read = rule(match={"kinds": [kind]})
    assert (read.kinds, read.any_fault) == ((kind,), False)


@pytest.mark.parametrize("value", [{}, [], "sxid", 7, False])
def test_match_is_a_mapping(value: object) -> None:
    message = "match is a mapping of what else must hold: sxid, checks, kinds, minCount, within"
    assert rule_problems(match=value) == [(("match",), message)]


@pytest.mark.parametrize(
    ("match", "path", "message"),
    [
        (
            {"sxids": ["1"]},
            ("sxids",),
            "unknown key 'sxids': known here are sxid, checks, kinds, minCount, within (did you mean sxid?)",
        ),
        ({"sxid": []}, ("sxid",), "sxid must be a list with at least one entry: write it, or take sxid out"),
        ({"sxid": "12028"}, ("sxid",), "sxid must be a list with at least one entry: write it, or take sxid out"),
        ({"checks": None}, ("checks",), "checks must be a list with at least one entry: write it, or take checks out"),
        ({"sxid": [12028]}, ("sxid", 0), 'an SXid code is a string of digits: write "12028", not 12028'),
        ({"sxid": ["x"]}, ("sxid", 0), "an SXid code is a string of digits: write \"12028\" for example, not 'x'"),
        ({"sxid": [True]}, ("sxid", 0), 'an SXid code is a string of digits: write "12028" for example, not True'),
        ({"sxid": ["1", "1"]}, ("sxid", 1), "1 is there twice"),
        ({"checks": [7]}, ("checks", 0), '7 is no name of a check: write "remapped" for example'),
        ({"checks": ["A b"]}, ("checks", 0), "'A b' is no name of a check: write \"remapped\" for example"),
        (
            {"kinds": ["sxids"]},
            ("kinds", 0),
            "unknown kind 'sxids': use one of xid, sxid, check, agent, preflight, pod, other (did you mean sxid?)",
        ),
        ({"kinds": [["xid"]]}, ("kinds", 0), None),
        ({"minCount": 3}, ("minCount",), 'minCount needs within: write within: "1h" beside it, for example'),
        ({"within": "1h"}, ("within",), "within needs minCount: write minCount: 3 beside it, for example"),
        (
            {"minCount": 0, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not 0",
        ),
        (
            {"minCount": True, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not True",
        ),
        (
            {"minCount": 1_000_001, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not 1000001",
        ),
        (
            {"minCount": "3", "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not '3'",
        ),
        ({"minCount": 2, "within": 60}, ("within",), 'within must be a string: write "60min"'),
        (
            {"minCount": 2, "within": ""},
            ("within",),
            'within must be longer than nothing: write "20min" for example, or take it out',
        ),
        (
            {"minCount": 2, "within": "0min"},
            ("within",),
            'within must be longer than nothing: write "20min" for example, or take it out',
        ),
    ],
)
def test_a_match_that_is_none(match: object, path: tuple[str | int, ...], message: str | None) -> None:
    [(found, said)] = rule_problems(match=match)
    assert found == ("match", *path)
    assert message is None or said == message


@pytest.mark.parametrize(
    ("fields", "key", "kind"),
    [
        ({"errorCode": ["79"], "match": {"kinds": ["check", "xid"]}}, "errorCode", "xid"),
        ({"match": {"kinds": ["check", "sxid"], "sxid": ["1"]}}, "sxid", "sxid"),
        ({"match": {"kinds": ["pod", "check"], "checks": ["dcgm"]}}, "checks", "check"),
    ],
)
def test_some_faults_of_a_kind_and_all_of_it_contradict(fields: dict[str, Any], key: str, kind: str) -> None:
    message = f"{key} names some faults of kind {kind}, and kinds means every one: take out one of the two"
    assert rule_problems(**fields) == [(("match", "kinds", 1), message)]


# --- limits, waits and people


@pytest.mark.parametrize(
    ("value", "limit"), [(1, limits.Limit(count=1)), ("10%", limits.Limit(percent=10)), ("100%",) * 2]
)
def test_a_budget_is_a_count_or_a_percentage(value: object, limit: object) -> None:
    assert rule(budget=value).budget == (limits.Limit(percent=100) if limit == "100%" else limit)


@pytest.mark.parametrize("value", [0, -1, True, None, 1.5, "0%", "101%", "10 %", "ten", [], "1000%"])
def test_a_budget_that_is_none(value: object) -> None:
    message = f'{value!r} is no limit: write a whole number from 1, or a percentage such as "10%"'
    assert rule_problems(budget=value) == [(("budget",), message)]


def test_a_budget_in_quotes() -> None:
    assert rule_problems(budget="3") == [(("budget",), "write 3 without quotes: a count is a whole number")]


def test_a_cooldown_is_a_wait() -> None:
    assert rule(cooldown="1day2h").cooldown == timedelta(hours=26)
    assert rule_problems(cooldown=30) == [(("cooldown",), 'cooldown must be a string: write "30min"')]
    assert rule_problems(cooldown="30m") == [(("cooldown",), '30m: write "30min"')]
    empty = 'cooldown must be longer than nothing: write "20min" for example, or take it out'
    assert rule_problems(cooldown="") == rule_problems(cooldown="0h") == [(("cooldown",), empty)]


@pytest.mark.parametrize(
    ("value", "approval"),
    [
        (None, None),
        (False, None),
        ({"required": False, "approvers": 2}, None),
        (True, document.Approval()),
        ({"required": True}, document.Approval()),
        ({"approvers": 2, "expires": "1h"}, document.Approval(approvers=2, expires=timedelta(hours=1))),
    ],
)
def test_approval(value: object, approval: document.Approval | None) -> None:
    assert rule(approval=value).approval == approval


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (
            "yes",
            (),
            "approval is true, or a mapping: approval: {required: true, approvers: 2, expires: 1h}",
        ),
        ({"required": "yes"}, ("required",), "required is true or false, not 'yes'"),
        ({"approvers": 3}, ("approvers",), "approvers is 1, or 2 for two persons: not 3"),
        ({"approvers": True}, ("approvers",), "approvers is 1, or 2 for two persons: not True"),
        ({"approvers": 2.0}, ("approvers",), "approvers is 1, or 2 for two persons: not 2.0"),
        ({"approvers": "2"}, ("approvers",), "approvers is 1, or 2 for two persons: not '2'"),
        ({"expires": 60}, ("expires",), 'expires must be a string: write "60min"'),
        (
            {"approver": 2},
            ("approver",),
            "unknown key 'approver': known here are required, approvers, expires (did you mean approvers?)",
        ),
    ],
)
def test_approval_that_is_none(value: object, path: tuple[str, ...], message: str) -> None:
    assert rule_problems(approval=value) == [(("approval", *path), message)]


# --- the portal's own actions


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("label", {"key": "team/repair", "value": "xid-<code>"}),
        ("label", {"key": "broken"}),
        ("notify", {}),
        ("notify", {"channel": "on-call", "message": "x"}),
        ("notify", {"message": "x" * 500}),
        ("webhook", {"url": "http://10.0.0.1:8080/a?b=c", "waittime": "2h"}),
        ("webhook", {"url": "https://repair.example/" + "x" * 977}),  # 1,000 characters
        ("runChecks", {"checks": "pciebw,gpu_mem"}),
        ("gpuReset", {"unCordon": "true"}),
    ],
)
def test_actions_of_the_portals_own(name: str, attribute: dict[str, str]) -> None:
    read = rule(actions=[*actions("drain"), {"name": name, "attribute": attribute}])
    assert read.actions[1] == document.Action(name=name, attribute=attribute)
    assert read.uncordons is (name == "gpuReset")


@pytest.mark.parametrize(
    ("name", "attribute", "path", "message"),
    [
        ("label", {}, ("name",), "label needs the attribute key"),
        ("label", {"key": "a b"}, ("attribute", "key"), "'a b' is no label key"),
        ("label", {"key": "a", "value": "b c"}, ("attribute", "value"), "'b c' is no label value"),
        (
            "label",
            {"key": "kcover.io/state"},
            ("attribute", "key"),
            "labels that begin with kcover.io/ are the portal's own: use another name",
        ),
        (
            "notify",
            {"channel": "On Call"},
            ("attribute", "channel"),
            "'On Call' is no name of a channel: write \"on-call\" for example",
        ),
        ("notify", {"message": ""}, ("attribute", "message"), "a message has 1 to 500 characters"),
        ("notify", {"message": "x" * 501}, ("attribute", "message"), "a message has 1 to 500 characters"),
        ("webhook", {}, ("name",), "webhook needs the attribute url"),
        (
            "webhook",
            {"url": "ftp://x"},
            ("attribute", "url"),
            "'ftp://x' is no address: write https://repair.example/hook for example",
        ),
        (
            "webhook",
            {"url": "https://x:y"},
            ("attribute", "url"),
            "'https://x:y' is no address: write https://repair.example/hook for example",
        ),
        (
            "runChecks",
            {"checks": "pciebw, dcgm"},
            ("attribute", "checks"),
            "'pciebw, dcgm' is no list of checks: write their names with commas and no spaces, "
            '"pciebw,remapped" for example',
        ),
        (
            "runChecks",
            {"checks": "a,a"},
            ("attribute", "checks"),
            "'a,a' is no list of checks: write their names with commas and no spaces, \"pciebw,remapped\" for example",
        ),
        (
            "restartJobs",
            {"kind": "x"},
            ("attribute", "kind"),
            "restartJobs has no attribute 'kind': it takes no attribute",
        ),
    ],
)
def test_attributes_of_the_portals_own_actions(
    name: str, attribute: dict[str, str], path: tuple[str, ...], message: str
) -> None:
    asked = [*actions("drain"), {"name": name, "attribute": attribute}]
    assert rule_problems(actions=asked) == [(("actions", 1, *path), message)]


@pytest.mark.parametrize("url", ["https://u:p@x", "https://u@x", "https://:p@x"])
def test_an_address_tells_nobody_a_password(url: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}])
    assert path == ("actions", 0, "attribute", "url")
    assert message == "no password in an address: everybody who reads the policy would read it"


@pytest.mark.parametrize("url", ["https://x/ y", "https://x/\x00y", "https://x/y\n", f"https://x/{'y' * 991}"])
def test_an_address_is_one_short_word(url: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}])
    assert path == ("actions", 0, "attribute", "url")
    assert message == (
        "an address has at most 1000 characters and no spaces: write https://repair.example/hook for example"
    )


@pytest.mark.parametrize("url", ["", "x", "//x/y", "https:", "https:///hook", "https://[x", "http://x:99999"])
def test_an_address_is_one_of_the_web(url: str) -> None:
    message = f"{url!r} is no address: write https://repair.example/hook for example"
    assert rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}]) == [
        (("actions", 0, "attribute", "url"), message)
    ]


# --- warm standby


def standby(*matches: Any, api: str = document.KSYUN, **changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": api,
        "kind": "WarmStandbyPolicy",
        "metadata": {"name": "s"},
        "spec": {"matches": list(matches)},
    }
    return {**whole, **changes}


def test_a_warm_standby_policy_is_pairs_of_labels() -> None:
    pair = {"originNode": {"env": "dev", "app": "demo"}, "targetNode": {"env": "dev"}}
    for api in (document.KSYUN, document.KCOVER):
        assert document.read(standby(pair, {"originNode": {}, "targetNode": {"a/b": ""}}, api=api)) == (
            document.StandbyPolicy(
                name="s",
                api_version=api,
                matches=(
                    document.StandbyRule(index=0, origin={"env": "dev", "app": "demo"}, target={"env": "dev"}),
                    document.StandbyRule(index=1, origin={}, target={"a/b": ""}),
                ),
            )
        )


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (standby(spec=None), ("spec",), "spec is missing: write spec: with a list of matches"),
        (
            standby(),
            ("spec", "matches"),
            "matches must be a list with at least one pair of originNode and targetNode",
        ),
        (
            standby(spec={"matches": [{"originNode": {}, "targetNode": {}}], "match": []}),
            ("spec", "match"),
            "unknown key 'match': known here are matches (did you mean matches?)",
        ),
        (
            standby(spec={"matches": "x"}),
            ("spec", "matches"),
            "matches must be a list with at least one pair of originNode and targetNode",
        ),
        (standby("x"), ("spec", "matches", 0), "a match is a mapping with the labels of originNode and of targetNode"),
        (
            standby({"originNode": {}}),
            ("spec", "matches", 0),
            "targetNode is missing: write its labels, or {} for any",
        ),
        (
            standby({"originNode": {}, "targetNode": None}),
            ("spec", "matches", 0, "targetNode"),
            "targetNode is missing: write its labels, or {} for any",
        ),
        (
            standby({"originNode": ["a"], "targetNode": {}}),
            ("spec", "matches", 0, "originNode"),
            "labels is a mapping of label names to strings",
        ),
        (
            standby({"originNode": {"a": 1}, "targetNode": {}}),
            ("spec", "matches", 0, "originNode", "a"),
            'a label\'s value is a short string, "true" for example: 1',
        ),
        (
            standby({"originNode": {}, "targetNode": {}, "orignNode": {}}),
            ("spec", "matches", 0, "orignNode"),
            "unknown key 'orignNode': known here are originNode, targetNode (did you mean originNode?)",
        ),
        (standby({"originNode": {}, "targetNode": {}}, metadata={}), ("metadata", "name"), None),
    ],
)
def test_a_warm_standby_policy_that_is_none(content: object, path: tuple[str | int, ...], message: str | None) -> None:
    [(found, said)] = problems(content)
    assert found == path
    assert message is None or said == message


def test_every_pair_is_read_for_mistakes() -> None:
    content = standby("x", {"originNode": {}, "targetNode": {}}, {"originNode": {}})
    assert [path for path, _ in problems(content)] == [("spec", "matches", 0), ("spec", "matches", 2)]


# --- and back again


@pytest.mark.parametrize(
    "content",
    [
        policy(
            {
                "priority": 7,
                "mode": "approve",
                "errorCode": ["62", "79"],
                "match": {
                    "sxid": ["12028"],
                    "checks": ["remapped"],
                    "kinds": ["agent"],
                    "minCount": 3,
                    "within": "1h30min",
                },
                "nodeSelector": {"operator": "any", "labels": {"app": "demo"}},
                "budget": "10%",
                "cooldown": "2h",
                "approval": {"required": True, "approvers": 2, "expires": "1day"},
                "actions": [{"name": "drain", "attribute": {"waittime": "20min"}}, {"name": "cordon"}],
                "onDrainTimeout": "force",
                "verify": {"agent": False},
                "escalate": "call",
            },
            {
                "priority": 0,
                "match": {"kinds": ["sxid"]},
                "nodeSelector": {"operator": "all", "labels": {}},
                "budget": 3,
                "approval": {"required": True, "approvers": 1},
                "actions": [],
                "verify": True,
                "escalate": "a person must look at this node",
            },
        ),
        standby({"originNode": {"env": "dev"}, "targetNode": {}}),
    ],
)
def test_a_document_in_its_canonical_form_is_written_as_it_was(content: dict[str, Any]) -> None:
    assert document.render(document.read(content)) == content


@given(texts.policies())
def test_what_is_written_is_read_as_the_same(policy: document.Policy | document.StandbyPolicy) -> None:
    assert document.read(document.render(policy)) == policy


def test_what_is_written_leaves_defaults_out() -> None:
    assert document.render(document.read(policy({}))) == policy({"priority": 0, "actions": [{"name": "cordon"}]})


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 16**6000},
        {"errorCode": ["6" * 10_000]},
        {"errorCode": [16**6000]},
        {"mode": "x" * 10_000},
        {"x" * 10_000: 1},
        {"budget": "9" * 10_000},
        {"match": {"kinds": ["x" * 10_000]}},
        {"actions": [{"name": "x" * 10_000}]},
        {"actions": [{"name": "cordon", "attribute": {"x" * 10_000: "1"}}]},
        {"actions": [{"name": "drain", "attribute": {"waittime": 16**6000}}]},
        {"actions": [{"name": "taint", "attribute": {"effect": "x" * 10_000}}]},
        {"nodeSelector": {"operator": "all", "labels": {"a": "v" * 10_000}}},
    ],
)
def test_what_is_long_is_quoted_cut(fields: dict[str, Any]) -> None:
    found = rule_problems(**fields)
    assert found
    assert all(len(message) < 600 for _, message in found)
