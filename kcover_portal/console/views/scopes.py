"""The live line under a scope picker, and the values that it offers."""

from typing import Any

from django.db.models import Count, QuerySet, Sum
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from kcover.nodes import scopes
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import presentation
from kcover_portal.console.access import Request, place, signed_in
from kcover_portal.console.forms import scopes as forms
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_scopes
from kcover_portal.lib import localization
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import scope_previews

MAX_OFFERED = 30  # values at once


@require_http_methods(["GET", "POST"])
@signed_in
def line(request: Request) -> HttpResponse:
    """Shows what the scope in the form contains, and known values to choose from.

    Reads only. A form with many names is too long for an address, so it is posted.
    """
    given = request.POST if request.method == "POST" else request.GET
    name, by, text = (given.get(key, "").replace("\0", "") for key in ("cluster", "by", "which"))
    names = forms.split(text[: forms.MAX_CHARACTERS])
    seen = accounts.scope(request.user)
    rows = seen.rows(Node.objects.filter(in_cluster=True), node="")
    if not name:
        return _shown(request, _everywhere(rows) if not by else {"hint": True})
    cluster = get_object_or_404(seen.clusters(), name=name)
    rows = rows.filter(cluster=cluster)
    offered = {} if given.get("only") == "sum" else _offered(cluster, by, names, rows)
    if by and not names:
        return _shown(request, offered)
    try:
        scope = scopes.parse(forms.document(by, names))
    except scopes.ScopeError as error:
        return _shown(request, {**offered, "problem": localization.say(error.reason)})
    with place(request, concurrency_limits.CLUSTER_READS):
        found = scope_previews.preview(cluster, scope, seen, now=timezone.now())
    guards = [(presentation.GUARDS[guard].label, room, room < found.nodes) for guard, room in found.headroom.items()]
    unknown = ", ".join(found.unknown[: scopes.MAX_SHOWN])
    more = len(found.unknown) - scopes.MAX_SHOWN
    return _shown(request, {**offered, "found": found, "guards": guards, "unknown": unknown, "more": more})


def _everywhere(rows: QuerySet[Node]) -> dict[str, Any]:
    """All clusters: without jobs and guards, which each cluster has of its own."""
    return {"found": rows.aggregate(nodes=Count("pk"), gpus=Sum("gpus", default=0))}


def _offered(cluster: Cluster, by: str, names: list[str], rows: QuerySet[Node]) -> dict[str, Any]:
    """The known values with their numbers of nodes. An unfinished name narrows them."""
    known = dict(node_scopes.values(cluster, by, among=rows))
    last = names[-1] if names and names[-1] not in known else ""
    if len(known) == node_scopes.MAX_VALUES and last:
        known = dict(node_scopes.values(cluster, by, among=rows, like=last))
    near = {value: number for value, number in known.items() if last.lower() in value.lower()} or known
    chosen = set(names)
    values = [(value, number, value in chosen) for value, number in list(near.items())[:MAX_OFFERED]]
    return {"values": values, "hidden": max(0, len(near) - MAX_OFFERED), "of_nodes": by == "nodes"}


def _shown(request: Request, context: dict[str, Any]) -> HttpResponse:
    return render(request, "console/parts/scope_line.html", context)
