"""Statements that Django builds once and that run many times with other values.

Building a large statement costs Django more than the database needs to execute it (docs/performance.md).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import QuerySet

_FIRST_KEY = 1_900_000_001  # samples of keys: larger than constants in statements, and within 32 bits
_FIRST_MOMENT = datetime(1971, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


class Prepared:
    """A SELECT with named parameters.

    ``build`` returns the query set of ``values()`` for given parameters. It is called once, with sample values that
    stand for the parameters: ``parameters`` names each with its type (int, str or datetime). Parameters must be used as
    they are; ``build`` may not calculate with them or branch on them.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, Any]], parameters: Mapping[str, type]) -> None:
        self._build, self._types = build, parameters
        self._compiled: tuple[str, list[tuple[str, Any]], list[str]] | None = None

    def get(self, **values: Any) -> dict[str, Any]:
        """Executes the statement and returns its first row by the names of its columns. Raises LookupError."""
        sql, parameters, columns = self._compiled or self._compile()
        known = {name: _adapted(value) for name, value in values.items()}
        with connection.cursor() as cursor:
            cursor.execute(sql, [known[name] if name else constant for name, constant in parameters])
            row = cursor.fetchone()
        if row is None:
            raise LookupError("the statement found no row")
        return dict(zip(columns, row, strict=True))

    def _compile(self) -> tuple[str, list[tuple[str, Any]], list[str]]:
        samples = {name: _sample(kind, index) for index, (name, kind) in enumerate(self._types.items())}
        names = {_adapted(sample): name for name, sample in samples.items()}
        query = self._build(**samples).query
        sql, parameters = query.sql_with_params()
        placed = [(names.get(value, "") if _hashable(value) else "", value) for value in parameters]
        missing = set(samples) - {name for name, _ in placed}
        if missing:
            raise ValueError(f"the statement does not use the parameters {', '.join(sorted(missing))}")
        self._compiled = sql, placed, [*query.values_select, *query.annotation_select]
        return self._compiled


def _sample(kind: type, index: int) -> Any:
    if kind is int:
        return _FIRST_KEY + index
    return _FIRST_MOMENT + timedelta(days=index) if kind is datetime else f"parameter {index}"


def _adapted(value: Any) -> Any:
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


def _hashable(value: Any) -> bool:
    return isinstance(value, int | str | datetime)
