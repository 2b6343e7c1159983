"""A pytest plug-in (``-p tests.isolation``): each xdist worker gets its own Redis, tests that share one running
installation run on the same worker, and in a whole run most workers have SQLite.

pytest-django gives every worker its own database, but a broker and its channels have no names per worker. The hook
wraps the loading of the first conftests, because pytest-django reads the settings and the environment there.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import databases, servers
from tests.story import forks

# Folders and files whose tests share something that is dear to make, most of them one product. (xdist's own groups do
# nothing under pytest 9.2: pytest-xdist #1386.)
SHARING = (
    *("tests/browser/", "tests/crash/test_matrix.py", "tests/story/test_serve.py", "tests/story/seeds/"),
    *("tests/portal/accounts/oidc/test_real_provider.py", "tests/portal/anchors/test_bucket.py"),
    *("tests/portal/api/test_garbage.py", "tests/portal/api/test_schema.py"),
    *("tests/portal/operate/test_slow_clients.py", "tests/portal/sources/test_monitoring.py"),
    "tests/simulator/test_world_serve.py",
    "tests/test_sentence_arguments.py",  # the code as it was parsed
)

_own: list[servers.Redis] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" in os.environ and os.environ.get("KCOVER_REDIS_URL"):
        own = servers.Redis().start()
        _own.append(own)
        os.environ["KCOVER_REDIS_URL"] = own.url
    with databases.settings_read_it():
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(forks.VARIABLE, "yes")
    databases.split(config)


class Scheduler(LoadScopeScheduling):
    """Gives tests away one by one, but those that share a product together, each to a worker with its database.

    Every second worker begins with the tests that mostly wait (tests/places.py), and the other workers have the
    processor meanwhile. In a whole run these workers have SQLite (tests/databases.py).
    """

    _queues: databases.Queues | None = None

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in SHARING if nodeid.startswith(place)), nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._queues is None:
            self._queues = databases.Queues(self.workqueue, split=databases.are_split())
        scope = self._queues.next_for(node.gateway.id)
        if scope is None:  # what is left needs PostgreSQL
            node.shutdown()
            return
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forgets what is done. xdist keeps it, and counts all of it again after each test."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        unit = self.assigned_work[node][scope]
        unit[nodeid] = True
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def pytest_unconfigure() -> None:
    while _own:
        _own.pop().close()
