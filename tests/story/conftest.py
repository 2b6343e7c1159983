"""Fixtures: the running product, on PostgreSQL with Redis or on SQLite."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases, migrated
from tests.share import leave_out
from tests.story import product as products, turns

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the stories of this run, each in one of the two places."""
    whole = databases.is_whole()
    leave_out(config, items, lambda item: FOLDER in item.path.parents and not _in_turn(item, whole=whole))


def _in_turn(item: pytest.Item, *, whole: bool) -> bool:
    given = getattr(item, "callspec", None)  # of a test with parameters
    place = next((value for value in (given.params.values() if given else ()) if value in turns.PLACES), None)
    return turns.in_turn(item.path.name, place, whole=whole)


@contextlib.contextmanager
def place(name: str, folders: pytest.TempPathFactory) -> Iterator[products.Product]:
    """A product that is not set up yet, on one set of parts."""
    folder = folders.mktemp(name)
    if name == "sqlite":
        with products.on_sqlite(folder, migrated_file=migrated.sqlite_file(folders)) as made:
            yield made
        return
    if not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"):
        pytest.skip("needs the PostgreSQL that `make test` starts")
    with products.on_postgres(folder) as made:
        yield made


@pytest.fixture(params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[products.Product]:
    """A product that is not set up yet; call ``set_up`` with what the story needs."""
    with place(request.param, tmp_path_factory) as made:
        yield made
