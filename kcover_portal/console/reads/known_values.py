"""The values that the portal knows for filters of lists, within what a person may see; one bounded query each."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.utils.translation import gettext

from kcover.faults import catalog
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console.fault_names import KINDS
from kcover_portal.fleet.models import Node
from kcover_portal.policies.models import Policy

MAX_VALUES = 200  # of one filter
MAX_LABELED = 200  # nodes whose labels are read
MAX_LABEL_VALUES = 8  # a label with more values is a name of single nodes, and only its key is known
FREE: Final = ("label", "code", "policy")  # text fields: the known values are suggestions
Choices = list[tuple[str, Any]]


def of(user: User, name: str, *, kind_in_code: bool = False) -> Choices:
    """Values and labels of a filter, sorted; none for a filter whose values are not known.

    ``kind_in_code``: the filter of a code has the form ``xid 79``.
    """
    if name == "code":
        return _codes(kind_in_code=kind_in_code)
    read = _READ.get(name)
    return [(value, value) for value in read(user)] if read else []


def _clusters(user: User) -> list[str]:
    return list(accounts.scope(user).clusters().order_by("name").values_list("name", flat=True)[:MAX_VALUES])


def _of_nodes(column: str) -> Callable[[User], list[str]]:
    def read(user: User) -> list[str]:
        rows = _nodes(user).exclude(**{column: ""}).order_by(column)
        return list(rows.values_list(column, flat=True).distinct()[:MAX_VALUES])

    return read


def _labels(user: User) -> list[str]:
    """The labels of some nodes: ``key=value``, or the key alone of a label that differs on almost each node."""
    values: dict[str, set[str]] = defaultdict(set)
    for labels in _nodes(user).order_by("-pk").values_list("labels", flat=True)[:MAX_LABELED]:
        for key, value in labels.items():
            values[key].add(str(value))
    found = []
    for key in sorted(values):
        known = sorted(values[key])
        found += [key] if len(known) > MAX_LABEL_VALUES else [f"{key}={value}" for value in known]
    return found[:MAX_VALUES]


def _policies(user: User) -> list[str]:
    return list(Policy.objects.order_by("name").values_list("name", flat=True)[:MAX_VALUES])


def _nodes(user: User) -> QuerySet[Node]:
    return accounts.visible(user, Node.objects.filter(gone_at=None), node="")


def _codes(*, kind_in_code: bool) -> Choices:
    """The codes of NVIDIA's catalogs that say more than that something happened, with what each means."""
    found: Choices = []
    for kind in ("xid", "sxid"):
        for code, entry in sorted(catalog.entries(kind).items()):
            if entry.severity == "info":
                continue
            value = f"{kind} {code}" if kind_in_code else str(code)
            found.append(
                (value, f"{KINDS[kind]} {code}: {gettext(entry.title)}" if kind == "xid" else f"{KINDS[kind]} {code}")
            )
    return found


_READ: Final[Mapping[str, Callable[[User], list[str]]]] = {
    "cluster": _clusters,
    "pool": _of_nodes("pool"),
    "model": _of_nodes("model"),
    "driver": _of_nodes("driver"),
    "label": _labels,
    "policy": _policies,
}
