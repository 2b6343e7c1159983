"""Validation of large texts: its cost grows with the text, not with its square."""

import time

import pytest

from kcover_portal.policies import services

RULES = 1500
POOLS = 900  # a text holds 20,000 values
SELECTOR = "nodeSelector: {{operator: all, labels: {{pool: p{0}}}}}"


def text(rule: str, count: int) -> str:
    head = "apiVersion: kcover.io/v1\nkind: RescuePolicy\nmetadata:\n  name: large\nspec:\n  rules:\n"
    action = "\n      actions:\n        - name: cordon\n"
    return head + "".join(f"    - {rule.format(i, i % 1000 + 1)}{action}" for i in range(count))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rule", "overlaps"),
    [
        (f'priority: 10\n      errorCode: ["62"]\n      {SELECTOR}', False),
        ('priority: 10\n      errorCode: ["62"]', True),
        ('priority: {1}\n      errorCode: ["62"]', True),
        ('priority: {1}\n      errorCode: ["62", "{0}"]', True),
        ('priority: {1}\n      mode: shadow\n      errorCode: ["62"]\n      ' + SELECTOR, False),
    ],
)
def test_many_rules_are_validated_in_a_bounded_time(rule: str, overlaps: bool) -> None:
    began = time.process_time()
    reading = services.validate(text(rule, POOLS if SELECTOR in rule else RULES))
    took = time.process_time() - began
    assert not reading.problems
    codes = {warning.reason.code for warning in reading.warnings}
    assert ("overlaps_left_out" in codes) is (len(reading.warnings) > 1000 and overlaps)
    assert len([one for one in reading.warnings if one.reason.code in ("same_priority", "rule_covered")]) <= 1000
    assert took < 5.0, f"{took:.1f} s; comparing each rule with each other one takes over 30 s"
