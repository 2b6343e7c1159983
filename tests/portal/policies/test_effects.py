"""What publishing a text would switch off."""

import pytest

from kcover import reasons
from kcover_portal.policies import services
from kcover_portal.policies.services import validation
from kcover_portal.policies.services.yaml_reader import Problem

pytestmark = pytest.mark.django_db


def tied(note: reasons.Value) -> reasons.Reason:
    """Two rules have one priority; ``note``: that the second one never runs, or ""."""
    return reasons.of("same_priority", first="a#1", second="b#1", priority=1, fault="xid 62", note=note)


@pytest.mark.parametrize("before", [None, reasons.of("shadow")], ids=["alone", "joined"])
def test_a_rule_that_never_runs_is_an_effect_also_in_a_joined_reason(before: reasons.Reason | None) -> None:
    both_run, one_runs = (
        Problem(1, 1, "spec", reasons.both(before, tied(note)))
        for note in ("", reasons.of("second_never_runs", second="b#1"))
    )
    validated = validation.ValidationResult((), (), (both_run, one_runs))
    assert [found.reason for found in services.effects(validated)] == [one_runs.reason]
