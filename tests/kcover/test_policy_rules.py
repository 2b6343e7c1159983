"""Problems of a rule: its keys, codes, node selector, limits and approval."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover.policy import document
from kcover.values import limits
from tests.kcover.policy_documents import actions, rule, rule_problems, rule_reasons


def test_an_unknown_key_of_a_rule() -> None:
    [(path, message)] = rule_problems(errorcode=["62"])
    assert path == ("errorcode",)
    assert message.startswith(
        "Unknown key 'errorcode': known keys are priority, errorCode, nodeSelector, actions, mode"
    )
    assert message.endswith("(did you mean errorCode?)")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "shadow"),
        ("onDrainTimeout", "hold"),
        ("verify", True),
        ("validate", "full"),
        ("escalate", True),
        ("match", {"kinds": ["sxid"]}),
        ("budget", 2),
        ("cooldown", "1h"),
        ("approval", True),
    ],
)
def test_keys_of_the_portal_need_its_api_version(key: str, value: object) -> None:
    found = rule_problems(api=document.KSYUN, actions=actions("drain"), **{key: value})
    assert found == [((key,), f"{key} needs apiVersion: kcover.io/v1")]


def test_keys_of_the_other_api_version_are_checked_too() -> None:
    assert [path for path, _ in rule_problems(api=document.KSYUN, match={"kinds": ["x"]}, cooldown="0min")] == [
        ("match",),
        ("cooldown",),
        ("match", "kinds", 0),
        ("cooldown",),
    ]


@pytest.mark.parametrize("value", [-1, 2**31, "10", 1.0, True, None, []])
def test_a_priority_is_a_whole_number(value: object) -> None:
    assert rule_problems(priority=value) == [
        (("priority",), f"priority must be a whole number of at least 0, not {value!r}")
    ]


@pytest.mark.parametrize("value", ["deep", True, 1, [], ""])
def test_a_validation_names_a_profile(value: object) -> None:
    [(path, message)] = rule_problems(validate=value, actions=actions("cordon"))
    assert path == ("validate",)
    assert message.startswith(f"Unknown validate {value!r}: use one of light, full, burn-in, auto")


@pytest.mark.parametrize("names", [("notify",), ("label", "runChecks")])
def test_only_an_isolated_node_is_validated(names: tuple[str, ...]) -> None:
    asked = [{"name": name, **({"attribute": {"key": "a"}} if name == "label" else {})} for name in names]
    [problem] = rule_reasons(validate="light", actions=asked)
    isolating = (
        "cordon, drain, gpuReset, offline, powerCycle, quarantineDevice, reboot, repair, replace, restartJobs, "
        "stopJobs, taint"
    )
    assert problem.path[-1] == "validate"
    assert problem.reason == reasons.of("validate_unisolated", known=isolating)


@pytest.mark.parametrize("names", [("cordon",), ("taint",), ("drain",)])
def test_a_rule_without_a_validation_and_one_with_it(names: tuple[str, ...]) -> None:
    assert rule(actions=actions(*names)).validate is None
    assert rule(actions=actions(*names), validate=None).validate is None
    assert rule(actions=actions(*names), validate="burn-in").validate == "burn-in"
    assert rule(validate="auto").validate == "auto"  # the default action is cordon


RETURNS = ({"name": "cordon"}, {"name": "drain"}, {"name": "reboot", "attribute": {"unCordon": "true"}})


@pytest.mark.parametrize(
    ("written", "probation"),
    [("24h", "1day"), ("90min", "1h30min"), ("30day", "30day"), ("auto", "auto"), ("none", None), (None, None)],
)
def test_a_probation_is_a_length_or_a_word(written: object, probation: str | None) -> None:
    assert rule(actions=list(RETURNS), probation=written).probation == probation


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0min", reasons.of("duration_zero", key="probation")),
        ("30day1min", reasons.of("probation_long", days=30)),
        (24, reasons.of("not_a_string", key="probation", instead=reasons.of("write_value", text="24min"))),
        (["24h"], reasons.of("not_a_string", key="probation", instead=reasons.of("write_example", text="20min"))),
    ],
)
def test_another_length_of_a_probation_is_refused(value: object, reason: reasons.Reason) -> None:
    [problem] = rule_reasons(actions=list(RETURNS), probation=value)
    assert (problem.path[-1], problem.reason) == ("probation", reason)


@pytest.mark.parametrize("value", ["", "always", "None"])
def test_a_probation_that_is_no_length_is_refused(value: str) -> None:
    assert [problem.path[-1] for problem in rule_reasons(actions=list(RETURNS), probation=value)] == ["probation"]


@pytest.mark.parametrize("value", ["24h", "auto"])
def test_only_a_node_that_is_returned_is_on_probation(value: str) -> None:
    [problem] = rule_reasons(actions=actions("cordon"), probation=value)
    assert (problem.path[-1], problem.reason) == ("probation", reasons.of("probation_unreturned"))
    assert rule(actions=actions("cordon"), probation="none").probation is None


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
    message = f"An error code is a string of digits: write {written}, not {code!r}."
    assert rule_problems(errorCode=["48", code]) == [(("errorCode", 1), message)]


def test_a_code_may_have_ten_digits() -> None:
    assert rule(errorCode=["4294967295"]).codes == ("4294967295",)


@pytest.mark.parametrize("value", ["app=demo", [], 7])
def test_a_selector_is_a_mapping(value: object) -> None:
    message = "nodeSelector must be a mapping with operator (any or all) and labels"
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
        (("nodeSelector", "labels"), "labels must be a mapping of label names to strings")
    ]


@pytest.mark.parametrize("key", ["", "-a", "a/b/c", "a b", "/a", "A/b", 7, "x" * 64, "a/" + "x" * 64])
def test_a_label_has_a_name(key: object) -> None:
    assert rule_problems(nodeSelector={"operator": "all", "labels": {key: "v"}}) == [
        (("nodeSelector", "labels", key), f"{key!r} is not a label name")
    ]


@pytest.mark.parametrize("value", [1, True, None, "a b", "-a", "x" * 64])
def test_a_label_has_a_short_value(value: object) -> None:
    message = f'A label value must be a short string, "true" for example, not {value!r}.'
    assert rule_problems(nodeSelector={"operator": "all", "labels": {"a": value}}) == [
        (("nodeSelector", "labels", "a"), message)
    ]


@pytest.mark.parametrize("labels", [{"a.b/C_d": "x" * 63, "Q": "", "x" * 63: "A.b_c-1"}])
def test_odd_but_valid_labels(labels: dict[str, str]) -> None:
    assert rule(nodeSelector={"operator": "all", "labels": labels}).labels == labels


def test_an_unknown_key_of_a_selector() -> None:
    [(path, message)] = rule_problems(nodeSelector={"operator": "all", "label": {}})
    assert path == ("nodeSelector", "label")
    assert message.endswith("known keys are operator, labels (did you mean labels?)")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mode", "enforced", "Unknown mode 'enforced': use one of shadow, approve, enforce (did you mean enforce?)"),
        ("mode", "paused", "Unknown mode 'paused': use one of shadow, approve, enforce"),
        ("mode", None, "Unknown mode None: use one of shadow, approve, enforce"),
        ("onDrainTimeout", "wait", "Unknown onDrainTimeout 'wait': use one of hold, proceed, force"),
    ],
)
def test_an_unknown_choice_is_a_problem(key: str, value: object, message: str) -> None:
    assert rule_problems(actions=actions("drain"), **{key: value}) == [((key,), message)]


def test_on_drain_timeout_needs_a_drain() -> None:
    assert rule_problems(actions=actions("cordon"), onDrainTimeout="force") == [
        (("onDrainTimeout",), "onDrainTimeout needs the action drain")
    ]


@pytest.mark.parametrize("value", ["yes", 1, [], {"agent": "no"}, {"agent": None}])
def test_an_invalid_verify_is_a_problem(value: object) -> None:
    message = "verify must be true or a mapping: write verify: {agent: false} if the node has no agent"
    assert rule_problems(verify=value) == [(("verify",), message)]


def test_an_unknown_key_of_the_verification() -> None:
    assert rule_problems(verify={"agents": False})[0] == (
        ("verify", "agents"),
        "Unknown key 'agents': known keys are agent (did you mean agent?)",
    )


@pytest.mark.parametrize("value", ["", "x" * 501, 1, [], {}])
def test_an_invalid_escalate_is_a_problem(value: object) -> None:
    message = "escalate must be true, or a sentence of at most 500 characters that says what to do"
    assert rule_problems(escalate=value) == [(("escalate",), message)]


@pytest.mark.parametrize(
    ("value", "limit"), [(1, limits.Limit(count=1)), ("10%", limits.Limit(percent=10)), ("100%",) * 2]
)
def test_a_budget_is_a_count_or_a_percentage(value: object, limit: object) -> None:
    assert rule(budget=value).budget == (limits.Limit(percent=100) if limit == "100%" else limit)


@pytest.mark.parametrize("value", [0, -1, True, None, 1.5, "0%", "101%", "10 %", "ten", [], "1000%"])
def test_an_invalid_budget_is_a_problem(value: object) -> None:
    message = f'{value!r} is not a limit: write a whole number from 1, or a percentage such as "10%"'
    assert rule_problems(budget=value) == [(("budget",), message)]


def test_a_count_in_quotes_is_not_a_budget() -> None:
    assert rule_problems(budget="3") == [(("budget",), "Write 3 without quotes: a count is a whole number.")]


def test_a_cooldown_is_a_duration() -> None:
    assert rule(cooldown="1day2h").cooldown == timedelta(hours=26)
    assert rule_problems(cooldown=30) == [(("cooldown",), 'cooldown must be a string: write "30min"')]
    assert rule(cooldown="1 day and 2 hours").cooldown == timedelta(hours=26)
    empty = 'cooldown must be greater than zero: write "20min" for example, or remove it'
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
            "approval must be true or a mapping: write approval: {required: true, approvers: 2, expires: 1h}",
        ),
        ({"required": "yes"}, ("required",), "required must be true or false, not 'yes'"),
        ({"approvers": 3}, ("approvers",), "approvers must be 1, or 2 for two people, not 3"),
        ({"approvers": True}, ("approvers",), "approvers must be 1, or 2 for two people, not True"),
        ({"approvers": 2.0}, ("approvers",), "approvers must be 1, or 2 for two people, not 2.0"),
        ({"approvers": "2"}, ("approvers",), "approvers must be 1, or 2 for two people, not '2'"),
        ({"expires": 60}, ("expires",), 'expires must be a string: write "60min"'),
        (
            {"approver": 2},
            ("approver",),
            "Unknown key 'approver': known keys are required, approvers, expires (did you mean approvers?)",
        ),
    ],
)
def test_an_invalid_approval_is_a_problem(value: object, path: tuple[str, ...], message: str) -> None:
    assert rule_problems(approval=value) == [(("approval", *path), message)]


def test_a_rule_names_its_channels_with_the_index_of_the_action() -> None:
    noted = {"name": "notify", "attribute": {"channel": "on-call"}}
    assert rule(actions=[*actions("cordon"), noted]).channels == ((1, "on-call"),)
    assert rule(actions=actions("cordon")).channels == ()
