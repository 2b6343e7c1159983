"""One list of the console: who sees which rows, which filters, columns and orders apply, and what is exported."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import django_filters as filters
from django.db.models import F, QuerySet
from django.db.models.expressions import Combinable
from django.http import QueryDict
from django.utils.functional import Promise
from django_filters import FilterSet

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console.rescue_tabs import Tab
from kcover_portal.ledger.filtersets import Moment
from kcover_portal.shared_reads import parameters as query_parameters

KEY = re.compile("[0-9]{1,18}")  # a row's key in an address, within the range of the database
OF_THE_MOMENT = ("page", "before", "after", "picked", "all", "view")  # no part of a saved view
OF_THE_PAGE = (*OF_THE_MOMENT, "sort", "columns", "group")  # not about which rows a list has


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list's page.

    ``order``: by what it sorts, nothing if it does not. ``usual``: shown until people choose their columns; ``always``:
    whatever they choose.
    """

    name: str
    label: str | Promise
    order: Sequence[str | Callable[[], Combinable]] = ()
    usual: bool = True
    always: bool = False
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class ParameterProblem:
    """A parameter of the address that has no effect, and what to write instead."""

    name: str
    value: str
    reason: reasons.Reason


@dataclass(frozen=True, slots=True)
class Listing:
    """One list.

    ``columns`` of its export: a stable name and the lookup of its value. ``convert``: for some columns, a function that
    turns the value into what the REST API shows. ``groupings``: what can be one row of the page, with a label.
    """

    name: str
    filterset: type[FilterSet]
    seen: Callable[[User], QuerySet[Any]]
    columns: Mapping[str, str | Combinable]
    cut: Callable[[QuerySet[Any], QueryDict], QuerySet[Any]] = lambda rows, parameters: rows
    tabs: Sequence[Tab] = ()
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    table: Sequence[Column] = ()
    groupings: Mapping[str, str | Promise] = field(default_factory=dict)

    @property
    def parameters(self) -> Collection[str]:
        """The parameters that the page of the list takes."""
        also = (*(("tab",) if self.tabs else ()), *(("group",) if self.groupings else ()))
        return (*self.filterset.base_filters, *(one for one in OF_THE_PAGE if one != "group"), *also)


@dataclass(frozen=True, slots=True)
class ListResult:
    """The selected rows; ``filter`` holds the form with its errors, ``seen`` all rows that the person can see."""

    listing: Listing
    filter: FilterSet
    seen: QuerySet[Any]
    narrowed: QuerySet[Any]
    rows: QuerySet[Any]
    parameters: QueryDict

    @property
    def query(self) -> str:
        """The query string of these filters, without paging."""
        kept = self.parameters.copy()
        for name in OF_THE_PAGE:
            kept.pop(name, None)
        return kept.urlencode()

    @property
    def problems(self) -> list[ParameterProblem]:
        """The parameters that have no effect: unknown ones, and those with a value that nothing can be."""
        listing = self.listing
        written = [*listing.filterset.base_filters, *(("sort", "columns") if listing.table else ())]  # by people
        found = [
            ParameterProblem(name, ", ".join(self.parameters.getlist(name)), query_parameters.unknown(name, written))
            for name in self.parameters
            if name not in listing.parameters
        ]
        return [*found, *_bad_values(self), *_bad_places(self)]

    @property
    def columns(self) -> list[str]:
        """The names of the columns that the page shows."""
        return [column.name for column in self.table]

    @property
    def table(self) -> list[Column]:
        """The columns that the page shows: those of the address, else the usual ones."""
        chosen = {*self.parameters.getlist("columns")} & {column.name for column in self.listing.table}
        return [
            column
            for column in self.listing.table
            if column.always or (column.name in chosen if chosen else column.usual)
        ]

    @property
    def chosen_columns(self) -> list[str]:
        """The columns that the address names; none if the usual ones are shown."""
        return self.parameters.getlist("columns")

    @property
    def kept_for_columns(self) -> list[tuple[str, str]]:
        """The parameters that stay when people choose other columns."""
        return [
            (name, value)
            for name, values in self.parameters.lists()
            if name not in ("columns", "page", "before", "after", "picked", "all")
            for value in values
        ]

    @property
    def sort(self) -> str:
        """The column by which the rows are sorted, with ``-`` before it if downwards; "" for the usual order."""
        asked = self.parameters.get("sort", "")
        return asked if asked in _sorts(self.listing) else ""

    def ordered(self, *usual: str | Combinable) -> QuerySet[Any]:
        """The rows in the order that the address asks for, else in the usual one, or that of the model."""
        name = self.sort.removeprefix("-")
        down = self.sort.startswith("-")
        keys = [key for column in self.listing.table if column.name == name for key in column.order]
        return self.rows.order_by(*(_key(key, down=down) for key in keys), *(usual or self.rows.model._meta.ordering))

    @property
    def group(self) -> str:
        """How the rows are grouped; "" for one row each."""
        asked = self.parameters.get("group", "")
        return asked if asked in self.listing.groupings else ""

    @property
    def view_query(self) -> str:
        """The query string of filters, order and columns, in one spelling."""
        return one_spelling(self.parameters)

    @property
    def rest_query(self) -> str:
        """The same query for the REST API, which rejects unknown parameters."""
        known = QueryDict(mutable=True)
        for name in self.filter.base_filters:
            if any(values := self.parameters.getlist(name)):
                known.setlist(name, values)
        tab = _tab(self.listing, self.parameters)
        return "&".join(part for part in (known.urlencode(), tab.rest if tab else "") if part)


def one_spelling(parameters: QueryDict) -> str:
    """The query string without blanks, paging and selection, by name."""
    kept = {
        name: [value for value in values if value]
        for name, values in sorted(parameters.lists())
        if name not in OF_THE_MOMENT
    }
    return urlencode(kept, doseq=True)


def find(listing: Listing, user: User, parameters: QueryDict) -> ListResult:
    """The visible rows that match the filters and, with ``picked``, the given keys."""
    seen = listing.seen(user)
    chosen = listing.filterset(parameters, queryset=listing.cut(seen, parameters))
    narrowed = chosen.qs
    tab = _tab(listing, parameters)
    rows = narrowed.filter(tab.where) if tab else narrowed
    if "picked" in parameters and "all" not in parameters:
        rows = rows.filter(pk__in=[int(key) for key in parameters.get("picked", "").split(",") if KEY.fullmatch(key)])
    return ListResult(listing, chosen, seen, narrowed, rows, parameters)


def _bad_values(found: ListResult) -> Iterator[ParameterProblem]:
    for name in found.filter.errors:
        given = ", ".join(found.parameters.getlist(name))
        one = found.filter.filters.get(name)
        choices = getattr(found.filter.form.fields.get(name), "choices", ())
        if isinstance(one, Moment):
            reason = reasons.of("parameter_not_time", given=given)
        elif isinstance(one, filters.NumberFilter):
            reason = reasons.of("parameter_not_number", given=given)
        else:
            known = ", ".join(str(value) for value, _label in choices if value)
            reason = reasons.of("parameter_not_choice", given=given, known=known)
        yield ParameterProblem(name, given, reason)


def _bad_places(found: ListResult) -> Iterator[ParameterProblem]:
    """Problems with the parameters that say what of the list is shown, and how."""
    given = found.parameters
    for name, known in (
        ("sort", _sorts(found.listing)),
        ("tab", [tab.name for tab in found.listing.tabs]),
        ("columns", [column.name for column in found.listing.table]),
        ("group", list(found.listing.groupings)),
    ):
        for value in given.getlist(name):
            if value and value not in known and name in found.listing.parameters:
                reason = reasons.of("parameter_not_choice", given=value, known=", ".join(known) or "–")
                yield ParameterProblem(name, value, reason)
    for name in ("page", "before", "after"):
        value = given.get(name, "") or ""
        if value and not KEY.fullmatch(value):
            yield ParameterProblem(name, value, reasons.of("parameter_not_number", given=value))


def _sorts(listing: Listing) -> list[str]:
    return [sort for column in listing.table if column.order for sort in (column.name, f"-{column.name}")]


def _key(key: str | Callable[[], Combinable], *, down: bool) -> Any:
    expression: Any = F(key) if isinstance(key, str) else key()
    return expression.desc(nulls_last=True) if down else expression.asc(nulls_last=True)


def _tab(listing: Listing, parameters: QueryDict) -> Tab | None:
    return next((tab for tab in listing.tabs if tab.name == parameters.get("tab")), None)


def visible(rows: QuerySet[Any], cluster: str = "cluster", node: str | None = "node") -> Any:
    """A function that returns the rows that a person can see. See ``accounts.Scope.where`` for the paths."""
    return lambda user: accounts.visible(user, rows, cluster, node)


def own_columns(*names: str) -> dict[str, str | Combinable]:
    """Columns with the same names as the model's fields."""
    return {name: name for name in names}


def sentences(stored: list[Any]) -> list[str]:
    """The English sentences of stored reasons."""
    return [str(reasons.from_json(reason)) for reason in stored]
