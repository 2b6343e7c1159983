"""The live line under a scope picker, the values that it offers, and the two pages that begin with a scope."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, QuerySet, Sum
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover import reasons
from kcover.nodes import scopes
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import action_labels, form_dialog, presentation, scope_choice
from kcover_portal.console.access import Request, dialog, place, require, signed_in
from kcover_portal.console.forms import scopes as forms
from kcover_portal.console.reads.bulk_actions import NODE_VERBS
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_scopes, scope_checks
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.services import MAX_NODES_AT_ONCE
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import scope_previews

MAX_OFFERED = 30  # values at once
LINE = "console/parts/scope_line.html"


@require_http_methods(["GET", "POST"])
@signed_in
def line(request: Request) -> HttpResponse:
    """Shows what the scope in the form contains, and known values to choose from.

    Reads only. A form with many names is too long for an address, so it is posted.
    """
    return render(request, LINE, _line(request, request.POST if request.method == "POST" else request.GET))


@require_GET
@signed_in
def room(request: Request) -> HttpResponse:
    """Shows what the guards allow in a scope now. Reads only."""
    given = request.GET
    asked = given if given.get("cluster") else None
    form = forms.OnNodes(asked, clusters=accounts.scope(request.user).clusters(), initial={})
    context: dict[str, Any] = _line(request, given) if asked is not None and form.is_valid() else {}
    context |= {"form": form, "base": dialog(request), "asked": bool(context)}
    return render(request, "console/pages/scope_room.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def select(request: Request, verb: str) -> HttpResponse:
    """Selects nodes by a scope, and leads to the preview of an act on them. Nothing is acted on here."""
    if verb not in NODE_VERBS:
        raise Http404
    right = requests.right_for(verb)
    if not accounts.may_somewhere(request.user, right):
        require(request, right, None)
    clusters = accounts.scope(request.user, right).clusters()
    initial = {name: request.GET[name] for name in scope_choice.GIVEN if name in request.GET}
    form = forms.SomeNodes(request.POST or None, clusters=clusters, initial=initial)

    def lead_on(given: dict[str, Any], _now: datetime) -> HttpResponse:
        cluster, scope = given["cluster"], given["scope"]
        visible = accounts.scope(request.user).rows(Node.objects.filter(cluster=cluster, in_cluster=True), node="")
        rows = scope_checks.select(cluster, scope, fields=forms.FIELDS, among=visible)
        if (count := rows.count()) > MAX_NODES_AT_ONCE:
            raise FieldError("which", reasons.of("scope_too_wide", most=MAX_NODES_AT_ONCE, count=count))
        picked = ",".join(str(pk) for pk in rows.values_list("pk", flat=True))
        return redirect(f"{reverse('console:many', args=('nodes', verb))}?{urlencode({'picked': picked})}")

    look = action_labels.verb(verb)
    address = reverse("console:scope-act", args=(verb,))
    shown: dict[str, Any] = {"title": look.label, "icon": look.icon, "text": look.help, "verb": _("Preview")}
    return form_dialog.act(request, form, lead_on, back=reverse("console:nodes"), address=address, **shown)


def _line(request: Request, given: QueryDict) -> dict[str, Any]:
    """What the template of the line shows for the values of a form."""
    name, by, text = (given.get(key, "").replace("\0", "") for key in ("cluster", "by", "which"))
    names = forms.split(text[: forms.MAX_CHARACTERS])
    seen = accounts.scope(request.user)
    rows = seen.rows(Node.objects.filter(in_cluster=True), node="")
    if not name:
        return _everywhere(rows) if not by else {"hint": True}
    cluster = get_object_or_404(seen.clusters(), name=name)
    rows = rows.filter(cluster=cluster)
    offered = {} if given.get("only") == "sum" else _offered(cluster, by, names, rows)
    of_group = given.get("only") == "group"  # a limit for a group: nothing is done to its nodes, so nothing stops it
    if (by or of_group) and not names:
        return offered
    try:
        scope = scopes.parse(forms.document(by, names))
    except scopes.ScopeError as error:
        return {**offered, "problem": localization.say(error.reason)}
    with place(request, concurrency_limits.CLUSTER_READS):
        found = scope_previews.preview(cluster, scope, seen, now=timezone.now(), acts=not of_group)
    guards = [(presentation.GUARDS[guard].label, room, room < found.nodes) for guard, room in found.headroom.items()]
    unknown = ", ".join(found.unknown[: scopes.MAX_SHOWN])
    more = len(found.unknown) - scopes.MAX_SHOWN
    return {**offered, "found": found, "guards": guards, "unknown": unknown, "more": more}


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
