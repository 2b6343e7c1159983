"""A pytest plug-in (``-p tests.isolation``): each xdist worker gets a Redis of its own.

pytest-django gives every worker its own database; a broker and its channels have no such names. The hook wraps the
loading of the first conftests because pytest-django reads the settings, and with them the environment, right there.
"""

import os
from collections.abc import Iterator

import pytest

from tests import servers

_own: list[servers.Redis] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" in os.environ and os.environ.get("KCOVER_REDIS_URL"):
        own = servers.Redis().start()
        _own.append(own)
        os.environ["KCOVER_REDIS_URL"] = own.url
    return (yield)


def pytest_unconfigure() -> None:
    while _own:
        _own.pop().close()
