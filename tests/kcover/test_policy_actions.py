"""The actions of a rule: names, attributes, and which actions need or exclude each other."""

import pytest

from kcover.policy import document
from kcover.values import durations
from tests.kcover.policy_documents import KNOWN, OWN, actions, rule, rule_problems


@pytest.mark.parametrize("value", ["cordon", {}, 7])
def test_actions_are_a_list(value: object) -> None:
    assert rule_problems(actions=value) == [(("actions",), "actions must be a list of mappings with a name")]


def test_a_rule_needs_an_action() -> None:
    message = "A rule needs at least one action, for example cordon."
    assert rule_problems(actions=[]) == [(("actions",), message)]


@pytest.mark.parametrize("item", ["cordon", None, {}, {"name": 7}, {"attribute": {}}])
def test_an_action_has_a_name(item: object) -> None:
    """And a list of nothing but nameless actions is not told to have at least one as well."""
    assert rule_problems(actions=[item]) == [(("actions", 0), "An action must be a mapping with a name.")]


@pytest.mark.parametrize(
    ("api", "name", "message"),
    [
        (
            document.KSYUN,
            "cordn",
            f"Unknown action 'cordn': use one of {KNOWN} (did you mean cordon?)",
        ),
        (
            document.KSYUN,
            "uncordon",
            f"Unknown action 'uncordon': use one of {KNOWN} (did you mean unCordon?)",
        ),
        (
            document.KCOVER,
            "explode",
            f"Unknown action 'explode': use one of {KNOWN}, {OWN}",
        ),
        (
            document.KSYUN,
            "taint",
            "Action taint needs apiVersion: kcover.io/v1.",
        ),
        (document.KSYUN, "gpuReset", "Action gpuReset needs apiVersion: kcover.io/v1."),
    ],
)
def test_an_unknown_action_is_a_problem(api: str, name: str, message: str) -> None:
    assert rule_problems(api=api, actions=actions("cordon", name)) == [(("actions", 1, "name"), message)]


def test_an_action_may_appear_once() -> None:
    assert rule_problems(actions=actions("cordon", "drain", "cordon")) == [
        (("actions", 2, "name"), "cordon appears twice")
    ]


@pytest.mark.parametrize(
    ("api", "asked", "needed", "first"),
    [
        (document.KSYUN, ("cordon", "reboot"), "drain", "drain"),
        (document.KSYUN, ("drain", "unCordon"), "reboot", "reboot"),
        (document.KCOVER, ("drain", "unCordon"), "reboot, gpuReset, powerCycle or validate", "reboot"),
        (document.KCOVER, ("cordon", "gpuReset"), "drain", "drain"),
        (document.KSYUN, ("enableWarmStandby",), "cordon, drain or reboot", "cordon"),
        (document.KCOVER, ("taint", "enableWarmStandby"), "cordon, drain or reboot", "cordon"),
        (document.KCOVER, ("notify", "restartJobs"), "cordon or drain", "cordon"),
        (document.KCOVER, ("notify", "stopJobs"), "cordon or drain", "cordon"),
    ],
)
def test_preconditions(api: str, asked: tuple[str, ...], needed: str, first: str) -> None:
    index = len(asked) - 1
    assert rule_problems(api=api, actions=actions(*asked)) == [
        (("actions", index, "name"), f"{asked[-1]} needs {needed}: add {first} before it")
    ]


def test_a_validation_returns_a_node_without_a_reboot() -> None:
    assert rule(validate="full", actions=actions("cordon", "unCordon")).uncordons
    found = rule_problems(api=document.KSYUN, validate="full", actions=actions("cordon", "unCordon"))
    assert [path for path, _ in found] == [("validate",), ("actions", 1, "name")]


def test_a_job_is_either_restarted_or_stopped() -> None:
    assert rule_problems(actions=actions("drain", "restartJobs", "stopJobs")) == [
        (
            ("actions", 2, "name"),
            "stopJobs and restartJobs in one rule: a job is either restarted or stopped; remove one of the two",
        )
    ]


def test_a_reset_excludes_a_power_cycle() -> None:
    problems = rule_problems(api=document.KCOVER, actions=actions("drain", "gpuReset", "powerCycle"))
    assert [path for path, _ in problems] == [("actions", 1, "name")]


def test_a_reset_excludes_a_reboot() -> None:
    assert rule_problems(actions=actions("drain", "reboot", "gpuReset")) == [
        (
            ("actions", 2, "name"),
            "gpuReset and reboot in one rule: a reboot resets the GPUs as well; remove one of the two",
        )
    ]


def test_a_device_and_its_node_cannot_be_isolated_together() -> None:
    for other in ("cordon", "taint", "drain", "repair"):
        problems = rule_problems(api=document.KCOVER, actions=actions("quarantineDevice", other))
        assert [path for path, _ in problems] == [("actions", 0, "name")]
    wrong = {"effect": "PreferNoSchedule", "otherwise": "node"}
    problems = rule_problems(api=document.KCOVER, actions=[{"name": "quarantineDevice", "attribute": wrong}])
    assert [path[-1] for path, _ in problems] == ["effect", "otherwise"]


def test_a_precondition_has_the_path_of_its_action_after_an_invalid_one() -> None:
    found = rule_problems(actions=["bad", {"name": "explode"}, *actions("reboot")])
    assert [path for path, _ in found] == [("actions", 0), ("actions", 1, "name"), ("actions", 2, "name")]


def test_actions_may_be_in_any_order() -> None:
    names = ["reboot", "unCordon", "cordon", "drain"]
    assert [action.name for action in rule(actions=actions(*names)).actions] == names


def test_an_unknown_key_of_an_action() -> None:
    [(path, message)] = rule_problems(actions=[{"name": "drain", "waittime": "20min"}])
    assert path == ("actions", 0, "waittime")
    assert message == "Unknown key 'waittime': known keys are name, attribute"


@pytest.mark.parametrize("value", ["20min", [], 0, False, ""])
def test_an_attribute_is_a_mapping(value: object) -> None:
    assert rule_problems(actions=[{"name": "drain", "attribute": value}]) == [
        (("actions", 0, "attribute"), "attribute must be a mapping")
    ]


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("cordon", "waittime", "cordon has no attribute 'waittime': it takes no attribute"),
        (
            "drain",
            "unCordon",
            "drain has no attribute 'unCordon': it takes waittime, checkpointWait, checkpointQuery, checkpointSource, "
            "kueueTogether",
        ),
        ("reboot", "force", "reboot has no attribute 'force': it takes waittime, unCordon"),
        ("taint", "waittime", "taint has no attribute 'waittime': it takes key, value, effect"),
    ],
)
def test_an_attribute_that_an_action_does_not_have(name: str, key: str, message: str) -> None:
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


@pytest.mark.parametrize("value", ["20s", "20 miles", "1h2day", "-1min", "1.5h", "3651day"])
def test_a_wait_time_must_be_a_duration(value: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "drain", "attribute": {"waittime": value}}])
    assert path == ("actions", 0, "attribute", "waittime")
    with pytest.raises(durations.DurationError) as caught:
        durations.read(value)
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("value", "stored"),
    [("20m", "20min"), ("2 hours", "2h"), ("1 h 30 min", "1h30min"), ("90min", "90min"), ("7 d", "7day")],
)
def test_a_wait_time_is_kept_in_the_grammar_of_kce(value: str, stored: str) -> None:
    [action] = rule(actions=[{"name": "drain", "attribute": {"waittime": value}}]).actions
    assert action.attribute == {"waittime": stored}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("effect", "NoRun", "Unknown effect 'NoRun': use one of NoSchedule, PreferNoSchedule, NoExecute."),
        ("key", "a b", "'a b' is not a valid taint key"),
        ("value", "a b", "'a b' is not a valid taint value"),
        ("value", "<Code>", "'<Code>' is not a valid taint value"),
    ],
)
def test_a_taint_must_be_valid_in_kubernetes(key: str, value: str, message: str) -> None:
    assert rule_problems(actions=[{"name": "taint", "attribute": {key: value}}]) == [
        (("actions", 0, "attribute", key), message)
    ]


def test_a_taint_may_use_a_key_of_the_portal() -> None:
    """Its default is one: kcover.io/unhealthy."""
    attribute = {"key": "kcover.io/unhealthy", "value": "kcover.io"}
    assert rule(actions=[{"name": "taint", "attribute": attribute}]).actions[0].attribute == attribute


def test_the_code_placeholder_of_a_taint_counts_as_one_character() -> None:
    value = "x" * 62 + "<code>"
    assert rule(actions=[{"name": "taint", "attribute": {"value": value}}]).actions[0].attribute == {"value": value}


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
def test_actions_of_the_portal(name: str, attribute: dict[str, str]) -> None:
    read = rule(actions=[*actions("drain"), {"name": name, "attribute": attribute}])
    assert read.actions[1] == document.Action(name=name, attribute=attribute)
    assert read.uncordons is (name == "gpuReset")


@pytest.mark.parametrize(
    ("name", "attribute", "path", "message"),
    [
        ("label", {}, ("name",), "label needs the attribute key"),
        ("label", {"key": "a b"}, ("attribute", "key"), "'a b' is not a valid label key"),
        ("label", {"key": "a", "value": "b c"}, ("attribute", "value"), "'b c' is not a valid label value"),
        (
            "label",
            {"key": "kcover.io/state"},
            ("attribute", "key"),
            "Labels that begin with kcover.io/ belong to the portal. Use another name.",
        ),
        (
            "notify",
            {"channel": "On Call"},
            ("attribute", "channel"),
            "'On Call' is not a channel name; write for example \"on-call\"",
        ),
        ("notify", {"message": ""}, ("attribute", "message"), "A message must have 1 to 500 characters."),
        ("notify", {"message": "x" * 501}, ("attribute", "message"), "A message must have 1 to 500 characters."),
        ("webhook", {}, ("name",), "webhook needs the attribute url"),
        (
            "webhook",
            {"url": "ftp://x"},
            ("attribute", "url"),
            "'ftp://x' is not an address; write for example https://repair.example/hook",
        ),
        (
            "webhook",
            {"url": "https://x:y"},
            ("attribute", "url"),
            "'https://x:y' is not an address; write for example https://repair.example/hook",
        ),
        (
            "runChecks",
            {"checks": "pciebw, dcgm"},
            ("attribute", "checks"),
            "'pciebw, dcgm' is not a list of checks; separate the names by commas without spaces, "
            'for example "pciebw,remapped"',
        ),
        (
            "runChecks",
            {"checks": "a,a"},
            ("attribute", "checks"),
            "'a,a' is not a list of checks; separate the names by commas without spaces, "
            'for example "pciebw,remapped"',
        ),
        (
            "restartJobs",
            {"kind": "x"},
            ("attribute", "kind"),
            "restartJobs has no attribute 'kind': it takes no attribute",
        ),
    ],
)
def test_invalid_attributes_of_actions_of_the_portal(
    name: str, attribute: dict[str, str], path: tuple[str, ...], message: str
) -> None:
    asked = [*actions("drain"), {"name": name, "attribute": attribute}]
    assert rule_problems(actions=asked) == [(("actions", 1, *path), message)]


@pytest.mark.parametrize("url", ["https://u:p@x", "https://u@x", "https://:p@x"])
def test_a_url_must_not_contain_a_password(url: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}])
    assert path == ("actions", 0, "attribute", "url")
    assert message == "The address must not contain a password, because everybody who reads the policy could read it."


@pytest.mark.parametrize("url", ["https://x/ y", "https://x/\x00y", "https://x/y\n", f"https://x/{'y' * 991}"])
def test_a_url_has_no_spaces_and_a_maximum_length(url: str) -> None:
    [(path, message)] = rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}])
    assert path == ("actions", 0, "attribute", "url")
    assert message == (
        "An address must have at most 1000 characters and no spaces. Write for example https://repair.example/hook."
    )


@pytest.mark.parametrize("url", ["", "x", "//x/y", "https:", "https:///hook", "https://[x", "http://x:99999"])
def test_a_url_must_be_http(url: str) -> None:
    message = f"{url!r} is not an address; write for example https://repair.example/hook"
    assert rule_problems(actions=[{"name": "webhook", "attribute": {"url": url}}]) == [
        (("actions", 0, "attribute", "url"), message)
    ]
