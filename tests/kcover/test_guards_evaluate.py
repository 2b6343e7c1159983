"""The guards: what holds an act back, to the very node and second, and what they let through."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover import reasons
from kcover.decisions import guards
from kcover.decisions.guards import chance
from kcover.values import limits

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
OFF: dict[str, Any] = {"storm": {"enabled": False}, "rate": {"enabled": False}, "breaker": {"enabled": False}}


def settings(**patch: Any) -> guards.Settings:
    """Only what the test names is on."""
    return guards.parse({**OFF, **patch})


def facts(**changes: Any) -> guards.Facts:
    made = guards.Facts(
        cluster="east",
        node="gpu-1",
        eligible=100,
        isolated_lately=0,
        slots=guards.Slots(by="cluster", name="east", eligible=100, taken=0),
        pool=guards.Pool(name="a100", eligible=10, healthy=10),
    )
    return replace(made, **changes)


def held(
    wanted: guards.Settings, found: guards.Facts, *, at: datetime = NOW, rule: guards.RuleLimits | None = None
) -> list[str]:
    return [str(one) for one in guards.isolation(wanted, found, now=at, rule=rule).held]


def passed(
    wanted: guards.Settings, found: guards.Facts, *, at: datetime = NOW, rule: guards.RuleLimits | None = None
) -> list[str]:
    verdict = guards.isolation(wanted, found, now=at, rule=rule)
    assert verdict.held == ()
    assert verdict.again_at is None
    return [str(one) for one in verdict.passed]


def kept(wanted: guards.Settings, found: guards.Facts, *, at: datetime = NOW) -> list[str]:
    return [str(one) for one in guards.destructive(wanted, found, act="reboot", now=at).held]


NO_MAINTENANCE = "No maintenance window is active here."


def test_with_every_guard_off_only_maintenance_is_evaluated() -> None:
    assert passed(settings(), facts(isolated_lately=99)) == [NO_MAINTENANCE]


def test_by_default_storm_and_breaker_are_evaluated() -> None:
    assert passed(guards.Settings(), facts()) == [
        NO_MAINTENANCE,
        "No storm: no symptom on more than 0 nodes within 5 min (threshold 3).",
        "Breaker not tripped: 0 of 100 nodes were isolated within 5 min (limit 10).",
    ]


# --- breaker


@pytest.mark.parametrize(
    ("limit", "eligible", "isolated", "holds"),
    [
        (3, 100, 2, False),
        (3, 100, 3, True),
        (3, 100, 4, True),
        ("50%", 10, 4, False),
        ("50%", 10, 5, True),
        ("50%", 11, 5, True),  # rounded down
        ("50%", 1, 0, False),  # at least one
        ("50%", 1, 1, True),
        ("1%", 99, 0, False),
        ("1%", 99, 1, True),
        ("1%", 200, 1, False),
        ("1%", 200, 2, True),
    ],
)
def test_the_breaker(limit: int | str, eligible: int, isolated: int, *, holds: bool) -> None:
    found = facts(eligible=eligible, isolated_lately=isolated)
    assert bool(held(settings(breaker={"limit": limit}), found)) is holds


def test_the_breaker_reports_its_counts() -> None:
    wanted = settings(breaker={"limit": "20%", "window": 600})
    assert held(wanted, facts(isolated_lately=20)) == [
        "Breaker tripped: 20 of 100 nodes were isolated within 10 min (limit 20)."
    ]
    assert passed(wanted, facts(isolated_lately=19))[1:] == [
        "Breaker not tripped: 19 of 100 nodes were isolated within 10 min (limit 20)."
    ]


def test_inv_31_a_tripped_breaker_stops_no_destructive_act() -> None:
    assert kept(settings(breaker={"limit": 1}), facts(isolated_lately=99)) == []


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 100) | st.integers(1, 100).map("{}%".format))
def test_inv_29_no_more_than_the_limit_is_isolated(eligible: int, faulty: int, limit: int | str) -> None:
    """Faults on M nodes at once, judged one after the other: L are isolated, M - L wait."""
    faulty = min(faulty, eligible)
    wanted = settings(breaker={"limit": limit})
    verdicts = []
    for _ in range(faulty):
        isolated = sum(1 for one in verdicts if not one.held)
        verdicts.append(guards.isolation(wanted, facts(eligible=eligible, isolated_lately=isolated), now=NOW))
    most = limits.parse(limit).of(eligible)
    assert Counter(bool(one.held) for one in verdicts) == Counter(
        {False: min(faulty, most), True: max(0, faulty - most)}
    )
    assert all(one.again_at for one in verdicts if one.held)


# --- budget


@pytest.mark.parametrize(
    ("limit", "taken", "holds"), [(2, 1, False), (2, 2, True), (2, 3, True), ("10%", 1, False), ("10%", 2, True)]
)
def test_the_budget(limit: int | str, taken: int, *, holds: bool) -> None:
    found = facts(slots=guards.Slots(by="pool", name="a100", eligible=25, taken=taken))
    assert bool(held(settings(budget={"limit": limit}), found)) is holds


def test_the_budget_reports_its_counts() -> None:
    wanted = settings(budget={"limit": 2, "by": "pool"})
    found = facts(slots=guards.Slots(by="pool", name="a100", eligible=25, taken=2))
    assert held(wanted, found) == [
        "No budget left for pool a100: 2 of 25 nodes are isolated or in rescue (limit 2).",
    ]
    found = facts(slots=guards.Slots(by="pool", name="a100", eligible=25, taken=1))
    assert passed(wanted, found)[1:] == [
        "Budget left for pool a100: 1 of 25 nodes are isolated or in rescue (limit 2).",
    ]


def test_without_a_budget_no_node_is_held() -> None:
    assert held(settings(), facts(slots=guards.Slots(by="cluster", name="x", eligible=10, taken=10))) == []


def test_a_node_that_has_a_place_needs_no_second_one() -> None:
    full = {
        "slots": guards.Slots(by="cluster", name="x", eligible=10, taken=2),
        "isolated_lately": 2,
        "holds_slot": True,
    }
    wanted = settings(budget={"limit": 2}, breaker={"limit": 2})
    assert held(wanted, facts(**full)) == []
    assert len(held(wanted, facts(**{**full, "holds_slot": False}))) == 2


def test_a_scope_without_eligible_nodes_has_no_place() -> None:
    found = facts(slots=guards.Slots(by="label", name="rack=7", eligible=0, taken=0))
    assert held(settings(budget={"limit": "50%"}), found) == [
        "No budget left for label rack=7: 0 of 0 nodes are isolated or in rescue (limit 0)."
    ]


# --- a rule's own limits

RULE = guards.RuleLimits(name="heal#1", budget=limits.Limit(count=1), cooldown=HOUR)


def by_rule(taken: int = 0, ended: datetime | None = None) -> dict[str, guards.RuleFacts]:
    return {
        "heal#1": guards.RuleFacts(
            slots=guards.Slots(by="rule", name="heal#1", eligible=9, taken=taken), last_ended_at=ended
        )
    }


def test_a_rules_budget() -> None:
    assert held(settings(), facts(rules=by_rule(taken=1)), rule=RULE) == [
        "No budget left for rule heal#1: 1 of 9 nodes are isolated or in rescue (limit 1)."
    ]
    assert passed(settings(), facts(rules=by_rule()), rule=RULE) == [
        NO_MAINTENANCE,
        "Budget left for rule heal#1: 0 of 9 nodes are isolated or in rescue (limit 1).",
        "No cooldown: no rescue of this node ended within 1 h.",
    ]


def test_a_rules_cooldown() -> None:
    found = facts(rules=by_rule(ended=NOW))
    assert held(settings(), found, at=NOW + HOUR - SECOND, rule=RULE) == [
        (
            "Cooldown until 2026-11-21 09:00:00 UTC: the last rescue of this node by rule heal#1 ended "
            "at 2026-11-21 08:00:00 UTC."
        )
    ]
    assert held(settings(), found, at=NOW + HOUR, rule=RULE) == []


def test_a_rule_without_limits_adds_none() -> None:
    assert passed(settings(), facts(), rule=guards.RuleLimits(name="heal#1")) == [NO_MAINTENANCE]


def test_the_clusters_limits_hold_beside_the_rules() -> None:
    wanted = settings(budget={"limit": 1}, cooldown=60)
    full = facts(
        slots=guards.Slots(by="cluster", name="x", eligible=9, taken=1),
        last_rescue_ended_at=NOW,
        rules=by_rule(taken=1, ended=NOW),
    )
    assert len(held(wanted, full, rule=RULE)) == 4


def test_facts_that_lack_the_rule_are_no_zero() -> None:
    with pytest.raises(KeyError):
        held(settings(), facts(), rule=RULE)


# --- floor


@pytest.mark.parametrize(
    ("percent", "eligible", "healthy", "holds"),
    [
        (80, 10, 9, False),
        (80, 10, 8, True),
        (80, 10, 7, True),
        (85, 10, 9, False),  # 8.5, rounded down to 8
        (100, 10, 10, True),
        (1, 10, 2, False),  # at least one stays
        (1, 10, 1, True),
    ],
)
def test_the_floor(percent: int, eligible: int, healthy: int, *, holds: bool) -> None:
    wanted = settings(floor={"percent": percent})
    found = facts(pool=guards.Pool(name="a100", eligible=eligible, healthy=healthy))
    assert bool(held(wanted, found)) is holds
    assert bool(kept(wanted, found)) is holds
    assert held(wanted, replace(found, serving=False)) == []
    assert kept(wanted, replace(found, serving=False)) == []


def test_the_floor_reports_its_counts() -> None:
    wanted = settings(floor={"percent": 85})
    pool = guards.Pool(name="a100", eligible=10, healthy=8)
    assert held(wanted, facts(pool=pool)) == ["Pool a100 has 8 healthy nodes of 10 and must keep at least 8."]
    assert passed(wanted, facts(pool=pool, serving=False))[1:] == [
        "Pool a100 is above its floor: 8 of 10 nodes are healthy, at least 8 are required."
    ]


@given(st.integers(1, 60), st.integers(1, 100), st.data())
def test_inv_36_isolation_never_takes_a_pool_under_its_floor(eligible: int, percent: int, data: st.DataObject) -> None:
    healthy = data.draw(st.integers(0, eligible))
    wanted, floor = settings(floor={"percent": percent}), max(1, eligible * percent // 100)
    left = healthy
    while left and not held(wanted, facts(pool=guards.Pool(name="p", eligible=eligible, healthy=left))):
        left -= 1
    assert left == (healthy if healthy <= floor else floor)


# --- cooldown


@pytest.mark.parametrize(("after", "holds"), [(-SECOND, True), (0 * SECOND, False), (SECOND, False)])
def test_the_cooldown(after: timedelta, *, holds: bool) -> None:
    found = facts(last_rescue_ended_at=NOW - HOUR - after)
    assert bool(held(settings(cooldown=3600), found)) is holds


def test_the_cooldown_reports_its_end() -> None:
    wanted = settings(cooldown=90)
    assert held(wanted, facts(last_rescue_ended_at=NOW)) == [
        "Cooldown until 2026-11-21 08:01:30 UTC: the last rescue of this node ended at 2026-11-21 08:00:00 UTC."
    ]
    assert passed(wanted, facts())[1:] == ["No cooldown: no rescue of this node ended within 90 s."]


def test_a_cooldown_of_zero_is_not_evaluated() -> None:
    assert passed(settings(cooldown=0), facts(last_rescue_ended_at=NOW)) == [NO_MAINTENANCE]


# --- maintenance


def window(**changes: Any) -> guards.Maintenance:
    return replace(guards.Maintenance(start=NOW, end=NOW + HOUR), **changes)


@pytest.mark.parametrize(
    ("at", "holds"), [(NOW - SECOND, False), (NOW, True), (NOW + HOUR - SECOND, True), (NOW + HOUR, False)]
)
def test_maintenance_holds_from_its_start_until_before_its_end(at: datetime, *, holds: bool) -> None:
    found = facts(maintenance=(window(),))
    assert bool(held(settings(), found, at=at)) is holds
    assert bool(kept(settings(), found, at=at)) is holds


@pytest.mark.parametrize(
    ("scope", "name", "holds"),
    [
        ("all", "", True),
        ("all", "anything", True),
        ("cluster", "east", True),
        ("cluster", "west", False),
        ("pool", "a100", True),
        ("pool", "east", False),
        ("node", "gpu-1", True),
        ("node", "gpu-11", False),
        ("node", "", False),
    ],
)
def test_maintenance_holds_where_it_says(scope: str, name: str, *, holds: bool) -> None:
    assert bool(held(settings(), facts(maintenance=(window(scope=scope, name=name),)))) is holds


def test_every_scope_is_known() -> None:
    assert guards.SCOPES == ("all", "cluster", "pool", "node", "label", "rack", "leaf", "nvlink")
    for covers in (True, False):
        assert bool(held(settings(), facts(maintenance=(window(scope="rack", name="7", covers=covers),)))) is covers
    with pytest.raises(KeyError):
        held(settings(), facts(maintenance=(window(scope="rack", name="7"),)))


def test_a_maintenance_window_reports_its_scope_end_and_reason() -> None:
    assert held(settings(), facts(maintenance=(window(),))) == [
        "Maintenance window (all clusters) until 2026-11-21 09:00:00 UTC."
    ]
    found = facts(maintenance=(window(scope="pool", name="a100", reason="new switches"),))
    assert held(settings(), found) == ["Maintenance window (pool a100) until 2026-11-21 09:00:00 UTC: new switches"]


def test_the_window_that_ends_last_is_named() -> None:
    short, long = window(end=NOW + SECOND, reason="short"), window(reason="long")
    for order in ((short, long), (long, short)):
        [reason] = held(settings(), facts(maintenance=(*order, window(start=NOW + SECOND, end=NOW + 9 * HOUR))))
        assert reason.endswith("long")


# --- storm


def symptom(nodes: int, trait: str = "code", value: str = "79") -> guards.Symptom:
    return guards.Symptom(trait=trait, kind="xid" if trait == "code" else "", value=value, nodes=nodes)


@pytest.mark.parametrize(
    ("eligible", "nodes", "storm"),
    [
        (10, 2, False),
        (10, 3, True),
        (133, 3, True),  # 3.99, rounded down
        (134, 3, False),
        (134, 4, True),
        (1000, 29, False),
        (1000, 30, True),
        (1000, 31, True),
        (3, 3, True),
    ],
)
def test_inv_33_a_storm_is_three_nodes_and_three_percent(eligible: int, nodes: int, *, storm: bool) -> None:
    found = facts(eligible=eligible, symptoms=(symptom(nodes),))
    assert (guards.storm(guards.Settings(), found) is not None) is storm
    on = settings(storm={"enabled": True})
    assert bool(held(on, found)) is storm
    assert bool(kept(on, found)) is storm


@pytest.mark.parametrize(
    ("eligible", "breaker", "most"), [(24, 10, 6), (23, 10, 5), (100, 10, 10), (100, "50%", 25), (3, 10, 1)]
)
def test_inv_33_a_storm_isolates_hardware_up_to_a_quarter_and_the_breakers_limit(
    eligible: int, breaker: int | str, most: int
) -> None:
    on = settings(storm={"enabled": True, "nodes": 2}, breaker={"enabled": False, "limit": breaker})

    def found(taken: int, **more: Any) -> guards.Facts:
        slots = guards.Slots(by="cluster", name="east", eligible=eligible, taken=taken)
        return facts(eligible=eligible, slots=slots, symptoms=(symptom(1), symptom(9)), hardware=True, **more)

    verdict = guards.isolation(on, found(most - 1), now=NOW)
    assert (verdict.held, verdict.passed[1:]) == (
        (),
        (
            reasons.of(
                "storm_cordon", nodes=9, limit=max(2, eligible * 3 // 100), within=reasons.span(timedelta(minutes=5))
            ),
        ),
    )
    verdict = guards.isolation(on, found(most), now=NOW)
    assert verdict.held == (reasons.of("storm_budget", taken=most, limit=most, eligible=eligible),)
    assert guards.guard_of("storm_budget") == "storm"
    assert guards.isolation(on, found(most), now=NOW, overrides={"storm": "user:anna"}).held == ()
    assert held(on, found(most, holds_slot=True)) == []
    assert kept(on, found(0)) != []


def test_inv_33_a_budget_bounds_a_storm_in_place_of_the_quarter() -> None:
    on = settings(storm={"enabled": True}, budget={"limit": 50})
    slots = guards.Slots(by="pool", name="a100", eligible=100, taken=49)
    found = facts(slots=slots, symptoms=(symptom(60),), hardware=True)
    assert held(on, found) == []
    assert [one.code for one in guards.isolation(on, replace(found, slots=replace(slots, taken=50)), now=NOW).held] == [
        "budget"
    ]


def test_hardware_without_a_storm_passes_as_before() -> None:
    on = settings(storm={"enabled": True})
    slots = guards.Slots(by="cluster", name="east", eligible=100, taken=100)
    assert passed(on, facts(symptoms=(symptom(2),), hardware=True, slots=slots)) == passed(
        on, facts(symptoms=(symptom(2),))
    )


def test_during_a_storm_only_the_storm_guard_is_evaluated() -> None:
    on = settings(storm={"enabled": True}, floor={"percent": 90})
    found = replace(EVERYTHING, hardware=True)
    assert [one.code for one in guards.during_storm(on, found, now=NOW).held] == ["storm_code"]
    assert guards.during_storm(on, found, now=NOW, overrides={"storm": "user:anna"}).held == ()
    assert guards.during_storm(settings(), found, now=NOW) == guards.Verdict(held=(), passed=())


def test_the_storm_that_was_found() -> None:
    found = guards.storm(guards.Settings(), facts(eligible=200, symptoms=(symptom(7),)))
    assert found == guards.Storm(symptom=symptom(7), reached=6, eligible=200)


def test_the_widest_symptom_is_the_storm() -> None:
    symptoms = (symptom(3), symptom(5, "job", "default/train"), symptom(4, "switch", "leaf-1"))
    found = guards.storm(guards.Settings(), facts(symptoms=symptoms))
    assert found is not None
    assert found.symptom == symptoms[1]


def test_among_equal_symptoms_the_first_trait_and_name_is_the_storm() -> None:
    order = [
        symptom(3, "code", "xid 62"),
        symptom(3, "code", "xid 79"),
        symptom(3, "job", "a"),
        symptom(3, "switch", "a"),
        symptom(3, "agent_version", "1.0"),
    ]
    for place in range(len(order)):
        found = guards.storm(guards.Settings(), facts(symptoms=tuple(reversed(order[place:]))))
        assert found is not None
        assert found.symptom == order[place]
    assert [one.trait for one in order[1:]] == list(guards.TRAITS)


@pytest.mark.parametrize(
    ("trait", "said"),
    [
        (
            "code",
            (
                "Storm: xid X on 4 nodes within 5 min (threshold 3). A shared cause is likely, so "
                "the action waits until a person closes the storm."
            ),
        ),
        (
            "job",
            (
                "Storm: 4 nodes of job X failed within 5 min (threshold 3). A shared cause is likely, so "
                "the action waits until a person closes the storm."
            ),
        ),
        (
            "switch",
            (
                "Storm: 4 nodes on switch X failed within 5 min (threshold 3). A shared cause is likely, "
                "so the action waits until a person closes the storm."
            ),
        ),
        (
            "agent_version",
            (
                "Storm: 4 nodes with agent X failed within 5 min (threshold 3). A shared cause is likely, "
                "so the action waits until a person closes the storm."
            ),
        ),
    ],
)
def test_a_storm_reports_its_symptom(trait: str, said: str) -> None:
    on = settings(storm={"enabled": True})
    assert held(on, facts(symptoms=(symptom(4, trait, "X"),))) == [said]


def test_the_storms_settings() -> None:
    found = facts(symptoms=(symptom(5),))
    assert guards.storm(settings(storm={"enabled": True, "nodes": 6, "percent": 1}), found) is None
    assert guards.storm(settings(storm={"enabled": True, "nodes": 1, "percent": 6}), found) is None
    assert guards.storm(settings(storm={"enabled": True, "nodes": 5, "percent": 5}), found) is not None
    assert guards.storm(settings(storm={"enabled": False}), found) is None
    on = settings(storm={"enabled": True, "nodes": 6, "window": 7200})
    assert passed(on, facts(symptoms=(symptom(5), symptom(2))))[1:] == [
        "No storm: no symptom on more than 5 nodes within 2 h (threshold 6)."
    ]


def test_no_symptoms_and_no_nodes_are_no_storm() -> None:
    assert guards.storm(guards.Settings(), facts()) is None
    assert guards.storm(guards.Settings(), facts(eligible=0, symptoms=(symptom(99),))) is None
    assert guards.storm(guards.Settings(), facts(eligible=1, symptoms=(symptom(3),))) is not None


# --- rate


@pytest.mark.parametrize(
    ("faulty", "within"),
    [
        ({"ten_minutes": 5, "hour": 5, "six_hours": 5}, "5 of 100 nodes failed within 10 min (limit 5)"),
        ({"ten_minutes": 4, "hour": 4, "six_hours": 5}, ""),
        ({"ten_minutes": 1, "hour": 5, "six_hours": 5}, "5 of 100 nodes failed within 1 h (limit 5)"),
        ({"ten_minutes": 0, "hour": 0, "six_hours": 6}, "6 of 100 nodes failed within 6 h (limit 6)"),
    ],
)
def test_a_reached_limit_holds(faulty: dict[str, int], within: str) -> None:
    assert [chance.limit(100, window=one, past=guards.FaultHistory()) for one in chance.WINDOWS] == [5, 5, 6]
    reasons = kept(settings(rate={"enabled": True}), facts(faulty=guards.FaultyNodes(**faulty)))
    assert reasons == ([f"Fault rate too high: {within}. Reboot postponed."] if within else [])


def test_the_rate_knows_the_clusters_past() -> None:
    on, faulty = settings(rate={"enabled": True}), guards.FaultyNodes(ten_minutes=4)
    quiet = guards.FaultHistory(node_hours=10**7, faults=5000)
    assert kept(on, facts(faulty=faulty)) == []
    assert kept(on, facts(faulty=faulty, past=quiet)) != []


def test_the_rate_limits_destructive_acts_only() -> None:
    assert held(settings(rate={"enabled": True}), facts(faulty=guards.FaultyNodes(ten_minutes=99))) == []
    assert kept(settings(rate={"enabled": False}), facts(faulty=guards.FaultyNodes(ten_minutes=99))) == []


def test_the_rate_reports_its_counts() -> None:
    few = facts(faulty=guards.FaultyNodes(ten_minutes=1, hour=2, six_hours=3))
    verdict = guards.destructive(settings(rate={"enabled": True}), few, act="drain", now=NOW)
    assert str(verdict.passed[-1]) == (
        "Fault rate is within normal variation: 1 within 10 min, 2 within 1 h, 3 within 6 h, of 100 nodes."
    )


# --- exclusion


@pytest.mark.parametrize(
    ("labels", "holds"), [({}, False), ({"kcover.io/exclude": "false"}, False), ({"kcover.io/exclude": "true"}, True)]
)
def test_inv_37_an_excluded_node_is_left_alone(labels: dict[str, str], *, holds: bool) -> None:
    reasons = kept(settings(), facts(labels=labels))
    assert reasons == (["Node gpu-1 is excluded (label kcover.io/exclude=true)."] if holds else [])


def test_a_destructive_act_lists_the_passed_guards() -> None:
    verdict = guards.destructive(settings(), facts(), act="drain", now=NOW)
    assert [str(one) for one in verdict.passed] == [
        "Node gpu-1 is not excluded (no label kcover.io/exclude=true).",
        NO_MAINTENANCE,
    ]
    assert verdict == guards.Verdict(held=(), passed=verdict.passed)


# --- none eligible


@pytest.mark.parametrize("eligible", [0, -1])
def test_inv_30_without_eligible_nodes_nothing_is_done(eligible: int) -> None:
    nobody = facts(eligible=eligible)
    for verdict in (
        guards.isolation(guards.Settings(), nobody, now=NOW),
        guards.destructive(guards.Settings(), nobody, act="reboot", now=NOW),
    ):
        assert list(verdict.held) == [reasons.of("none_eligible", cluster="east")]
        assert (verdict.passed, verdict.overridden, verdict.again_at) == ((), (), NOW + guards.REDECIDE_AFTER)
    assert held(guards.Settings(), facts(eligible=1)) == []


def test_without_eligible_nodes_no_override_helps() -> None:
    everything = dict.fromkeys(guards.GUARDS, "user:anna")
    assert guards.isolation(guards.Settings(), facts(eligible=0), now=NOW, overrides=everything).held


# --- several at once, when to judge again, overrides

EVERYTHING = facts(
    labels={"kcover.io/exclude": "true"},
    isolated_lately=50,
    slots=guards.Slots(by="cluster", name="east", eligible=100, taken=1),
    pool=guards.Pool(name="a100", eligible=10, healthy=8),
    symptoms=(symptom(3),),
    faulty=guards.FaultyNodes(ten_minutes=9),
    last_rescue_ended_at=NOW - SECOND,
    maintenance=(window(),),
)
ALL_ON = guards.parse({"budget": {"limit": 1}, "floor": {"percent": 80}, "cooldown": 60})
ISOLATION = ["maintenance", "storm", "breaker", "budget", "floor", "cooldown"]
DESTRUCTIVE = ["exclusion", "maintenance", "storm", "rate", "floor"]
WORDS = {"exclusion": "excluded", "maintenance": "maintenance", "storm": "storm_code", "budget": "budget"}


def codes(names: list[str]) -> list[str]:
    return [WORDS.get(name, name) for name in names]


def test_every_guard_that_holds_is_named_in_order() -> None:
    verdict = guards.isolation(ALL_ON, EVERYTHING, now=NOW)
    assert [one.code for one in verdict.held] == codes(ISOLATION)
    assert verdict.passed == ()
    verdict = guards.destructive(ALL_ON, EVERYTHING, act="reboot", now=NOW)
    assert [one.code for one in verdict.held] == codes(DESTRUCTIVE)
    assert set(ISOLATION) | set(DESTRUCTIVE) == {*guards.GUARDS, "exclusion"}  # hands off: nobody passes over that


@pytest.mark.parametrize("name", guards.GUARDS)
def test_an_overridden_guard_is_on_record(name: str) -> None:
    anna = {name: "user:anna"}
    for order, verdict in (
        (ISOLATION, guards.isolation(ALL_ON, EVERYTHING, now=NOW, overrides=anna)),
        (DESTRUCTIVE, guards.destructive(ALL_ON, EVERYTHING, act="reboot", now=NOW, overrides=anna)),
    ):
        assert [one.code for one in verdict.held] == codes([one for one in order if one != name])
        assert verdict.passed == ()
        lifted = [(one.code, dict(one.params)["guard"], dict(one.params)["user"]) for one in verdict.overridden]
        assert lifted == ([("overridden", reasons.of(f"guard_{name}"), "user:anna")] if name in order else [])
        whys = [dict(one.params)["why"] for one in verdict.overridden]
        assert [guards.guard_of(why.code) for why in whys if isinstance(why, reasons.Reason)] == [name for _ in lifted]


def test_an_overridden_guard_is_described_with_its_user() -> None:
    anna = {"budget": "user:anna"}
    verdict = guards.isolation(settings(budget={"limit": 1}), EVERYTHING, now=NOW, overrides=anna)
    assert [str(one) for one in verdict.overridden] == [
        (
            "anna overrode the guard budget: No budget left for cluster east: 1 of 100 nodes are "
            "isolated or in rescue (limit 1)."
        )
    ]


def test_overriding_every_guard_holds_nothing() -> None:
    anna = dict.fromkeys(guards.GUARDS, "user:anna")
    verdict = guards.isolation(ALL_ON, EVERYTHING, now=NOW, overrides=anna)
    assert (verdict.held, verdict.again_at, len(verdict.overridden)) == ((), None, len(ISOLATION))


def test_an_exclusion_cannot_be_overridden() -> None:
    anna = dict.fromkeys((*guards.GUARDS, "exclusion"), "user:anna")
    verdict = guards.destructive(ALL_ON, EVERYTHING, act="reboot", now=NOW, overrides=anna)
    assert [one.code for one in verdict.held] == ["excluded"]


def test_a_guard_that_passed_is_not_overridden() -> None:
    anna = dict.fromkeys(guards.GUARDS, "user:anna")
    assert guards.isolation(ALL_ON, facts(), now=NOW, overrides=anna).overridden == ()


def test_every_override_is_its_own_users() -> None:
    verdict = guards.isolation(ALL_ON, EVERYTHING, now=NOW, overrides={"storm": "user:anna", "floor": "user:ben"})
    lifted = [(dict(one.params)["guard"], dict(one.params)["user"]) for one in verdict.overridden]
    assert lifted == [(reasons.of("guard_storm"), "user:anna"), (reasons.of("guard_floor"), "user:ben")]


@pytest.mark.parametrize(
    ("lasts", "again"),
    [
        (SECOND, guards.REDECIDE_AFTER),
        (timedelta(seconds=15), guards.REDECIDE_AFTER),
        (timedelta(seconds=16), timedelta(seconds=16)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(hours=9), guards.MAX_REDECIDE_AFTER),
    ],
)
def test_a_held_act_has_the_time_of_its_next_evaluation(lasts: timedelta, again: timedelta) -> None:
    found = facts(maintenance=(window(end=NOW + lasts),))
    assert guards.isolation(settings(), found, now=NOW).again_at == NOW + again
    assert guards.destructive(settings(), found, act="drain", now=NOW).again_at == NOW + again


def test_the_next_evaluation_is_between_15_seconds_and_five_minutes() -> None:
    assert [one.total_seconds() for one in (guards.REDECIDE_AFTER, guards.MAX_REDECIDE_AFTER)] == [15, 300]
    assert (
        guards.isolation(settings(breaker={"limit": 1}), EVERYTHING, now=NOW + HOUR).again_at
        == NOW + HOUR + guards.REDECIDE_AFTER
    )


def test_the_last_guard_to_end_sets_the_next_evaluation() -> None:
    found = facts(maintenance=(window(end=NOW + timedelta(minutes=1)),), last_rescue_ended_at=NOW, isolated_lately=9)
    wanted = settings(cooldown=120, breaker={"limit": 1})
    assert guards.isolation(wanted, found, now=NOW).again_at == NOW + timedelta(minutes=2)
    lifted = {"cooldown": "user:anna"}
    assert guards.isolation(wanted, found, now=NOW, overrides=lifted).again_at == NOW + timedelta(minutes=1)


# --- plans of a decision system


@pytest.mark.parametrize(("active", "refused"), [(4, False), (5, True), (6, True)])
def test_the_plan_limit(active: int, *, refused: bool) -> None:
    reason = guards.too_many_plans(guards.Settings(), active=active)
    assert str(reason) == ("Exceed the maximum plans limit {5}" if refused else "None")


# --- the record


def test_facts_as_json() -> None:
    made = facts(
        symptoms=(symptom(3),),
        scoped={"0": guards.Slots(by="rack", name="r1", eligible=4, taken=1)},
        rules=by_rule(taken=1, ended=NOW),
        labels={"a": "b"},
        maintenance=(window(reason="x"),),
        last_rescue_ended_at=NOW,
    )
    assert made.to_json() == {
        "cluster": "east",
        "node": "gpu-1",
        "eligible": 100,
        "isolated_lately": 0,
        "slots": {"by": "cluster", "name": "east", "eligible": 100, "taken": 0},
        "scoped": {"0": {"by": "rack", "name": "r1", "eligible": 4, "taken": 1}},
        "pool": {"name": "a100", "eligible": 10, "healthy": 10},
        "labels": {"a": "b"},
        "serving": True,
        "holds_slot": False,
        "hardware": False,
        "symptoms": [{"trait": "code", "kind": "xid", "value": "79", "nodes": 3}],
        "faulty": {"ten_minutes": 0, "hour": 0, "six_hours": 0},
        "past": {"node_hours": 0, "faults": 0, "ten_minutes": 0, "hour": 0, "six_hours": 0},
        "last_rescue_ended_at": "2026-11-21T08:00:00+00:00",
        "maintenance": [
            {
                "start": "2026-11-21T08:00:00+00:00",
                "end": "2026-11-21T09:00:00+00:00",
                "scope": "all",
                "name": "",
                "reason": "x",
                "covers": None,
            }
        ],
        "rules": {
            "heal#1": {
                "slots": {"by": "rule", "name": "heal#1", "eligible": 9, "taken": 1},
                "last_ended_at": "2026-11-21T08:00:00+00:00",
            }
        },
    }
