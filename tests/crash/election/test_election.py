"""Each call of the election struck by SIGKILL, or by each answer somewhere: a run has one of the two waves.

``python -m tests.crash.election`` tries every call with each failure.
"""

import os
from pathlib import Path

import pytest

from kcover_portal.fleet.services import action_lease
from kcover_portal.kube import rights
from tests.crash.election import clusters, names, points, portals, trials
from tests.share import in_share

SHARES = 2
WAVES = [wave for number, wave in enumerate(points.sample()) if in_share(number, shares=SHARES)]


@pytest.mark.timeout(900)  # about 35 s, nearly all of it waiting for Leases
@pytest.mark.skipif(
    not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"), reason="needs PostgreSQL (make test)"
)
def test_struck_at_every_call_one_portal_acts_again_and_never_two(tmp_path: Path) -> None:
    with clusters.running(len(points.CELLS)) as servers, portals.two(tmp_path) as both:
        tried = trials.run(servers, both, WAVES)
    assert {str(trial.case): trial.wrong for trial in tried if trial.wrong} == {}
    assert len(tried) == len(WAVES) * len(points.CELLS)


def test_the_names_are_those_of_the_portal_and_the_short_times_have_the_order_of_its_times() -> None:
    assert (names.LEASE, names.NAMESPACE) == (action_lease.LEASE, rights.LEASE_NAMESPACE)
    for these in (names, action_lease):
        assert these.ACT_SECONDS < these.LEASE_SECONDS < these.GRACE_SECONDS
