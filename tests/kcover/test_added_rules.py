"""Rules that a cluster keeps as objects add to the portal's own rules: they never replace, loosen or hasten one."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover.decisions import match
from kcover.faults import catalog
from kcover.plans import plan
from kcover.policy import document, modes

AT = datetime(2026, 1, 1, tzinfo=UTC)
OLD = AT - timedelta(days=900)
XIDS, SXIDS = ("48", "62", "77", "79", "13", "31"), ("12028", "20034")
PHRASES = {"pod": ("Error", "FailsFirst"), "event": ("XidError", "NodeHang"), "other": ("link-down",)}
LABELS = ({}, {"pool": "a"}, {"pool": "b"}, {"pool": "a", "zone": "z"})
ACTIONS = (
    [{"name": "cordon"}],
    [{"name": "cordon"}, {"name": "drain", "attribute": {"waittime": "1min"}}],
    [{"name": "cordon"}, {"name": "drain", "attribute": {"waittime": "30min"}}, {"name": "reboot"}],
    [{"name": "notify"}],
)


def candidate(name: str, *, added: bool, created_at: datetime = AT, **keys: Any) -> match.Candidate:
    content = {"apiVersion": document.KCOVER, "kind": document.RESCUE, "metadata": {"name": name}}
    policy = document.read({**content, "spec": {"rules": [keys]}})
    assert isinstance(policy, document.Policy)
    return match.Candidate(policy=name, revision=1, created_at=created_at, rule=policy.rules[0], added=added)


def some(rng: random.Random, among: tuple[str, ...]) -> list[str]:
    return rng.sample(among, rng.randint(1, len(among)))


def random_rule(rng: random.Random, name: str, *, added: bool) -> match.Candidate:
    keys: dict[str, Any] = {"priority": rng.choice((0, 5, 9, 100)), "actions": rng.choice(ACTIONS)}
    if rng.random() < 0.7:
        keys["errorCode"] = some(rng, XIDS)
    selected: dict[str, Any] = {}
    if rng.random() < 0.3:
        selected["sxid"] = some(rng, SXIDS)
    if rng.random() < 0.3:
        kind = rng.choice(tuple(PHRASES))
        selected["codes"] = {kind: some(rng, PHRASES[kind])}
    if rng.random() < 0.3:
        selected |= {"kinds": some(rng, ("pod", "event", "xid")), "applicationFaults": rng.random() < 0.5}
    if rng.random() < 0.3:
        selected |= {"minCount": rng.randint(1, 5), "within": rng.choice(("10min", "1h"))}
    if selected:
        keys["match"] = selected
    if rng.random() < 0.4:
        keys["nodeSelector"] = {"operator": rng.choice(("any", "all")), "labels": rng.choice(LABELS[1:])}
    keys["mode"] = rng.choice(modes.RULE_MODES)
    if rng.random() < 0.4:
        keys["approval"] = {"approvers": rng.choice((1, 2))}
    if rng.random() < 0.3:
        keys["cooldown"] = rng.choice(("1h", "1day"))
    return candidate(name, added=added, created_at=OLD if added else AT, **keys)


def random_fault(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("xid", "xid", "sxid", *PHRASES))
    known = {"xid": XIDS, "sxid": SXIDS, **PHRASES}
    return {
        "kind": kind,
        "code": rng.choice(known[kind]),
        "cause": rng.choice((None, None, None, 48)) if kind == "xid" else None,
        "fatal": rng.choice((None, True, False)),
        "application": kind == "pod" or rng.random() < 0.2,
    }


def covers(own: match.Candidate, fault: dict[str, Any], labels: dict[str, str]) -> bool:
    """Returns whether the rule covers this fault on this node, whatever its minimum count is."""
    return match.fault_refusal(own.rule, **fault) is None and match.label_refusal(own.rule, labels) is None


def is_by_program(fault: dict[str, Any]) -> bool:
    if fault["kind"] in ("xid", "sxid"):
        return catalog.is_user_fault(fault["kind"], int(fault["code"]), cause=fault["cause"], fatal=fault["fatal"])
    return fault["application"]


def test_ten_thousand_pairs_an_added_rule_changes_nothing_for_faults_that_an_own_rule_covers() -> None:
    rng = random.Random(20261129)
    covered = added = 0
    for _ in range(10_000):
        own, theirs = random_rule(rng, "own", added=False), random_rule(rng, "theirs", added=True)
        for _ in range(4):
            fault, labels = random_fault(rng), rng.choice(LABELS)
            seen = {600: rng.randint(1, 6), 3600: rng.randint(1, 6)}
            alone, _ = match.match([own], **fault, labels=labels, seen_within=seen)
            both, _ = match.match([theirs, own], **fault, labels=labels, seen_within=seen)
            if covers(own, fault, labels):
                covered += 1
                assert both is alone  # its plan, mode, approval and waits, or nothing at all
            elif both is not None:
                added += 1
                assert both is theirs
                assert not is_by_program(fault)
    assert min(covered, added) > 1_000


def test_an_added_rule_acts_where_no_own_rule_covers() -> None:
    own = candidate("own", added=False, errorCode=["77"], actions=[{"name": "cordon"}])
    theirs = candidate("theirs", added=True, errorCode=["77", "79"], actions=ACTIONS[2], priority=100)
    chosen, tried = match.match([theirs, own], kind="xid", code="79", cause=None, labels={})
    assert chosen is theirs
    assert [step.name for step in plan.of_rule(chosen.rule, code="79")][:2] == ["cordon", "drain"]
    assert [one.rule for one in tried] == ["own#1", "theirs#1"]


def test_an_own_rule_that_waits_to_see_a_fault_more_often_keeps_added_rules_from_it() -> None:
    rare = {"minCount": 3, "within": "1h"}
    own = candidate("own", added=False, errorCode=["77"], match=rare, actions=[{"name": "cordon"}])
    theirs = candidate("theirs", added=True, errorCode=["77"], actions=ACTIONS[2])
    fault = {"kind": "xid", "code": "77", "cause": None, "labels": {}}
    chosen, tried = match.match([own, theirs], **fault, seen_within={3600: 1})
    assert (chosen, tried[-1].because.code) == (None, "object_after_own")
    assert match.match([own, theirs], **fault, seen_within={3600: 3}).candidate is own


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "pod", "code": "FailsFirst", "cause": None, "application": True},
        {"kind": "xid", "code": "13", "cause": None},
        {"kind": "xid", "code": "79", "cause": 48},
    ],
)
def test_an_added_rule_covers_no_application_fault(fault: dict[str, Any]) -> None:
    rule = {"errorCode": ["13", "79"], "match": {"kinds": ["pod"]}, "actions": ACTIONS[2]}
    theirs, own = candidate("theirs", added=True, **rule), candidate("own", added=False, **rule)
    chosen, tried = match.match([theirs], **fault, labels={})
    assert (chosen, tried[-1].because.code) == (None, "object_adds_node_faults_only")
    assert match.match([own], **fault, labels={}).candidate is own


def test_the_digest_distinguishes_added_rules_from_own_rules() -> None:
    rule = {"errorCode": ["79"], "actions": ACTIONS[0]}
    own, theirs = candidate("one", added=False, **rule), candidate("one", added=True, **rule)
    assert match.digest_of((own,)) != match.digest_of((theirs,))


def test_an_added_rule_that_waits_keeps_no_other_added_rule_from_the_fault() -> None:
    rare = {"minCount": 3, "within": "1h"}
    waits = candidate("waits", added=True, errorCode=["77"], match=rare, actions=ACTIONS[2], priority=9)
    theirs = candidate("theirs", added=True, errorCode=["77"], actions=ACTIONS[0])
    chosen, tried = match.match([theirs, waits], kind="xid", code="77", cause=None, labels={}, seen_within={3600: 1})
    assert chosen is theirs
    assert [one.because.code for one in tried] == ["seen_too_seldom", "code_and_labels_match"]


@pytest.mark.parametrize(("fatal", "is_covered"), [(True, True), (False, False)])
def test_the_severity_of_the_line_decides_whether_an_added_rule_covers_a_node_fault(
    fatal: bool, is_covered: bool
) -> None:
    theirs = candidate("theirs", added=True, errorCode=["149"], actions=ACTIONS[0])
    found = match.match([theirs], kind="xid", code="149", cause=None, fatal=fatal, labels={}).candidate
    assert (found is theirs) is is_covered


def test_a_harmless_fault_is_covered_by_an_own_rule_only() -> None:
    rule = {"match": {"codes": {"event": ["NodeHang"]}}, "actions": ACTIONS[0]}
    theirs, own = candidate("theirs", added=True, **rule), candidate("own", added=False, **rule)
    fault = {"kind": "event", "code": "NodeHang", "cause": None, "labels": {}, "harmless": True}
    assert match.match([theirs], **fault).candidate is None
    assert match.match([own], **fault).candidate is own
    whole = candidate("whole", added=False, match={"kinds": ["event"]}, actions=ACTIONS[0])
    chosen, [tried] = match.match([whole], **fault)
    assert (chosen, tried.because) == (None, reasons.of("harmless_report", kind="event", code="NodeHang"))


def test_the_refusal_names_the_own_rule_that_waits() -> None:
    rare = {"minCount": 3, "within": "1h"}
    own = candidate("own", added=False, errorCode=["77"], match=rare, actions=ACTIONS[0])
    theirs = candidate("theirs", added=True, errorCode=["77"], actions=ACTIONS[0])
    _, tried = match.match([own, theirs], kind="xid", code="77", cause=None, labels={}, seen_within={3600: 1})
    assert tried[-1].because == reasons.of("object_after_own", own="own#1")
    assert match.to_json([theirs])[0]["added"] is True
    assert "added" not in match.to_json([own])[0]
