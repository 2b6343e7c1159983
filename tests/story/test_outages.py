"""Two of every process heal a small cluster while each of them is killed once, and every server fails once.

`python -m tests.crash.outages` is the same at the size of a large cluster.
"""

import os
from pathlib import Path

import pytest

from tests import migrated
from tests.crash import installation, outages
from tests.crash.replicas import Replicas


@pytest.mark.timeout(1200)  # about a minute on two cores of their own, most of it leases and starts of processes
def test_nothing_is_lost_or_done_twice_while_everything_fails_in_turn(tmp_path: Path) -> None:
    if not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"):
        pytest.skip("needs the PostgreSQL that `make test` starts")
    size = outages.Size(nodes=12, faults=4, away=5.0, gap=0.5, mix=("agent", "tell"), seconds=600)
    with installation.running_as(Replicas, tmp_path) as product:
        migrated.copy_to(product.environment["KCOVER_DATABASE_URL"])
        outcome = outages.run(product, size)
        assert not outcome.wrong, "\n".join([*outcome.wrong, product.logs()])
    assert outcome.deliveries >= size.faults
