"""Policies rendered as documents, and quotes of long values."""

from typing import Any

import pytest
from hypothesis import given

from kcover.policy import document
from tests.kcover import policy_texts as texts
from tests.kcover.policy_documents import policy, rule_problems, standby


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
                    "applicationFaults": False,
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
def test_a_canonical_document_renders_unchanged(content: dict[str, Any]) -> None:
    assert document.render(document.read(content)) == content


@given(texts.policies())
def test_a_rendered_value_parses_to_the_same(policy: document.Policy | document.StandbyPolicy) -> None:
    assert document.read(document.render(policy)) == policy


def test_defaults_are_not_rendered() -> None:
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
def test_long_values_are_cut_in_messages(fields: dict[str, Any]) -> None:
    found = rule_problems(**fields)
    assert found
    assert all(len(message) < 600 for _, message in found)
