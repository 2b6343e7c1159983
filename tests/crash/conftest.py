"""The product under test, with processes that can be killed one by one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story import product as products


@pytest.fixture
def product(tmp_path: Path) -> Iterator[products.Product]:
    """On PostgreSQL and Redis: only there is the worker a process of its own."""
    if not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"):
        pytest.skip("needs the PostgreSQL that `make test` starts")
    with products.on_postgres(tmp_path) as made:
        yield made
