"""Validation of large texts: its cost grows with the text, not with its square."""

import pytest

from kcover_portal.policies import services
from tests import work

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
def test_the_work_of_validating_grows_linearly_with_the_rules(rule: str, overlaps: bool) -> None:
    count = POOLS if SELECTOR in rule else RULES
    few = work.calls(lambda: services.validate(text(rule, count // 4)))
    twice = work.calls(lambda: services.validate(text(rule, count // 2)))
    validated = services.validate(text(rule, count))
    assert not validated.problems
    codes = {warning.reason.code for warning in validated.warnings}
    assert ("overlaps_left_out" in codes) is (len(validated.warnings) > 1000 and overlaps)
    assert len([one for one in validated.warnings if one.reason.code in ("same_priority", "rule_covered")]) <= 1000
    assert twice < 2.1 * few  # comparing each rule with each other one is four times the work for twice the rules
