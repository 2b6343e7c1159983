"""Fixtures: the running product, on PostgreSQL with Redis and on SQLite."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story import product as products

PLACES = {"postgres": products.on_postgres, "sqlite": products.on_sqlite}


@contextlib.contextmanager
def place(name: str, folder: Path) -> Iterator[products.Product]:
    """A product that is not set up yet, on one set of parts."""
    if name == "postgres" and not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"):
        pytest.skip("needs the PostgreSQL that `make test` starts")
    with PLACES[name](folder) as made:
        yield made


@pytest.fixture(params=sorted(PLACES))
def product(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[products.Product]:
    """A product that is not set up yet; call ``set_up`` with what the story needs."""
    with place(request.param, tmp_path) as made:
        yield made
