"""Fixtures: the running product, on PostgreSQL with Redis or on SQLite."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import migrated
from tests.share import in_share, leave_out
from tests.story import product as products

PLACES = ("postgres", "sqlite")
FILES = sorted(Path(__file__).parent.glob("test_*.py"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the stories of a file in one of the two places: the commit chooses which. `make verify` has both."""
    leave_out(config, items, lambda item: not _is_in_its_place(item))


def _is_in_its_place(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or item.path not in FILES:
        return True
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    (place,) = [value for value in parameters if value in PLACES] or [None]
    return place is None or in_share(FILES.index(item.path) + PLACES.index(place), shares=len(PLACES))


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
