"""Fixtures: the running product, on PostgreSQL with Redis or on SQLite."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases, migrated
from tests.share import in_share, leave_out
from tests.story import product as products

PLACES = ("postgres", "sqlite")
FOLDER = Path(__file__).parent
EVERY_RUN = ("test_serve.py", "test_walkthroughs.py")  # the shortest ways through everything
# The others take turns, one half after the other.
SECOND_HALF = ("test_image.py", "test_live_stop.py", "test_outages.py", "test_parts.py", "test_returns.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the stories of this run, each in one of the two places: the commit chooses. `make verify` has all.

    Who names tests has them all, in one of the two places.
    """
    whole = databases.SPLIT in os.environ
    leave_out(config, items, lambda item: item.path.parent == FOLDER and not _is_in_share(item, whole=whole))


def _is_in_share(item: pytest.Item, *, whole: bool) -> bool:
    given = getattr(item, "callspec", None)  # of a test with parameters
    place = next((PLACES.index(value) for value in (given.params.values() if given else ()) if value in PLACES), None)
    half = int(item.path.name in SECOND_HALF)
    if not whole or item.path.name in EVERY_RUN:
        return place is None or in_share(half + place, shares=2)
    return in_share(half, shares=2) if place is None else in_share(half + 2 * place, shares=4)


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


@pytest.fixture(params=PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[products.Product]:
    """A product that is not set up yet; call ``set_up`` with what the story needs."""
    with place(request.param, tmp_path_factory) as made:
        yield made
