"""What a scope picker starts with: the parameters of the address, or the rows that a person selected in a list."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from kcover.nodes import scopes
from kcover_portal.console import lists
from kcover_portal.console.access import Request
from kcover_portal.console.forms.scopes import FIELDS
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import scope_checks

GIVEN = ("cluster", "by", "which")


def initial(request: Request) -> tuple[dict[str, str], str]:
    """Returns the initial values of a form with a scope, and a note to the person, "" for none.

    ``host`` in the address is an older way to name nodes. ``picked`` and ``all`` are those of a selection.
    """
    query = request.GET
    if "picked" in query or "all" in query:
        listed = lists.find(lists.LISTINGS["nodes"], request.user, query)
        if "all" in query and listed.problems:
            return {}, _("The address has a parameter that has no effect. Correct it, then select the nodes again.")
        return _selected(listed.rows)
    found = {name: query.get(name, "") for name in GIVEN if name in query}
    if "host" in query:
        found |= {"by": "nodes", "which": query["host"]}
    return found, ""


def chosen(given: Mapping[str, Any]) -> list[Node]:
    """Returns the nodes that a valid form selects: of a whole cluster, those with GPUs. Raises FieldError."""
    return scope_checks.select_for_gpus(given["cluster"], given["scope"], fields=FIELDS)


def _selected(rows: QuerySet[Node]) -> tuple[dict[str, str], str]:
    nodes = list(rows.order_by("name").values_list("cluster__name", "name")[: scopes.MAX_NODES + 1])
    clusters = {cluster for cluster, _name in nodes}
    if len(clusters) > 1:
        return {}, _("Your selection has nodes of several clusters. Select the nodes of one cluster.")
    if len(nodes) > scopes.MAX_NODES:
        return {}, _("Your selection has more than %(n)d nodes. Select a pool or a rack instead.") % {
            "n": scopes.MAX_NODES
        }
    names = ", ".join(name for _cluster, name in nodes)
    return {"cluster": next(iter(clusters), ""), "by": "nodes", "which": names}, ""
