"""Counts and sets as expressions, so that one statement takes several of them."""

from typing import Any

from django.db.models import F, Func, IntegerField, QuerySet, Subquery, TextField


def number_of(rows: QuerySet[Any], distinct: str = "") -> Subquery:
    """The number of the rows, or of the distinct values of a column, as a subquery."""
    template = "%(function)s(DISTINCT %(expressions)s)" if distinct else "%(function)s(%(expressions)s)"
    count = Func(F(distinct or "pk"), function="COUNT", template=template, output_field=IntegerField())
    return Subquery(rows.order_by().annotate(number=count).values("number"))


class _Joined(Func):
    """The distinct values of a column in one text, separated by newlines."""

    output_field = TextField()
    template = "string_agg(DISTINCT %(expressions)s::text, E'\\n')"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # SQLite separates distinct values only by commas.
        joined = "replace(group_concat(DISTINCT %(expressions)s), ',', char(10))"
        return self.as_sql(compiler, connection, template=joined, **context)


def values_of(rows: QuerySet[Any], column: str) -> Subquery:
    """The distinct values of a column, without commas, as a subquery that ``as_keys`` and ``as_texts`` read."""
    return Subquery(rows.order_by().annotate(joined=_Joined(F(column))).values("joined"))


def as_texts(joined: str | None) -> set[str]:
    """Reads the result of ``values_of``."""
    return set(joined.split("\n")) if joined else set()


def as_keys(joined: str | None) -> set[int]:
    """Reads the result of ``values_of`` a column of keys."""
    return {int(key) for key in as_texts(joined)}
