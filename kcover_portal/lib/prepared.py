"""Statements that Django builds once and that run many times with other values.

Building a large statement costs Django more than the database needs to execute it (docs/performance.md).
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model, QuerySet, Value
from django.db.models.expressions import Expression
from django.db.models.sql import UpdateQuery
from django.db.models.sql.compiler import SQLCompiler

Row = TypeVar("Row")
Instance = TypeVar("Instance", bound=Model)

MAX_ROWS = 16  # of one prepared INSERT: each number of rows is a statement of its own

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
        samples = _samples(self._types)
        rows = self._build(**samples)
        compiler = rows.query.get_compiler(DEFAULT_DB_ALIAS)
        sql, parameters = compiler.as_sql()
        return _Statement(rows, compiler, sql, _placed(parameters, samples))


def any_row(build: Callable[..., Iterable[QuerySet[Any, Any]]], **parameters: type) -> Callable[..., bool]:
    """Returns a function that says whether one of the query sets has a row, by one statement.

    ``build`` and ``parameters``: as of ``Prepared``. The function takes the parameters by name.
    """

    def union(**samples: Any) -> QuerySet[Any, Any]:
        first, *others = (rows.order_by().annotate(found=Value(1)).values("found") for rows in build(**samples))
        found: QuerySet[Any, Any] = first.union(*others, all=True)[:1]
        return found

    statement = Prepared(union, **parameters)
    return lambda **values: statement.first(**values) is not None


class PreparedUpdate:
    """An UPDATE of the rows that ``build`` selects, as of ``Prepared``. It is built once for each set of columns."""

    def __init__(self, build: Callable[..., QuerySet[Any, Any]], **parameters: type) -> None:
        self._build, self._types = build, parameters
        self._statements: dict[tuple[tuple[str, Any], ...], _Update] = {}

    def run(self, columns: Mapping[str, Any], **values: Any) -> int:
        """Sets the columns, by the names of their fields, and returns the number of rows.

        An expression (``F("token") + 1``) becomes part of the statement, which is kept, so it must be a constant. A
        relation is set by its key.
        """
        key = tuple((name, value if is_expression(value) else None) for name, value in columns.items())
        statement = self._statements.get(key)
        if statement is None:
            statement = self._statements.setdefault(key, self._compile(dict(key)))
        return statement.run(columns, values)

    def _compile(self, columns: Mapping[str, Any]) -> "_Update":
        samples = _samples(self._types)
        rows = self._build(**samples)
        query: Any = rows.query.chain(UpdateQuery)
        query.add_update_values({name: value or _Column(name) for name, value in columns.items()})
        query.annotations = {}
        sql, parameters = query.get_compiler(DEFAULT_DB_ALIAS).as_sql()
        fields = {name: rows.model._meta.get_field(name) for name in columns}
        return _Update(sql, _placed(parameters, samples), fields)


@dataclass(frozen=True)
class _Update:
    """A built UPDATE. ``parameters``: as of ``_Statement``, or the column that is set."""

    sql: str
    parameters: list[tuple[str, Any]]
    fields: "Mapping[str, Field[Any, Any]]"

    def run(self, columns: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        connection = connections[DEFAULT_DB_ALIAS]
        known = {name: _adapted(value) for name, value in values.items()}
        parameters = [
            self._of_column(columns[value.name], value.name, connection)
            if isinstance(value, _Column)
            else (known[name] if name else value)
            for name, value in self.parameters
        ]
        with transaction.mark_for_rollback_on_error(DEFAULT_DB_ALIAS), connection.cursor() as cursor:
            cursor.execute(self.sql, parameters)
            return int(cursor.rowcount)

    def _of_column(self, value: Any, name: str, connection: BaseDatabaseWrapper) -> Any:
        return self.fields[name].get_db_prep_save(value, connection=connection)


class PreparedInsert(Generic[Instance]):
    """An INSERT of rows of one model, for few rows at a time. It sets their keys, as ``bulk_create`` does."""

    def __init__(self, model: type[Instance]) -> None:
        self._model = model
        self._statements: dict[int, str] = {}  # by the number of rows

    def run(self, rows: Sequence[Instance]) -> None:
        """Inserts the rows with one statement."""
        connection = connections[DEFAULT_DB_ALIAS]
        if not rows or len(rows) > MAX_ROWS or not connection.features.can_return_rows_from_bulk_insert:
            self._model._default_manager.bulk_create(rows)
            return
        fields = self._fields
        statement = self._statements.get(len(rows))
        if statement is None:
            statement = self._statements.setdefault(len(rows), self._sql(fields, len(rows), connection))
        values = [
            field.get_db_prep_save(field.pre_save(row, add=True), connection=connection)
            for row in rows
            for field in fields
        ]
        with transaction.mark_for_rollback_on_error(DEFAULT_DB_ALIAS), connection.cursor() as cursor:
            cursor.execute(statement, values)
            keys = cursor.fetchall()
        for row, (key,) in zip(rows, keys, strict=True):
            row.pk = key
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS

    @cached_property
    def _fields(self) -> "list[Field[Any, Any]]":
        concrete = self._model._meta.local_concrete_fields
        return [field for field in concrete if not field.generated and not field.primary_key]

    def _sql(self, fields: "Sequence[Field[Any, Any]]", count: int, connection: BaseDatabaseWrapper) -> str:
        quote, meta = connection.ops.quote_name, self._model._meta
        columns = ", ".join(quote(str(field.column)) for field in fields)
        row = f"({', '.join(['%s'] * len(fields))})"
        table, key = quote(meta.db_table), quote(str(meta.pk.column))
        return f"INSERT INTO {table} ({columns}) VALUES {', '.join([row] * count)} RETURNING {key}"  # nosec B608


class _Column(Expression):
    """Stands in an UPDATE for the value that a column is set to."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, *_args: Any, **_kwargs: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """A parameter with itself as its value."""
        return "%s", [self]


@dataclass(frozen=True)
class _Statement(Generic[Row]):
    """A query set whose compiler has built its statement; ``parameters``: in order, the name of each or a constant."""

    rows: QuerySet[Any, Row]
    compiler: SQLCompiler
    sql: str
    parameters: list[tuple[str, Any]]
    converters: dict[int, Any] = field(default_factory=dict)  # by the number of columns

    def bound(self, values: Mapping[str, Any]) -> QuerySet[Any, Row]:
        """The query set with these values, which does not build its statement again."""
        connection = connections[DEFAULT_DB_ALIAS]  # of this thread
        if self.rows.query.select_for_update and connection.get_autocommit():
            raise transaction.TransactionManagementError("the statement locks rows: run it in a transaction")
        known = {name: _adapted(value) for name, value in values.items()}
        parameters = tuple(known[name] if name else constant for name, constant in self.parameters)
        compiler = copy.copy(self.compiler)
        compiler.connection = connection
        compiler.get_converters = self._converters(compiler)  # type: ignore[method-assign]
        compiler.as_sql = lambda *_args, **_kwargs: (self.sql, parameters)  # type: ignore[method-assign]
        rows = self.rows.all()
        rows.query.get_compiler = lambda *_args, **_kwargs: compiler  # type: ignore[method-assign]
        return rows

    def _converters(self, compiler: SQLCompiler) -> Callable[..., Any]:
        """The converters of the columns, which Django would look up for each execution."""
        find = compiler.get_converters

        def converters(expressions: list[Any]) -> Any:
            found = self.converters.get(len(expressions))
            return found if found is not None else self.converters.setdefault(len(expressions), find(expressions))

        return converters


def _samples(types: Mapping[str, type]) -> dict[str, Any]:
    """A value for each parameter that no other parameter and no constant of the statement has."""
    return {name: _sample(kind, index) for index, (name, kind) in enumerate(types.items())}


def _placed(parameters: Sequence[Any], samples: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The values of a built statement, each with the name of its parameter, "" for a constant.

    Raises ValueError if the statement does not use a parameter, or calculates with a time.
    """
    names = {_adapted(sample): name for name, sample in samples.items()}
    placed = [(names.get(value, "") if _hashable(value) else "", value) for value in parameters]
    missing = set(samples) - {name for name, _ in placed}
    if missing:
        raise ValueError(f"the statement does not use the parameters {', '.join(sorted(missing))}")
    if any(not name and str(value).startswith(f"{_FIRST_MOMENT.year}-") for name, value in placed):
        raise ValueError("the statement calculates with a time: give it the time that it compares")
    return placed


def is_expression(value: Any) -> bool:
    """Returns whether the database computes the value."""
    return hasattr(value, "resolve_expression")


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
