from collections.abc import Iterator

import pytest

from tests.portal.rescue.world import World


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World()
    yield made
    made.uninstall()
