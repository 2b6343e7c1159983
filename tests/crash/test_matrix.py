"""Each step and each failure once; `make crash` tries every step with every failure and writes docs/reliability.md."""

from pathlib import Path

import pytest

from tests.crash import batch, installation, points, verdicts


@pytest.mark.timeout(1800)  # about 85 s on two cores of their own, most of it leases
def test_inv_13_14_16_17_struck_at_every_step_a_rescue_ends_well_and_does_nothing_twice(tmp_path: Path) -> None:
    with installation.running(tmp_path) as product:
        trials = batch.run(product, points.sample(), seconds=900)
        verdicts.judge(product, trials, product.audit())
        wrong = {str(trial.case or trial.plan): trial.wrong for trial in trials if trial.wrong}
    assert not wrong, "\n".join(f"{case}: {'; '.join(texts)}" for case, texts in wrong.items())
