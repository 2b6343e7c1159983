"""Reasons that the engine builds have no English in their parameters: real facts, votes and changes in Chinese.

The names that a test gives have no Latin letter, so each Latin word comes from the code.
"""

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import translation

from kcover import audit, reasons
from kcover.decisions import approval, guards
from kcover.faults import fault
from kcover.plans import plan
from kcover.policy import modes
from kcover.values import limits
from kcover_portal.fleet.models import Command, PendingChange
from kcover_portal.lib import localization
from kcover_portal.rescue.control import callbacks
from tests.codes import all_codes_of
from tests.portal.console import kept_words

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TYPED = (*fault.INCIDENT_KINDS, guards.EXCLUDE_LABEL)  # as policies and labels have them
NAMES = re.compile(rf"\b({'|'.join(map(re.escape, TYPED))})\b")
ALL_ON = guards.parse(
    {"budget": {"limit": 1}, "floor": {"percent": 80}, "cooldown": 60, "breaker": {"limit": 2}, "storm": {"nodes": 2}}
)
RULE = guards.RuleLimits(name="规则", budget=limits.Limit(count=1), cooldown=HOUR)


def english(found: Iterable[reasons.Reason]) -> list[str]:
    """The English words in the Chinese texts of these reasons."""
    words = []
    for reason in found:
        with translation.override("zh-hans"):
            text = NAMES.sub("", localization.say(reason))
        words += kept_words.english_words(text, *all_codes_of(reason))
    return words


def facts(*, troubled: bool, slots: guards.Slots, scope: str = "all", trait: str = "code") -> guards.Facts:
    """Facts by which every guard holds (``troubled``), or none."""
    names = {"all": "", "cluster": "东", "pool": "", "node": "节点"}
    covers = None if scope in names else True
    name = names.get(scope, "甲")
    window = guards.Maintenance(start=NOW - HOUR, end=NOW + HOUR, scope=scope, name=name, covers=covers)
    return guards.Facts(
        cluster="东",
        node="节点",
        eligible=10,
        isolated_lately=9 if troubled else 0,
        slots=slots,
        pool=guards.Pool(name="", eligible=10, healthy=8 if troubled else 10),
        labels={guards.EXCLUDE_LABEL: "true"} if troubled else {},
        symptoms=(guards.Symptom(trait=trait, kind="xid" if trait == "code" else "", value="62", nodes=9),)
        if troubled
        else (),
        faulty=guards.FaultyNodes(ten_minutes=9 if troubled else 0),
        last_rescue_ended_at=NOW if troubled else None,
        maintenance=(window,) if troubled else (),
        rules={"规则": guards.RuleFacts(slots=replace(slots, by="rule", name="规则"), last_ended_at=NOW)},
    )


def weighed(found: guards.Facts) -> list[reasons.Reason]:
    verdicts = [
        guards.isolation(ALL_ON, found, now=NOW, rule=RULE, overrides=overrides)
        for overrides in ({}, dict.fromkeys(guards.GUARDS, "安娜"))
    ]
    verdicts += [guards.destructive(ALL_ON, found, act=act, now=NOW) for act in ("drain", "reset", "reboot")]
    verdicts.append(guards.isolation(ALL_ON, replace(found, hardware=True), now=NOW, rule=RULE))
    return [reason for one in verdicts for reason in (*one.held, *one.passed, *one.overridden)]


@pytest.mark.parametrize("troubled", [True, False])
@pytest.mark.parametrize(
    ("by", "name"), [("cluster", "东"), ("pool", "池"), ("pool", ""), ("label", "机架=7"), ("rule", "规则")]
)
def test_budgets(by: str, name: str, *, troubled: bool) -> None:
    slots = guards.Slots(by=by, name=name, eligible=10, taken=9 if troubled else 0)
    assert english(weighed(facts(troubled=troubled, slots=slots))) == []


@pytest.mark.parametrize("scope", guards.SCOPES)
@pytest.mark.parametrize("trait", guards.TRAITS)
def test_windows_and_storms(scope: str, trait: str) -> None:
    slots = guards.Slots(by="cluster", name="东", eligible=10, taken=9)
    assert english(weighed(facts(troubled=True, slots=slots, scope=scope, trait=trait))) == []


SUBJECT = approval.Subject(rescue=7, step=2, plan_hash="1", node="节点", uid="2")
VOTE = approval.Vote(subject=SUBJECT, approved=True, by="安娜", at=NOW)
REQUEST = approval.Request(subject=SUBJECT, requested_by="卡尔", requested_at=NOW, holds=HOUR, approvers=2)


@pytest.mark.parametrize("part", [field.name for field in fields(approval.Subject)])
def test_approvals_of_another_subject(part: str) -> None:
    other = replace(SUBJECT, **{part: "3" if isinstance(getattr(SUBJECT, part), str) else 3})
    answers = [
        approval.check(REQUEST, [VOTE], actual=other, healed=False, now=NOW),
        approval.check(REQUEST, [replace(VOTE, subject=other)], actual=SUBJECT, healed=False, now=NOW),
    ]
    assert english(reason for answer in answers for reason in answer.because) == []


@pytest.mark.parametrize(
    "changes", [{}, {"by": "卡尔"}, {"approved": False}, {"approved": False, "reason": "不"}, {"at": NOW - HOUR}]
)
@pytest.mark.parametrize("after", [timedelta(), 2 * HOUR])
def test_votes(changes: dict[str, Any], after: timedelta) -> None:
    votes = [VOTE, replace(VOTE, **{"by": "本", **changes})]
    answer = approval.check(REQUEST, votes, actual=SUBJECT, healed=False, now=NOW + after)
    assert english(answer.because) == []


@pytest.mark.parametrize("seconds", [1, 60, 3600, 86400])
def test_durations(seconds: int) -> None:
    assert english([reasons.of("try_too_long", most=reasons.span(timedelta(seconds=seconds)))]) == []


@pytest.mark.parametrize("verb", plan.VERBS)
def test_requests(verb: str) -> None:
    assert plan.manual(verb)
    assert english([reasons.of("replaced_by_request", by="安娜", act=reasons.of(f"act_{verb}"))]) == []


@pytest.mark.parametrize("mode", modes.MODES)
def test_modes_are_named_in_chinese(mode: str) -> None:
    assert english([reasons.of("claim_not_written", mode=reasons.of(f"mode_{mode}"))]) == []


STATES = {*Command.State.values, *PendingChange.State.values, *fault.RESULT_STATUSES, *callbacks.OUTCOMES} - {"open"}


@pytest.mark.parametrize("state", sorted(STATES))
def test_states_are_named_in_chinese(state: str) -> None:
    late = audit.CommandAnsweredLate(rescue=1, node="节点", command="1", kind="reboot", key="1", status=state)
    said = [late, replace(late, message="好"), replace(late, withdrawn=True)]
    closed = reasons.of("change_closed", change="1", state=reasons.state(state))
    assert english([closed, *(one.explanation for one in said)]) == []
