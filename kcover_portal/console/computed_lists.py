"""Lists of rows that no table of the database has: their filters and orders in the address, and their exports."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from django.http import QueryDict

from kcover import reasons
from kcover_portal.accounts.models import User
from kcover_portal.console.list_query import Column, ParameterProblem

Row = TypeVar("Row")
MAX_LENGTH: Final = 100  # characters of a filter


@dataclass(frozen=True, slots=True)
class ComputedRows(Generic[Row]):
    """The rows that the address asks for. ``missing``: the clusters whose rows could not be read, and why."""

    rows: Sequence[Row]
    missing: Sequence[tuple[str, reasons.Reason]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedListing(Generic[Row]):
    """One such list. ``find`` reads the rows that a person sees and the ``filters`` in the address ask for, at a time.

    ``orders``: the value by which a column of ``table`` sorts, by its name. ``choices``: the values of filters.
    ``columns`` of its export: a stable name, and the value of a row.
    """

    name: str
    filters: Sequence[str]
    find: Callable[[User, QueryDict, datetime], ComputedRows[Row]]
    columns: Mapping[str, Callable[[Row], Any]]
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)
    table: Sequence[Column] = ()
    orders: Mapping[str, Callable[[Row], Any]] = field(default_factory=dict)

    def asked(self, parameters: QueryDict) -> dict[str, str]:
        """The filters in the address, by name; "" for one that is not set."""
        return {name: parameters.get(name, "").replace("\0", "").strip()[:MAX_LENGTH] for name in self.filters}

    def sort(self, parameters: QueryDict) -> str:
        """The column by which the rows are sorted, with ``-`` before it if downwards; "" for the usual order."""
        asked = parameters.get("sort", "")
        return asked if asked.removeprefix("-") in self.orders else ""

    def ordered(self, rows: Iterable[Row], parameters: QueryDict) -> list[Row]:
        """The rows in the order that the address asks for; equal ones, and without such an order, as they come."""
        sort, found = self.sort(parameters), list(rows)
        if sort:
            found.sort(key=self.orders[sort.removeprefix("-")], reverse=sort.startswith("-"))
        return found

    def chosen(self, name: str, parameters: QueryDict) -> str:
        """The value of a filter that has choices; "" if the address names none, or one that nothing can have."""
        asked = parameters.get(name, "")
        return asked if asked in self.choices[name] else ""

    def problems(self, parameters: QueryDict) -> list[ParameterProblem]:
        """The values in the address that have no effect. Unknown names: ``page_parameters``."""
        sorts = [sort for name in self.orders for sort in (name, f"-{name}")]
        return [
            ParameterProblem(
                name, value, reasons.of("parameter_not_choice", given=value, known=", ".join(known) or "–")
            )
            for name, known in {**self.choices, "sort": sorts}.items()
            if (value := parameters.get(name, "")) and value not in known
        ]

    def exported(self, rows: Iterable[Row]) -> Iterable[tuple[Any, ...]]:
        """The rows of its export."""
        return (tuple(value(row) for value in self.columns.values()) for row in rows)
