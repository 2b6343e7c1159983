"""Incidents, their events and decisions."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover import audit
from kcover.evidence import excerpt
from kcover.faults import catalog, fault
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import fault_names, form_dialog, forms, incident_groups, lists
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.reads import dashboards, guard_holds, needs, node_acts, past_remedies, storms
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.evidence import queries as evidence
from kcover_portal.evidence.models import Bundle
from kcover_portal.incidents import queries, services
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.jobs import queries as jobs
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries as rescues_of, services as rescue
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import incident_groups as groups_of_incidents

PAGE_ROWS = 50
MAX_OCCURRENCES = 50
AROUND = timedelta(minutes=5)


def _page(request: Request, rows: QuerySet[Any]) -> Page[Any]:
    return Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))


@require_GET
@signed_in
@opens_first("incidents")
def incidents(request: Request) -> HttpResponse:
    """The list: faults of nodes before those of programs, and the newest of each first."""
    found = lists.find(lists.INCIDENTS, request.user, request.GET)
    names = ("q", "cluster", "state", "kind", "code", "program", "since", "until")
    context = {
        "found": found,
        "form": forms.shown(request, found, *names),
        **(_grouped(request, found) if found.group else _one_by_one(request, found)),
        "sort": found.sort,
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/incidents.html", context)


def _one_by_one(request: Request, found: lists.ListResult) -> dict[str, Any]:
    return {
        "page": _page(
            request, found.ordered(*(() if found.sort else ("is_user_fault",)), "-id").select_related("node", "cluster")
        )
    }


def _grouped(request: Request, found: lists.ListResult) -> dict[str, Any]:
    page = _page(request, groups_of_incidents.groups(found.rows, found.group))
    return {
        "page": page,
        "groups": incident_groups.shown(list(page.object_list), found.rows, found.group),
        "by": found.group,
        "grouping": incident_groups.title(found.group),
        "kept": found.query,
    }


@require_GET
@signed_in
@opens_first("occurrences")
def occurrences(request: Request) -> HttpResponse:
    """Every stored occurrence, newest first."""
    found = lists.find(lists.OCCURRENCES, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "kind", "code", "source", "drill", "since", "until"),
        "page": _page(request, found.ordered().select_related("node__cluster", "incident")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/occurrences.html", context)


@require_GET
@signed_in
@opens_first("decisions")
def decisions(request: Request) -> HttpResponse:
    """Every decision about a fault, newest or oldest first."""
    found = lists.find(lists.DECISIONS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "answer", "mode", "policy", "since", "until"),
        "page": _page(request, found.ordered().select_related("node__cluster", "incident")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/decisions.html", context)


@require_GET
@signed_in
def incident(request: Request, pk: int) -> HttpResponse:
    """One incident: its meaning and remedy, its decisions and its occurrences."""
    seen = accounts.visible(request.user, Incident.objects.all())
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk)
    numeric = row.kind in ("xid", "sxid") and row.code.isdigit()
    decisions = list(row.decisions.all()[:20])
    shown = list(row.occurrences.all()[:MAX_OCCURRENCES])
    held = decisions[0].reasons if decisions and row.state == Incident.State.OPEN else ()
    context = {
        "incident": row,
        "fact": catalog.describe(row.kind, int(row.code)) if numeric else None,
        "decisions": decisions,
        "wait": guard_holds.of_decision(held),
        "rescues": (rescues := list(row.rescues.all())),
        "has_evidence": numeric and bool(evidence.numbers_of([one.pk for one in rescues])),
        "occurrences": shown,
        "told_first": next((one for one in reversed(shown) if one.lines_before), None),
        "scope": (scope := storms.nodes_of(row, now=timezone.now()) if row.kind == STORM else ()),
        "isolated": sum(one.isolated for one in scope),
        "context": queries.program_context_of(row, now=row.last_at),
        "jobs": jobs.of_incidents([row.pk]).get(row.pk, ()),
        "cards": needs.about(request.user, row.cluster, [row], now=timezone.now()),
        "remedies": past_remedies.of(row, accounts.scope(request.user), now=timezone.now()) if row.node else (),
        "dashboard": dashboards.address(row.cluster.name, row.node.name, row.opened_at, row.last_at)
        if row.node
        else "",
        "verbs": _verbs(request, row),
        "around": _around(row) if row.node else "",
        "closes": row.state == Incident.State.OPEN and accounts.may(request.user, Verb.CLOSE, row.node or row.cluster),
    }
    return render(request, "console/pages/incident.html", context)


def _verbs(request: Request, row: Incident) -> Sequence[str]:
    """The acts on its node, while the incident is open, for those who may do them."""
    if row.state != Incident.State.OPEN or row.node is None or not accounts.may(request.user, Verb.REPAIR, row.node):
        return ()
    return node_acts.offered_to(request.user, row.node, rescues_of.open_on(row.node), [row], now=timezone.now())


def _around(row: Incident) -> str:
    """The query of the list of occurrences on its node around the first one."""
    assert row.node is not None
    since, until = row.opened_at - AROUND, row.opened_at + AROUND
    return forms.query(cluster=row.cluster.name, node=row.node.name, since=since.isoformat(), until=until.isoformat())


@require_GET
@signed_in
def log_context(request: Request, pk: int) -> HttpResponse:
    """The kernel log around the fault, from the newest evidence of its rescues; in the audit log like a download."""
    seen = accounts.visible(request.user, Incident.objects.all())
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk, kind__in=fault.NUMERIC_KINDS)
    keys = row.rescues.values_list("pk", flat=True)
    bundle = Bundle.objects.filter(rescue__in=list(keys), state=Bundle.State.KEPT).order_by("-requested_at").first()
    if bundle is None or row.node is None:
        raise Http404
    now = timezone.now()
    concurrency_limits.take(concurrency_limits.EXPORT_STARTS, accounts.place_key(request.user), now=now)
    read = audit.EvidenceRead(node=row.node.name, of_rescue=bundle.rescue, number=bundle.number, sha256=bundle.sha256)
    ledger.record(row.cluster.name, read, actor=accounts.actor(request.user), now=now)
    lines = excerpt.around(evidence.content(bundle), row.message.split(",")[0])
    return render(request, "console/parts/log_context.html", {"lines": lines, "rescue": bundle.rescue})


@require_http_methods(["GET", "POST"])
@signed_in
def close(request: Request, pk: int) -> HttpResponse:
    """Close an incident or a storm by hand; what the storm blocked is evaluated again."""
    seen = accounts.visible(request.user, Incident.objects.all())
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk)
    # Closing the fault of a two-person question would end the question.
    require(request, Verb.APPROVE if rescue.question_about(row) else Verb.CLOSE, row.node or row.cluster)
    form = forms.Act(request.POST or None)
    page = reverse("console:incident", args=(pk,))

    def close_it(given: dict[str, Any], now: datetime) -> None:
        if row.kind == STORM:  # it ends a guard for many nodes
            confirm(request)
        services.close_by_hand(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    if row.node is None:
        title = verb = _("Close the storm")
        text = _("Confirms that the cause is gone. Its nodes are evaluated again at once.")
    else:
        named = {"fault": fault_names.incident_name(row), "node": row.node.name}
        title, verb = _("Mark %(fault)s on %(node)s as resolved") % named, _("Mark as resolved")
        text = _("Closes the incident without verification. If the fault recurs, a new incident is opened.")
    address = reverse("console:incident-close", args=(pk,))
    shown: dict[str, Any] = {"address": address, "title": title, "text": text, "verb": verb, "icon": "check"}
    return form_dialog.act(request, form, close_it, back=page, more=lambda: _held(row), **shown)


def _held(row: Incident) -> dict[str, Any]:
    """What a storm holds back, and what its end leads to."""
    if row.kind != STORM or row.state != Incident.State.OPEN:
        return {"is_storm": row.kind == STORM}
    now = timezone.now()
    held, after = rescue.held_by_storm(row, now=now), rescue.after_storm(row, now=now)
    return {"is_storm": True, "held": held, "after": after}
