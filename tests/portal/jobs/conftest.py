"""Fixtures: a cluster with training jobs."""

from collections.abc import Iterator

import pytest

from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue.operators import WithOperators


@pytest.fixture
def world(db: None) -> Iterator[JobWorld]:
    one = JobWorld(policy="", nodes=3, fake=WithOperators)
    yield one
    one.uninstall()
