"""Counts as expressions, so that one statement takes several of them."""

from typing import Any

from django.db.models import F, Func, IntegerField, QuerySet, Subquery


def number_of(rows: QuerySet[Any], distinct: str = "") -> Subquery:
    """The number of the rows, or of the distinct values of a column, as a subquery."""
    template = "%(function)s(DISTINCT %(expressions)s)" if distinct else "%(function)s(%(expressions)s)"
    count = Func(F(distinct or "pk"), function="COUNT", template=template, output_field=IntegerField())
    return Subquery(rows.order_by().annotate(number=count).values("number"))
