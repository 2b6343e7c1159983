"""The figures of an evaluation: what the guards of the act read, and the guard that a reason belongs to."""

from datetime import timedelta

import pytest

from kcover.decisions import guards
from kcover.decisions.guards.figures import rule_limits
from kcover.values import limits
from tests.kcover.test_guards_evaluate import NOW, facts, settings

WINDOW = guards.Maintenance(start=NOW, end=NOW + timedelta(hours=1), scope=frozenset(), name="night", reason="move")


def test_the_figures_of_an_isolation() -> None:
    made = guards.figures(
        guards.parse({"cooldown": 600}),
        facts(maintenance=(WINDOW,), last_rescue_ended_at=NOW),
        act=guards.ISOLATION,
        rule=guards.RuleLimits(name="kce#1", budget=limits.Limit(percent=5), cooldown=timedelta(minutes=5)),
    )
    assert set(made) == {"settings", "facts", "excluded", "rule"}
    assert set(made["settings"]) == {"storm", "breaker", "budget", "floor", "cooldown"}
    assert made["settings"]["cooldown"] == 600
    named = {"cluster", "node", "eligible", "serving", "maintenance"}
    assert set(made["facts"]) == named | {"isolated_lately", "slots", "pool", "holds_slot", "hardware"} | {
        "last_rescue_ended_at"
    }
    assert made["facts"]["last_rescue_ended_at"] == NOW.isoformat()
    assert made["excluded"] is False
    assert made["rule"] == {"name": "kce#1", "budget": "5%", "cooldown": 300}


def test_the_figures_of_a_destructive_act() -> None:
    made = guards.figures(guards.parse({}), facts(labels={guards.EXCLUDE_LABEL: "true"}), act="drain")
    assert set(made) == {"settings", "facts", "excluded"}
    assert set(made["settings"]) == {"storm", "rate", "floor"}
    assert set(made["facts"]) == {"cluster", "node", "eligible", "serving", "faulty", "past", "pool"}
    assert made["excluded"] is True


def test_a_rule_without_limits() -> None:
    assert rule_limits(guards.RuleLimits(name="a#1")) == {"name": "a#1", "budget": None, "cooldown": None}


@pytest.mark.parametrize(
    ("code", "guard"),
    [
        ("paused", "paused"),
        ("paused_because", "paused"),
        ("breaker", "breaker"),
        ("cooldown", "cooldown"),
        ("rule_cooldown", "cooldown"),
        ("maintenance_because", "maintenance"),
        ("storm_code", "storm"),
        ("storm_budget", "storm"),
        ("nothing_holds_back", None),
        ("_because", None),
    ],
)
def test_the_guard_of_a_reason(code: str, guard: str | None) -> None:
    assert guards.guard_of(code) == guard


def test_of_groups_only_the_limits_of_those_that_the_node_is_in_are_recorded() -> None:
    groups = [{"limit": 1, "pools": ["secret"]}, {"limit": "5%", "labels": ["gold"]}]
    wanted = settings(budget={"limit": 3, "scopes": groups})
    within = {"1": guards.Slots(by="label", name="gold", eligible=4, taken=0)}
    assert guards.recorded(wanted, facts(scoped=within))["budget"]["scopes"] == [None, {"limit": "5%"}]
    assert guards.recorded(wanted, facts()) == guards.recorded(wanted, None)
    assert guards.recorded(wanted, None)["budget"] == {"limit": 3, "by": "cluster", "scopes": []}
