"""An act that comes between two queries of the code under test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def before_query(text: str, act: Callable[[], None]) -> Iterator[None]:
    """Does ``act`` once, just before the first query that contains ``text``."""
    acts = [act]

    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if text in sql and acts:
            acts.pop()()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield
    assert not acts, f"no query contains {text}"
