"""Fixtures: the running product, on PostgreSQL with Redis and on SQLite."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests import migrated
from tests.story import product as products

PLACES = ("postgres", "sqlite")  # of the walk-throughs; the other stories run on one of them
POSTGRES, SQLITE = ("postgres",), ("sqlite",)


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


@pytest.fixture(params=POSTGRES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[products.Product]:
    """A product that is not set up yet; call ``set_up`` with what the story needs."""
    with place(request.param, tmp_path_factory) as made:
        yield made
