"""Strikes each step of each action once with every kind of failure; `make crash` strikes every call with all of them.

One installation serves all tests of this module: it runs the trials in waves, and each test judges those of one step.
A case that was not struck is tried again there (batch.AGAIN); the verdict of one that never is says what it waited for.
"""

import pytest

from tests import migrated
from tests.crash import batch, installation, points, verdicts
from tests.crash.points import FAILURES, KILLED, POINTS
from tests.crash.trials import Trial

SAMPLE = points.sample()
STEPS = list(dict.fromkeys(case.point.step for wave in SAMPLE for case in wave))
# Only a guard against hanging: the first test runs the waves, whose own limits are in tests/crash/batch.py.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """All trials of the sample, with their verdicts."""
    with installation.running(tmp_path_factory.mktemp("crash")) as product:
        migrated.copy_to(product.environment["KCOVER_DATABASE_URL"])
        made = batch.run(product, SAMPLE)
        verdicts.judge(product, made, product.audit())
    for trial in made:
        if trial.repeated:
            print(f"{trial.case} was tried again: {trial.missed}")
    return made


def test_the_sample_strikes_every_call_and_uses_every_failure() -> None:
    cases = [case for wave in points.sample(whole=True) for case in wave]
    killed = {case.point for case in cases if case.failure is KILLED}
    assert [point.call for point in POINTS if point not in killed] == ["POST to a channel"]  # a cheaper failure has it
    assert {case.point.step for case in cases} == {point.step for point in POINTS}
    assert {case.failure for case in cases} == set(FAILURES)
    rows = [point for point in POINTS if point.row]
    assert all({case.after for case in cases if case.point is point} == {False, True} for point in rows)


def test_every_undisturbed_rescue_ends_as_planned(trials: list[Trial]) -> None:
    _judge([trial for trial in trials if trial.case is None])


@pytest.mark.parametrize("step", STEPS)
def test_inv_13_14_16_17_struck_at_every_step_a_rescue_ends_well_and_does_nothing_twice(
    step: str, trials: list[Trial]
) -> None:
    mine = [trial for trial in trials if trial.case is not None and trial.case.point.step == step]
    assert mine
    _judge(mine)


def _judge(trials: list[Trial]) -> None:
    """Fails with all that is wrong with these trials, a line each: an assertion would cut the text short."""
    wrong = [f"{trial.case or trial.plan}: {'; '.join(trial.wrong)}" for trial in trials if trial.wrong]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
