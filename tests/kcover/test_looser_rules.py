"""Rules of a cluster's objects never loosen the portal's own."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kcover.decisions import match
from kcover.decisions.looser_rules import is_looser, loosened_by
from kcover.policy import document

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOGETHER = {"name": "drain", "attribute": {"kueueTogether": "true"}}


def rule(**keys: Any) -> document.Rule:
    given = {"priority": 5, "errorCode": ["62"], "actions": [{"name": "cordon"}], **keys}
    policy = document.read(
        {"apiVersion": document.KCOVER, "kind": document.RESCUE, "metadata": {"name": "x"}, "spec": {"rules": [given]}}
    )
    assert isinstance(policy, document.Policy)
    return policy.rules[0]


def candidate(name: str, **keys: Any) -> match.Candidate:
    return match.Candidate(policy=name, revision=1, created_at=AT, rule=rule(**keys))


@pytest.mark.parametrize(
    ("theirs", "ours", "looser"),
    [
        ({}, {}, False),
        ({"mode": "enforce"}, {"mode": "approve"}, True),
        ({"mode": "shadow"}, {"mode": "approve"}, False),
        ({}, {"approval": {"required": True}}, True),
        ({"approval": {"approvers": 2}}, {"approval": {"required": True}}, False),
        ({"actions": [TOGETHER]}, {"actions": [{"name": "drain"}]}, True),
        ({"actions": [{"name": "drain"}]}, {"actions": [TOGETHER]}, False),
        ({}, {"validate": "light"}, True),
        ({"validate": "light"}, {"validate": "light"}, False),
        ({"validate": "full"}, {"validate": "light"}, False),
        ({"validate": "light"}, {"validate": "full"}, True),
        ({"validate": "auto"}, {"validate": "light"}, False),
        ({"validate": "auto"}, {"validate": "full"}, True),
        ({"validate": "full"}, {"validate": "auto"}, True),
        ({"validate": "burn-in"}, {"validate": "auto"}, False),
        ({"validate": "auto"}, {"validate": "auto"}, False),
        ({"validate": "full"}, {}, False),
        ({}, {"budget": "5%"}, True),
        ({"budget": "5%"}, {"budget": "5%"}, False),
        ({}, {"cooldown": "1h"}, True),
        ({"cooldown": "2h"}, {"cooldown": "1h"}, False),
        ({}, {"match": {"minCount": 3, "within": "1h"}}, True),
        ({"match": {"kinds": ["pod"]}}, {"match": {"kinds": ["pod"], "applicationFaults": False}}, True),
        ({"match": {"kinds": ["pod"], "applicationFaults": False}}, {"match": {"kinds": ["pod"]}}, False),
        ({"match": {"kinds": ["agent"]}}, {"match": {"kinds": ["pod"], "applicationFaults": False}}, False),
    ],
)
def test_what_is_looser(theirs: dict[str, Any], ours: dict[str, Any], looser: bool) -> None:
    assert is_looser(rule(**theirs), rule(**ours)) is looser


@pytest.mark.parametrize(
    ("theirs", "loosens"),
    [
        ({"priority": 9}, True),
        ({"priority": 1}, False),  # tried after it
        ({"priority": 9, "errorCode": ["79"]}, False),  # another fault
        ({"priority": 9, "mode": "shadow"}, False),
        ({"priority": 9, "nodeSelector": {"operator": "all", "labels": {"a": "b"}}}, True),
    ],
)
def test_only_an_earlier_looser_rule_for_the_same_fault_loosens(theirs: dict[str, Any], loosens: bool) -> None:
    own = candidate("own", mode="approve")
    assert (loosened_by(candidate("object", **theirs), [own]) is own) is loosens
