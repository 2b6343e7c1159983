"""decide: one answer for one situation, always with its reasons."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover.decisions import decide, guards, match
from kcover.plans import plan
from kcover.policy import document, modes
from kcover.values import limits

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MATCHES = "Rule heal#1 (priority 10) matches Xid 62."


def candidate(*names: str, **fields: Any) -> match.Candidate:
    asked = tuple(document.Action(name=name) for name in names or ("cordon",))
    rule = document.Rule(**{"index": 0, "priority": 10, "codes": ("62",), "actions": asked, **fields})
    return match.Candidate(policy="heal", revision=4, created_at=NOW, rule=rule)


REBOOTS = candidate("drain", "reboot")


def situation(
    *rules: match.Candidate,
    fault: dict[str, Any] | None = None,
    node: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    counts: guards.Facts | None = None,
) -> decide.Situation:
    return decide.Situation(
        now=NOW,
        fault=decide.FaultFacts(**{"kind": "xid", "code": "62", **(fault or {})}),
        node=decide.NodeFacts(**{"name": "gpu-1", "known": True, "gpus": 8, **(node or {})}),
        cluster=decide.ClusterFacts(**{"name": "east", **(cluster or {})}),
        rules=rules or (candidate(),),
        settings=guards.parse(settings or {}),
        counts=counts,
    )


def counted(**changes: Any) -> guards.Facts:
    made = guards.Facts(
        cluster="east",
        node="gpu-1",
        eligible=100,
        isolated_lately=0,
        slots=guards.Slots(by="cluster", name="east", eligible=100, taken=0),
        pool=guards.Pool(name="", eligible=100, healthy=100),
    )
    return replace(made, **changes)


def weigh(*rules: match.Candidate, **facts: Any) -> tuple[str, tuple[str, ...]]:
    judged = decide.decide(situation(*rules, **facts))

    return judged.answer, tuple(map(str, judged.because))


def test_a_rule_that_nothing_holds_back() -> None:
    rule = candidate()
    assert decide.decide(situation(rule)) == decide.Decision(
        answer="rescue",
        because=(
            reasons.of("rule_matches", rule="heal#1", priority=10, kind="xid", code="62"),
            reasons.of("nothing_holds_back"),
        ),
        mode="enforce",
        candidate=rule,
        steps=(plan.PlannedStep(name="cordon"),),
        tried=(match.TriedRule("heal#1", True, reasons.of("code_and_labels_match")),),
    )


def test_the_same_facts_give_the_same_answer() -> None:
    assert decide.decide(situation()) == decide.decide(situation())


def test_the_plan_carries_the_faults_code() -> None:
    [taint] = decide.decide(situation(candidate("taint", codes=None), fault={"code": "79"})).steps
    assert taint.args["value"] == "79"


# --- beyond rules: no rule is asked


@pytest.mark.parametrize(
    ("facts", "because"),
    [
        (
            {"node": {"known": False}},
            "Cluster east has no node gpu-1. Its reports are kept, but nothing is done to it.",
        ),
        ({"node": {"gpus": 0}}, "Node gpu-1 has no GPUs. Policies act on GPU nodes only."),
        (
            {"fault": {"drill": True}, "cluster": {"drills": "record"}},
            "Drill: the log line was written by a program, and this cluster only records drills.",
        ),
        (
            {"cluster": {"decision_mode": "external"}},
            "This cluster leaves every decision to an external system (decision_mode external).",
        ),
    ],
)
def test_no_rule_is_matched_for_faults_that_are_not_acted_on(facts: dict[str, Any], because: str) -> None:
    judged = decide.decide(situation(**facts))
    assert tuple(map(str, judged.because)) == (because,)
    assert judged == decide.Decision(answer="none", because=judged.because, mode="enforce")


def test_the_reasons_for_matching_no_rule_have_a_fixed_order() -> None:
    everything = {
        "node": {"known": False, "gpus": 0},
        "fault": {"drill": True},
        "cluster": {"drills": "record", "decision_mode": "external", "mode": "shadow"},
    }
    judged = decide.decide(situation(**everything))
    assert "has no node gpu-1" in str(judged.because[0])
    assert judged.mode == "shadow"
    assert "has no GPUs" in weigh(**{**everything, "node": {"gpus": 0}})[1][0]
    assert "drill" in weigh(**{**everything, "node": {}})[1][0]


@pytest.mark.parametrize(
    "facts",
    [
        {"node": {"gpus": 1}},
        {"fault": {"drill": True}},
        {"cluster": {"drills": "record"}},
        {"cluster": {"decision_mode": "both"}},
        {"node": {"labels": {"kcover.io/exclude": "false"}}},
        {"node": {"recent_rescues": 99}},
        {"node": {"isolated_by": 3, "isolated_plan": "another"}},
        {"cluster": {"pause_reason": "old words"}},
    ],
)
def test_rules_that_no_fact_holds_back_open_a_rescue(facts: dict[str, Any]) -> None:
    assert weigh(**facts) == ("rescue", (MATCHES, str(reasons.of("nothing_holds_back"))))


# --- no rule matches


def test_without_a_policy() -> None:
    judged = decide.decide(replace(situation(), rules=()))
    assert judged == decide.Decision(answer="none", because=(reasons.of("no_policy"),), mode="enforce")


def test_every_rule_that_does_not_match_has_a_reason() -> None:
    rules = (candidate(codes=("48",)), candidate(codes=("63",), index=1))
    judged = decide.decide(situation(*rules))
    assert (judged.answer, judged.rule, judged.steps) == ("none", None, ())
    assert tuple(map(str, judged.because)) == (
        "Rule heal#1 does not apply. It covers 48, not 62.",
        "Rule heal#2 does not apply. It covers 63, not 62.",
    )
    assert [one.matched for one in judged.tried] == [False, False]


def test_the_cause_and_the_labels_reach_the_rules() -> None:
    anyone = candidate(codes=None)
    assert weigh(anyone)[0] == "rescue"
    assert weigh(anyone, fault={"cause": 149})[0] == "none"
    chosen = candidate(operator="all", labels={"a": "b"})
    assert weigh(chosen)[0] == "none"
    assert weigh(chosen, node={"labels": {"a": "b"}})[0] == "rescue"


# --- what holds a matching rule back, in order

HOLDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "none",
        {"node": {"labels": {"kcover.io/exclude": "true"}}},
        "Node gpu-1 is excluded (label kcover.io/exclude=true).",
    ),
    ("hold", {"cluster": {"mode": "paused", "pause_reason": "storm"}}, "Automation is paused: storm"),
    ("hold", {"node": {"open_rescue": 7}}, "Rescue 7 must finish first. A node has one rescue at a time."),
    (
        "hold",
        {"node": {"left_to_people": 6}},
        str(reasons.of("left_to_people", rescue="6")),
    ),
    (
        "hold",
        {"node": {"unshown_boot": "b0a7c1de-1"}},
        str(reasons.of("boot_not_shown", boot="b0a7c1de-1")),
    ),
    (
        "none",
        {"node": {"isolated_by": 5, "isolated_plan": plan.digest(plan.of_rule(REBOOTS.rule, code="62"))}},
        str(reasons.of("done_already", rescue="5")),
    ),
    (
        "hold",
        {"node": {"recent_rescues": 5}},
        "Rescues rebooted this node, or reset one of its GPUs, 5 times within 7 d. An operator must inspect it.",
    ),
    ("shadow", {"cluster": {"installation_mode": "shadow"}}, str(reasons.of("shadow"))),
    (
        "approve",
        {"cluster": {"installation_mode": "approve", "isolate_before_approval": False}},
        "Approve mode: approval required.",
    ),
]


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        for key, facts in part.items():
            whole[key] = {**whole.get(key, {}), **facts}
    return whole


@pytest.mark.parametrize("place", range(len(HOLDS)))
def test_facts_that_hold_a_rule_back_are_named(place: int) -> None:
    answer, facts, because = HOLDS[place]
    judged = decide.decide(situation(REBOOTS, **facts))
    assert (judged.answer, tuple(map(str, judged.because))) == (answer, (MATCHES, because))
    assert (judged.rule, judged.policy, judged.revision) == ("heal#1", "heal", 4)
    assert [step.name for step in judged.steps] == ["cordon", "drain", "reboot", "ready", "verify"]


@pytest.mark.parametrize("place", range(len(HOLDS) - 1))
def test_the_earlier_reason_wins(place: int) -> None:
    answer, facts, because = HOLDS[place]
    later = [reason[1] for reason in HOLDS[place + 1 :]]
    assert weigh(REBOOTS, **merged(*later, facts)) == (answer, (MATCHES, because))


def test_a_pause_without_a_reason() -> None:
    assert weigh(cluster={"mode": "paused"}) == ("hold", (MATCHES, "Automation is paused."))


def test_a_handful_of_reboots_is_enough() -> None:
    assert weigh(REBOOTS, node={"recent_rescues": 4})[0] == "rescue"
    assert weigh(REBOOTS, node={"recent_rescues": 5})[0] == "hold"
    assert weigh(REBOOTS, node={"recent_rescues": 6})[0] == "hold"


def test_a_wider_plan_continues_on_the_marks_of_a_smaller_one() -> None:
    cordoned = plan.digest(plan.of_rule(candidate().rule, code="62"))
    facts = {"node": {"isolated_by": 5, "isolated_plan": cordoned}}
    assert weigh(candidate(), **facts)[0] == "none"
    assert weigh(REBOOTS, **facts)[0] == "rescue"


# --- modes


@pytest.mark.parametrize(
    ("named", "wins"),
    [
        (("enforce",), "enforce"),
        (("enforce", "approve"), "approve"),
        (("approve", "shadow", "enforce"), "shadow"),
        (("shadow", "paused", "approve"), "paused"),
    ],
)
def test_the_strictest_mode_wins(named: tuple[str, ...], wins: str) -> None:
    assert modes.strictest(*named) == wins


@pytest.mark.parametrize("place", ["installation_mode", "mode", "rule"])
@pytest.mark.parametrize(("mode", "answer"), [("shadow", "shadow"), ("approve", "approve"), ("enforce", "rescue")])
def test_each_of_three_modes_can_be_the_strictest(place: str, mode: str, answer: str) -> None:
    rule = candidate(mode=mode if place == "rule" else "enforce")
    cluster = {} if place == "rule" else {place: mode}
    judged = decide.decide(situation(rule, cluster={"isolate_before_approval": False, **cluster}))
    assert (judged.answer, judged.mode) == (answer, mode)


CORDON, DRAIN = document.Action(name="cordon"), document.Action(name="drain")
NOTIFY, STOP_JOBS = document.Action(name="notify"), document.Action(name="stopJobs")
LABEL = document.Action(name="label", attribute={"key": "nvidia.com/mig.config"})


@pytest.mark.parametrize(
    ("rule", "isolate_first", "expected"),
    [
        ({"actions": (CORDON, DRAIN)}, True, ("approve", "approve_after_isolation")),
        ({"actions": (CORDON, DRAIN)}, False, ("approve", "approve")),
        ({"actions": (CORDON,)}, True, ("rescue", "approve_isolates_only")),
        ({"actions": (CORDON,)}, False, ("approve", "approve")),
        ({"actions": (CORDON,), "approval": document.Approval()}, True, ("approve", "approve")),
        ({"actions": (CORDON, LABEL)}, True, ("approve", "approve_after_isolation")),
        ({"actions": (LABEL,)}, True, ("approve", "approve")),
        ({"actions": (NOTIFY, STOP_JOBS)}, True, ("approve", "approve_after_notice")),
    ],
)
def test_in_approve_mode_a_plan_that_only_isolates_needs_no_approval(
    rule: dict[str, Any], isolate_first: bool, expected: tuple[str, str]
) -> None:
    cluster = {"mode": "approve", "isolate_before_approval": isolate_first}
    judged = decide.decide(situation(candidate(**rule), cluster=cluster))
    assert (judged.answer, judged.because[-1].code) == expected


def test_a_rule_cannot_loosen_its_cluster() -> None:
    stops = {"mode": "approve", "isolate_before_approval": False}
    judged = decide.decide(situation(candidate(mode="enforce"), cluster=stops))
    assert (judged.answer, judged.mode) == ("approve", "approve")
    assert decide.decide(situation(candidate(mode="shadow"), cluster={"mode": "approve"})).answer == "shadow"


def test_a_decision_without_a_rule_has_the_mode_of_the_place() -> None:
    judged = decide.decide(situation(candidate(codes=("48",), mode="shadow"), cluster={"mode": "approve"}))
    assert (judged.answer, judged.mode) == ("none", "approve")


def test_every_answer_is_a_known_one() -> None:
    answers = {answer for answer, _, _ in HOLDS} | {"rescue"}
    assert answers == set(decide.ANSWERS)


def test_a_rule_may_require_an_approval() -> None:
    asks = candidate(approval=document.Approval())
    assert weigh(asks) == ("approve", (MATCHES, "The rule requires approval first."))
    stops = {"mode": "approve", "isolate_before_approval": False}
    assert weigh(asks, cluster=stops)[1][1] == "Approve mode: approval required."
    assert weigh(asks, cluster={"mode": "shadow"})[0] == "shadow"


# --- repeats and the ladder

SOME = {"recent_rescues": 2, "reboots_for_code": 2}


def test_inv_35_the_limit_of_reboots_is_a_setting() -> None:
    repeats = {"repeats": {"limit": 2, "window": 3600}}
    assert weigh(REBOOTS, node=SOME, settings=repeats) == (
        "hold",
        (
            MATCHES,
            "Rescues rebooted this node, or reset one of its GPUs, 2 times within 1 h. An operator must inspect it.",
        ),
    )
    assert weigh(REBOOTS, node={"recent_rescues": 1}, settings=repeats)[0] == "rescue"
    assert weigh(candidate("drain"), node=SOME, settings=repeats)[0] == "rescue"


def test_the_ladder_ends_at_an_inspection() -> None:
    ladder = {"ladder": {"reboots": 2, "window": 3 * 86400}}
    assert weigh(REBOOTS, node=SOME, settings=ladder) == (
        "hold",
        (MATCHES, "2 reboots within 3 d did not fix Xid 62. The hardware must be inspected."),
    )
    assert weigh(REBOOTS, node={"reboots_for_code": 3}, settings=ladder)[0] == "hold"
    assert weigh(REBOOTS, node={"reboots_for_code": 1}, settings=ladder)[0] == "rescue"
    assert weigh(candidate("drain"), node=SOME, settings=ladder)[0] == "rescue"


def test_repeats_hold_only_if_they_were_counted() -> None:
    one = {"ladder": {"reboots": 1}, "repeats": {"limit": 1}}
    assert weigh(REBOOTS, settings=one)[0] == "rescue"


def test_the_ladder_is_off_unless_set() -> None:
    assert weigh(REBOOTS, node={"reboots_for_code": 99})[0] == "rescue"


def test_repeats_are_named_before_the_ladder_and_both_before_the_guards() -> None:
    both = {"ladder": {"reboots": 2}, "repeats": {"limit": 2}, "breaker": {"limit": 1}}
    full = counted(isolated_lately=1)
    assert held_by(node=SOME, settings=both, counts=full) == "reboots_repeat"
    assert held_by(node={"reboots_for_code": 2}, settings=both, counts=full) == "inspection"
    assert held_by(settings=both, counts=full) == "breaker"


def held_by(**facts: Any) -> str:
    """The code of the first reason that holds back a rule with a reboot."""
    return decide.decide(situation(REBOOTS, **facts)).because[1].code


# --- guards

TRIPPED = {"settings": {"breaker": {"limit": 1}, "budget": {"limit": 1}}, "counts": counted(isolated_lately=1)}
BREAKER = "Breaker tripped: 1 of 100 nodes were isolated within 5 min (limit 1)."


@pytest.mark.parametrize("mode", ["shadow", "approve", "enforce"])
def test_the_guards_are_weighed_in_every_mode(mode: str) -> None:
    judged = decide.decide(situation(candidate(mode=mode), **TRIPPED))
    assert (judged.answer, judged.mode) == ("hold", mode)
    assert tuple(map(str, judged.because)) == (MATCHES, BREAKER)
    assert [one.code for one in judged.passed] == ["no_maintenance", "no_storm", "budget_left"]
    assert judged.again_at == NOW + timedelta(seconds=15)
    assert judged.storm is None
    assert (judged.rule, judged.policy, judged.revision) == ("heal#1", "heal", 4)
    assert [step.name for step in judged.steps] == ["cordon"]
    assert [one.rule for one in judged.tried] == ["heal#1"]


def test_every_guard_that_holds_is_named() -> None:
    full = counted(isolated_lately=1, slots=guards.Slots(by="cluster", name="x", eligible=9, taken=1))
    judged = decide.decide(situation(settings=TRIPPED["settings"], counts=full))
    assert [one.code for one in judged.because] == ["rule_matches", "breaker", "budget"]


def test_passed_guards_are_kept_with_the_decision() -> None:
    judged = decide.decide(situation(counts=counted()))
    assert (judged.answer, judged.again_at, judged.storm) == ("rescue", None, None)
    assert [one.code for one in judged.passed] == ["no_maintenance", "no_storm", "breaker_closed"]


def test_without_counts_no_guard_is_evaluated() -> None:
    judged = decide.decide(situation(settings=TRIPPED["settings"]))
    assert (judged.answer, judged.passed) == ("rescue", ())


@pytest.mark.parametrize("action", ["cordon", "taint", "drain"])
def test_plans_that_take_the_node_away_are_weighed(action: str) -> None:
    assert weigh(candidate(action), **TRIPPED)[0] == "hold"


def test_plans_that_take_no_node_away_skip_the_guards() -> None:
    judged = decide.decide(situation(candidate(actions=(), escalate="look"), **TRIPPED))
    assert (judged.answer, judged.passed) == ("rescue", ())


def test_a_storm_is_named_so_that_there_is_one_incident_of_it() -> None:
    everywhere = guards.Symptom(trait="code", kind="xid", value="62", nodes=3)
    judged = decide.decide(situation(counts=counted(symptoms=(everywhere,))))
    assert (judged.answer, judged.because[1].code) == ("hold", "storm_code")
    assert judged.storm == guards.Storm(symptom=everywhere, reached=3, eligible=100)


def test_a_rules_own_limits_are_weighed() -> None:
    rule = candidate(budget=limits.Limit(count=1), cooldown=timedelta(hours=1))
    places = guards.Slots(by="rule", name="heal#1", eligible=9, taken=1)
    full = counted(rules={"heal#1": guards.RuleFacts(slots=places, last_ended_at=NOW)})
    judged = decide.decide(situation(rule, counts=full))
    assert [one.code for one in judged.because] == ["rule_matches", "budget", "rule_cooldown"]
    assert judged.again_at == NOW + timedelta(minutes=5)


def test_an_open_rescue_of_the_node_is_named_before_the_guards() -> None:
    assert "must finish first" in weigh(node={"open_rescue": 7}, **TRIPPED)[1][1]


PLACES = range(len(HOLDS))


@pytest.mark.parametrize("place", [place for place in PLACES if HOLDS[place][0] in ("none", "hold")])
def test_a_situation_decided_before_the_guards_needs_no_counts(place: int) -> None:
    facts = HOLDS[place][1]
    held = situation(REBOOTS, **facts)
    assert not needs_counts(held)
    full = counted(isolated_lately=99, symptoms=(guards.Symptom(trait="code", kind="xid", value="62", nodes=50),))
    assert decide.decide(replace(held, counts=full)) == decide.decide(held)


@pytest.mark.parametrize("place", [place for place in PLACES if HOLDS[place][0] not in ("none", "hold")])
def test_guards_are_evaluated_in_shadow_and_approve_mode_too(place: int) -> None:
    assert needs_counts(situation(REBOOTS, **HOLDS[place][1]))


def test_counts_are_required_where_a_rule_matches_in_every_decision_mode() -> None:
    assert needs_counts(situation())
    assert needs_counts(situation(cluster={"decision_mode": "external"}))
    assert not needs_counts(situation(candidate(codes=("79",))))


def needs_counts(facts: decide.Situation) -> bool:
    """Returns whether the facts of this situation need counts."""
    chosen = decide.match_rules(facts).candidate
    return chosen is not None and decide.needs_counts(facts, chosen)


def test_the_result_of_a_queried_external_decider_lifts_the_external_mode() -> None:
    facts = situation(cluster={"decision_mode": "external"})
    assert decide.decide(facts).because == (reasons.of("left_to_external"),)
    assert decide.decide(replace(facts, external_queried=True)).answer == "rescue"


def test_a_match_that_was_computed_before_gives_the_same_decision() -> None:
    facts = situation()
    assert decide.decide(replace(facts, matched=decide.match_rules(facts))) == decide.decide(facts)


# --- again, and never again


@pytest.mark.parametrize("place", [place for place, one in enumerate(HOLDS) if one[0] == "hold"])
def test_a_hold_has_the_time_of_the_next_decision(place: int) -> None:
    judged = decide.decide(situation(REBOOTS, **HOLDS[place][1]))
    assert judged.again_at == NOW + timedelta(seconds=15)


@pytest.mark.parametrize("place", [place for place, one in enumerate(HOLDS) if one[0] != "hold"])
def test_other_decisions_have_no_next_time(place: int) -> None:
    assert decide.decide(situation(REBOOTS, **HOLDS[place][1])).again_at is None


DAY = timedelta(hours=24)
EXPIRING: list[dict[str, Any]] = [
    {"cluster": {"mode": "paused"}},
    {"cluster": {"mode": "paused", "pause_reason": "x"}},
    {"node": {"recent_rescues": 5}},
    {"node": {"reboots_for_code": 1}, "settings": {"ladder": {"reboots": 1}}},
    TRIPPED,
]


@pytest.mark.parametrize("facts", EXPIRING)
def test_inv_32_a_held_decision_expires(facts: dict[str, Any]) -> None:
    fresh = decide.decide(situation(REBOOTS, fault={"last_seen_at": NOW - DAY}, **facts))
    assert fresh.answer == "hold"
    stale = decide.decide(situation(REBOOTS, fault={"last_seen_at": NOW - DAY - timedelta(seconds=1)}, **facts))
    assert (stale.answer, stale.again_at) == ("none", None)
    assert stale.because[:-1] == fresh.because
    assert str(stale.because[-1]) == (
        "Last seen at 2026-11-20 07:59:59 UTC, more than 1 d ago. The action that was held back is dropped."
    )


@pytest.mark.parametrize("facts", [{"open_rescue": 7}, {"left_to_people": 6}])
def test_a_decision_that_waits_for_a_rescue_or_a_person_does_not_expire(facts: dict[str, Any]) -> None:
    assert weigh(node=facts, fault={"last_seen_at": NOW - 9 * DAY})[0] == "hold"


def test_a_decision_that_nothing_holds_back_never_expires() -> None:
    assert weigh(fault={"last_seen_at": NOW - 9 * DAY})[0] == "rescue"


def test_the_expiry_of_a_held_decision_is_a_setting() -> None:
    facts: dict[str, Any] = {"cluster": {"mode": "paused"}, "settings": {"expiry": 60}}
    assert weigh(fault={"last_seen_at": NOW - timedelta(seconds=60)}, **facts)[0] == "hold"
    assert weigh(fault={"last_seen_at": NOW - timedelta(seconds=61)}, **facts)[0] == "none"
