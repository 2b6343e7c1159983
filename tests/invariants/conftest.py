import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool

import pytest

from bench import soak
from tests import migrated
from tests.portal.rescue.world import HEAL, World

DATABASES = 5  # one part in five is on the database of the tests (PostgreSQL); four are in memory, at half the time


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World()
    yield made
    made.uninstall()


@pytest.fixture
def make() -> Iterator[Callable[..., World]]:
    """Makes worlds with a policy and some nodes, and takes them away at the end."""
    made: list[World] = []

    def world(policy: str = HEAL, *, nodes: int = 1) -> World:
        made.append(World(policy=policy, nodes=nodes))
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


@pytest.fixture(scope="package")
def soak_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A process of the soak, whose database is in memory."""
    file = migrated.sqlite_file(tmp_path_factory)
    with multiprocessing.get_context("spawn").Pool(1, initializer=soak.begin, initargs=(file,)) as pool:
        yield pool
