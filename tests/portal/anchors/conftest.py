"""A real HTTP server that records the requests that it receives."""

from collections.abc import Iterator

import pytest

from tests.portal.notify.receiver import Receiver

SECRET = "s" * 16


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.stop()
