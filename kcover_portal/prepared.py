"""SELECT statements that Django builds once and that run many times with other values.

Building a large statement costs Django more than the database needs to execute it (docs/performance.md).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import QuerySet
from django.db.models.sql.compiler import SQLCompiler

Row = TypeVar("Row")

_FIRST_KEY = 1_900_000_001  # samples of keys: larger than constants in statements, and within 32 bits
_FIRST_MOMENT = datetime(1971, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


class Prepared(Generic[Row]):
    """A SELECT with named parameters.

    ``build`` returns the query set for given parameters: of instances (also with ``select_related``) or of values. It
    is called once, with sample values that stand for the parameters: ``parameters`` names each with its type (int, str
    or datetime). Parameters must be used as they are; ``build`` may not calculate with them or branch on them.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, Row]], **parameters: type) -> None:
        self._build, self._types = build, parameters
        self._statement: _Statement[Row] | None = None

    def rows(self, **values: Any) -> list[Row]:
        """Executes the statement and returns its rows.

        Raises TransactionManagementError if it locks rows outside of a transaction, as Django does.
        """
        if self._statement is None:
            self._statement = self._compile()
        return list(self._statement.bound(values))

    def first(self, **values: Any) -> Row | None:
        """Executes the statement and returns its first row."""
        return next(iter(self.rows(**values)), None)

    def get(self, **values: Any) -> Row:
        """Executes the statement and returns its first row. Raises LookupError without a row."""
        for row in self.rows(**values):
            return row
        raise LookupError("the statement found no row")

    def _compile(self) -> "_Statement[Row]":
        samples = {name: _sample(kind, index) for index, (name, kind) in enumerate(self._types.items())}
        names = {_adapted(sample): name for name, sample in samples.items()}
        rows = self._build(**samples)
        compiler = rows.query.get_compiler(DEFAULT_DB_ALIAS)
        sql, parameters = compiler.as_sql()
        placed = [(names.get(value, "") if _hashable(value) else "", value) for value in parameters]
        missing = set(samples) - {name for name, _ in placed}
        if missing:
            raise ValueError(f"the statement does not use the parameters {', '.join(sorted(missing))}")
        return _Statement(rows, compiler, sql, placed)


@dataclass(frozen=True)
class _Statement(Generic[Row]):
    """A query set whose compiler has built its statement; ``parameters``: in order, the name of each or a constant."""

    rows: QuerySet[Any, Row]
    compiler: SQLCompiler
    sql: str
    parameters: list[tuple[str, Any]]

    def bound(self, values: Mapping[str, Any]) -> QuerySet[Any, Row]:
        """The query set with these values, which does not build its statement again."""
        connection = connections[DEFAULT_DB_ALIAS]  # of this thread
        if self.rows.query.select_for_update and connection.get_autocommit():
            raise transaction.TransactionManagementError("the statement locks rows: run it in a transaction")
        known = {name: _adapted(value) for name, value in values.items()}
        parameters = tuple(known[name] if name else constant for name, constant in self.parameters)
        compiler = copy.copy(self.compiler)
        compiler.connection = connection
        compiler.as_sql = lambda *_args, **_kwargs: (self.sql, parameters)  # type: ignore[method-assign]
        rows = self.rows.all()
        rows.query.get_compiler = lambda *_args, **_kwargs: compiler  # type: ignore[method-assign]
        return rows


def _sample(kind: type, index: int) -> Any:
    if kind is int:
        return _FIRST_KEY + index
    return _FIRST_MOMENT + timedelta(days=index) if kind is datetime else f"parameter {index}"


def _adapted(value: Any) -> Any:
    if isinstance(value, datetime):
        return connections[DEFAULT_DB_ALIAS].ops.adapt_datetimefield_value(value)
    return value


def _hashable(value: Any) -> bool:
    return isinstance(value, int | str | datetime)
