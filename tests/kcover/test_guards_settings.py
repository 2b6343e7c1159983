"""Settings of the guards: defaults, JSON there and back, merging, every mistake named with what to write instead."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover.decisions import guards
from kcover.decisions.guards import settings as values
from kcover.nodes.scopes import Scope
from kcover.values import limits

DEFAULTS: dict[str, Any] = {
    "storm": {"enabled": True, "nodes": 3, "percent": 3, "window": 300},
    "rate": {"enabled": True},
    "breaker": {"enabled": True, "limit": 10, "window": 300},
    "budget": {"limit": None, "by": "cluster", "scopes": []},
    "floor": {"percent": None},
    "cooldown": 0,
    "hold_down": 30,
    "plans": {"limit": 5},
    "repeats": {"limit": 5, "window": 604800},
    "ladder": {"reboots": None, "window": 259200},
    "expiry": 86400,
}
OTHERS: dict[str, Any] = {
    "storm": {"enabled": False, "nodes": 5, "percent": 10, "window": 60},
    "rate": {"enabled": False},
    "breaker": {"enabled": False, "limit": 7, "window": 1},
    "budget": {
        "limit": "10%",
        "by": "label:topology.kubernetes.io/zone",
        "scopes": [
            {"limit": 2, "pools": ["a100", "b200"]},
            {"limit": "10%", "domains": {"rack": ["r1"]}},
            {"limit": 1, "labels": ["zone=b", "gold"]},
        ],
    },
    "floor": {"percent": 80},
    "cooldown": 600,
    "hold_down": 0,
    "plans": {"limit": 1},
    "repeats": {"limit": 2, "window": 3600},
    "ladder": {"reboots": 2, "window": 7200},
    "expiry": 1,
}


def test_the_defaults() -> None:
    assert guards.to_json(guards.Settings()) == DEFAULTS
    assert guards.parse({}) == guards.parse(DEFAULTS) == guards.Settings()


def test_json_there_and_back() -> None:
    settings = guards.parse(OTHERS)
    assert guards.to_json(settings) == OTHERS
    assert guards.parse(json.loads(json.dumps(guards.to_json(settings)))) == settings


def test_settings_are_values() -> None:
    settings = guards.parse(OTHERS)
    assert settings.storm == values.Storm(enabled=False, nodes=5, percent=10, window=timedelta(minutes=1))
    assert settings.breaker == values.Breaker(enabled=False, limit=limits.Limit(count=7), window=timedelta(seconds=1))
    assert (settings.budget.limit, settings.budget.by) == (
        limits.Limit(percent=10),
        values.BudgetScope("label", "topology.kubernetes.io/zone"),
    )
    assert [(one.limit, one.scope) for one in settings.budget.scopes] == [
        (limits.Limit(count=2), Scope(pools=("a100", "b200"))),
        (limits.Limit(percent=10), Scope(domain="rack", values=("r1",))),
        (limits.Limit(count=1), Scope(labels=(("zone", "b"), ("gold", None)))),
    ]
    assert settings.floor == values.Floor(percent=80)
    assert settings.cooldown == timedelta(minutes=10)
    assert settings.ladder == values.Ladder(reboots=2, window=timedelta(hours=2))


def test_omitted_settings_have_their_default() -> None:
    assert guards.parse({"storm": {"nodes": 9}}).storm == values.Storm(nodes=9)
    assert guards.parse({"budget": {}}) == guards.Settings()


@pytest.mark.parametrize("section", DEFAULTS)
def test_a_patch_changes_the_sections_that_it_names(section: str) -> None:
    patched = guards.merge(guards.Settings(), {section: OTHERS[section]})
    assert guards.to_json(patched) == {**DEFAULTS, section: OTHERS[section]}


@pytest.mark.parametrize(
    ("section", "name"), [(one, name) for one, part in OTHERS.items() if isinstance(part, dict) for name in part]
)
def test_a_patch_leaves_the_rest_of_its_section(section: str, name: str) -> None:
    patched = guards.merge(guards.Settings(), {section: {name: OTHERS[section][name]}})
    assert guards.to_json(patched) == {**DEFAULTS, section: {**DEFAULTS[section], name: OTHERS[section][name]}}
    assert guards.merge(guards.parse(OTHERS), {section: {}}) == guards.parse(OTHERS)


def test_null_switches_off_optional_guards() -> None:
    patch = {"budget": {"limit": None}, "floor": {"percent": None}, "ladder": {"reboots": None}}
    patched = guards.merge(guards.parse(OTHERS), patch)
    assert (patched.budget.limit, patched.floor.percent, patched.ladder.reboots) == (None, None, None)
    assert patched.budget.by == values.BudgetScope("label", "topology.kubernetes.io/zone")


WHOLE = "Must be a whole number from 1 to 1000000, not "
SECONDS = "Must be whole seconds from 1 to 2592000, not "
PERCENT = "Must be a whole percentage from 1 to 100, not "
LIMIT = 'is not a limit: write a whole number from 1, or a percentage such as "10%"'
BAD: list[tuple[Any, str, str]] = [
    (
        [],
        "",
        "Must be an object with storm, rate, breaker, budget, floor, cooldown, hold_down, plans, repeats, ladder,",
    ),
    ({"strom": {}}, "strom", "Unknown setting. Did you mean storm?"),
    ({"xyz": {}}, "xyz", "Unknown setting. Use one of storm, rate, breaker"),
    ({7: {}}, "7", "Unknown setting. Use one of storm"),
    ({"storm": None}, "storm", "Must be an object with enabled, nodes, percent, window, not null"),
    ({"storm": False}, "storm", "Must be an object with enabled, nodes, percent, window, not false"),
    ({"storm": True}, "storm", "Must be an object with enabled, nodes, percent, window, not true"),
    ({"storm": {"node": 3}}, "storm.node", "Unknown setting. Did you mean nodes?"),
    ({"storm": {"enabled": "yes"}}, "storm.enabled", "Must be true or false, not 'yes'"),
    ({"storm": {"enabled": 1}}, "storm.enabled", "Must be true or false, not 1"),
    ({"storm": {"enabled": None}}, "storm.enabled", "Must be true or false, not null"),
    ({"storm": {"nodes": 0}}, "storm.nodes", WHOLE + "0"),
    ({"storm": {"nodes": 1_000_001}}, "storm.nodes", WHOLE + "1000001"),
    ({"storm": {"nodes": True}}, "storm.nodes", WHOLE + "true"),
    ({"storm": {"nodes": 3.0}}, "storm.nodes", WHOLE + "3.0"),
    ({"storm": {"nodes": "3"}}, "storm.nodes", WHOLE + "'3'"),
    ({"storm": {"percent": 0}}, "storm.percent", PERCENT + "0"),
    ({"storm": {"percent": 101}}, "storm.percent", PERCENT + "101"),
    ({"storm": {"window": 0}}, "storm.window", SECONDS + "0"),
    ({"storm": {"window": 2592001}}, "storm.window", SECONDS + "2592001"),
    ({"storm": {"window": "5min"}}, "storm.window", SECONDS + "'5min'"),
    ({"rate": {"enabled": 0}}, "rate.enabled", "Must be true or false, not 0"),
    ({"rate": {"limit": 2}}, "rate.limit", "Unknown setting. Use one of enabled"),
    ({"breaker": {"enabled": "on"}}, "breaker.enabled", "Must be true or false, not 'on'"),
    ({"breaker": {"limit": None}}, "breaker.limit", "None " + LIMIT),
    ({"breaker": {"limit": "0%"}}, "breaker.limit", "'0%' " + LIMIT),
    ({"breaker": {"limit": "5"}}, "breaker.limit", "Write 5 without quotes: a count is a whole number."),
    ({"breaker": {"window": 0}}, "breaker.window", SECONDS + "0"),
    ({"budget": {"limit": 0}}, "budget.limit", "0 " + LIMIT),
    ({"budget": {"by": "rack"}}, "budget.by", "Must be cluster, pool or label:KEY, not 'rack'"),
    ({"budget": {"by": None}}, "budget.by", "Must be cluster, pool or label:KEY, not null"),
    ({"budget": {"by": ["pool"]}}, "budget.by", "Must be cluster, pool or label:KEY, not ['pool']"),
    ({"budget": {"by": "label:"}}, "budget.by", "'' is not a label key; write for example label:rack"),
    ({"budget": {"by": "label:a b"}}, "budget.by", "'a b' is not a label key; write for example label:rack"),
    ({"budget": {"scopes": None}}, "budget.scopes", "Must be a list of groups, each with a limit, not null"),
    ({"budget": {"scopes": {}}}, "budget.scopes", "Must be a list of groups, each with a limit, not {}"),
    ({"budget": {"scopes": [7]}}, "budget.scopes[0]", "Must be an object with limit, labels, pools, domains, not 7"),
    ({"budget": {"scopes": [{"pools": ["a"]}]}}, "budget.scopes[0].limit", "Set a limit: a whole number from 1"),
    ({"budget": {"scopes": [{"limit": 0, "pools": ["a"]}]}}, "budget.scopes[0].limit", "0 " + LIMIT),
    ({"budget": {"scopes": [{"limit": 1}]}}, "budget.scopes[0]", "Select nodes with one of labels, pools, domains"),
    ({"budget": {"scopes": [{"limit": 1, "pools": []}]}}, "budget.scopes[0].pools", "Must list at least one name"),
    ({"budget": {"scopes": [{"limit": 1, "nodes": ["n"]}]}}, "budget.scopes[0].nodes", "Unknown setting"),
    (
        {"budget": {"scopes": [{"limit": 1, "pools": ["a"]}, {"limit": 2, "pools": ["a"]}]}},
        "budget.scopes[1]",
        "This group has a limit already",
    ),
    (
        {"budget": {"scopes": [{"limit": 1, "pools": [f"p{n}"]} for n in range(21)]}},
        "budget.scopes",
        "Must be at most 20 groups",
    ),
    (
        {"budget": {"scopes": [{"limit": 1, "pools": [f"{n}" * 100 for n in range(10, 40)]}]}},
        "budget.scopes",
        "The groups take more than 4000 characters",
    ),
    ({"floor": {"percent": 0}}, "floor.percent", PERCENT + "0"),
    ({"floor": {"percent": "80%"}}, "floor.percent", PERCENT + "'80%'"),
    ({"cooldown": -1}, "cooldown", "Must be whole seconds from 0 to 2592000, not -1"),
    ({"cooldown": 2592001}, "cooldown", "Must be whole seconds from 0 to 2592000, not 2592001"),
    ({"cooldown": None}, "cooldown", "Must be whole seconds from 0 to 2592000, not null"),
    ({"hold_down": -1}, "hold_down", "Must be whole seconds from 0 to 86400, not -1"),
    ({"hold_down": 86401}, "hold_down", "Must be whole seconds from 0 to 86400, not 86401"),
    ({"plans": {"limit": 0}}, "plans.limit", WHOLE + "0"),
    ({"plans": {"limit": None}}, "plans.limit", WHOLE + "null"),
    ({"repeats": {"limit": 0}}, "repeats.limit", WHOLE + "0"),
    ({"repeats": {"window": 0}}, "repeats.window", SECONDS + "0"),
    ({"ladder": {"reboots": 0}}, "ladder.reboots", WHOLE + "0"),
    ({"ladder": {"window": None}}, "ladder.window", SECONDS + "null"),
    ({"expiry": 0}, "expiry", "Must be whole seconds from 1 to 2592000, not 0"),
    ({"cooldown": "x" * 99}, "cooldown", "Must be whole seconds from 0 to 2592000, not '" + "x" * 56 + "..."),
]


@pytest.mark.parametrize(("data", "path", "reason"), BAD)
def test_a_mistake_is_named(data: Any, path: str, reason: str) -> None:
    for read in (guards.parse, lambda patch: guards.merge(guards.parse(OTHERS), patch)):
        with pytest.raises(guards.SettingError) as caught:
            read(data)
        assert caught.value.path == path
        assert str(caught.value.reason).startswith(reason)
        assert str(caught.value) == (f"{path}: {caught.value.reason}" if path else str(caught.value.reason))


def test_a_long_value_is_shortened_in_errors() -> None:
    with pytest.raises(guards.SettingError) as exact:
        guards.parse({"cooldown": "x" * 58})
    assert str(exact.value.reason).endswith("not '" + "x" * 58 + "'.")
    with pytest.raises(guards.SettingError) as longer:
        guards.parse({"cooldown": "x" * 59})
    assert str(longer.value.reason).endswith("not '" + "x" * 56 + "....")


@pytest.mark.parametrize(
    "good",
    [
        {"storm": {"nodes": 1, "percent": 1, "window": 1}},
        {"storm": {"nodes": 1_000_000, "percent": 100, "window": 2_592_000}},
        {"breaker": {"limit": 1}},
        {"breaker": {"limit": "1%"}},
        {"breaker": {"limit": "100%"}},
        {"budget": {"by": "pool"}},
        {"budget": {"by": "label:rack"}},
        {"hold_down": 86400},
        {"cooldown": 2_592_000},
        {"expiry": 2_592_000},
    ],
)
def test_the_ends_of_every_range_are_accepted(good: dict[str, Any]) -> None:
    settings = guards.to_json(guards.parse(good))
    for name, part in good.items():
        assert settings[name] == ({**DEFAULTS[name], **part} if isinstance(part, dict) else part)


COUNT = st.integers(1, 1_000_000)
PERCENTAGE = st.integers(1, 100)
LIMITS = COUNT | PERCENTAGE.map(lambda percent: f"{percent}%")
WINDOW = st.integers(1, 2_592_000)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "storm": st.fixed_dictionaries(
            {}, optional={"enabled": st.booleans(), "nodes": COUNT, "percent": PERCENTAGE, "window": WINDOW}
        ),
        "rate": st.fixed_dictionaries({}, optional={"enabled": st.booleans()}),
        "breaker": st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "limit": LIMITS, "window": WINDOW}),
        "budget": st.fixed_dictionaries(
            {}, optional={"limit": st.none() | LIMITS, "by": st.sampled_from(["cluster", "pool", "label:rack"])}
        ),
        "floor": st.fixed_dictionaries({}, optional={"percent": st.none() | PERCENTAGE}),
        "cooldown": st.integers(0, 2_592_000),
        "plans": st.fixed_dictionaries({}, optional={"limit": COUNT}),
    },
)


@given(PATCHES, PATCHES)
def test_a_patch_is_a_deep_merge(first: dict[str, Any], second: dict[str, Any]) -> None:
    before = guards.merge(guards.Settings(), first)
    after = guards.merge(before, second)
    expected = {
        name: {**part, **second.get(name, {})} if isinstance(part, dict) else second.get(name, part)
        for name, part in guards.to_json(before).items()
    }
    assert guards.to_json(after) == expected
    assert guards.merge(after, second) == after
    assert guards.parse(guards.to_json(after)) == after


def test_as_many_groups_as_allowed_are_accepted() -> None:
    most = [{"limit": 1, "pools": [f"p{number}"]} for number in range(values.MAX_SCOPES)]
    assert len(guards.parse({"budget": {"scopes": most}}).budget.scopes) == values.MAX_SCOPES
    names = [f"{number}" * 100 for number in range(10, 29)]

    def written(last: int) -> dict[str, Any]:
        return {"budget": {"scopes": [{"limit": 1, "pools": [*names, "x" * last]}]}}

    bare = len(json.dumps(written(0)["budget"]["scopes"]))
    room = values.MAX_SCOPE_CHARACTERS - bare
    assert 0 < room < 253
    guards.parse(written(room))
    with pytest.raises(guards.SettingError):
        guards.parse(written(room + 1))
