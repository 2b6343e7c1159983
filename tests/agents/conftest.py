import pytest

from tests.agents.server import FakePortal


@pytest.fixture
def portal():
    portal = FakePortal()
    yield portal
    portal.close()
