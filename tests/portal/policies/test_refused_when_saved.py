"""Attributes that a text must not have any more: it cannot be saved, and what was saved before stays in force."""

from datetime import datetime

import pytest

from kcover_portal.policies import queries, services

pytestmark = pytest.mark.django_db


def text(action: str, key: str) -> str:
    return (
        "apiVersion: kcover.io/v1\nkind: RescuePolicy\nmetadata: {name: heal}\nspec:\n  rules:\n    - priority: 1\n"
        f'      errorCode: ["48"]\n      actions:\n        - name: {action}\n          attribute: {{key: {key}}}\n'
    )


@pytest.mark.parametrize(
    ("action", "key", "code"),
    [
        ("label", "node.kubernetes.io/gpu-broken", "label_of_kubernetes"),
        ("label", "node-role.kubernetes.io/master", "label_of_kubernetes"),
        ("taint", "node-role.kubernetes.io/control-plane", "taint_of_control_plane"),
        ("taint", "CriticalAddonsOnly", "taint_of_control_plane"),
    ],
)
def test_a_text_with_a_key_of_kubernetes_is_refused_at_its_place(action: str, key: str, code: str) -> None:
    [problem] = services.validate(text(action, key)).problems
    assert (problem.reason.code, problem.line) == (code, 10)


def test_a_policy_that_was_saved_before_stays_in_force(now: datetime) -> None:
    [row] = services.apply(text("label", "pool"), author="user:anna", reason="test", now=now)
    revision = row.revisions.get()
    revision.document["spec"]["rules"][0]["actions"][0]["attribute"]["key"] = "node.kubernetes.io/x"
    revision.save()
    assert [candidate.name for candidate in queries.candidates()] == ["heal#1"]
