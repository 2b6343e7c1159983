"""Nodes: the list, one node, and actions on it."""

from datetime import datetime, timedelta
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.decisions import guards
from kcover.machines import part_serials
from kcover.nodes import marks
from kcover.plans import lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.checks import queries as checks
from kcover_portal.console import form_dialog, forms, lists
from kcover_portal.console.access import Request, lead, place, place_for_preview, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms.cluster_settings import DOMAINS
from kcover_portal.console.reads import (
    agent_report,
    approvals,
    bulk_actions,
    dashboards,
    fleet,
    gpu_figures,
    needs,
    node_acts,
    node_strip,
    not_ready,
    safety,
    system,
    timeline,
    waits,
)
from kcover_portal.console.reads.wait import Wait
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import NodeHealth
from kcover_portal.lib import localization
from kcover_portal.parts import queries as parts
from kcover_portal.parts.models import Part
from kcover_portal.repairs import queries as repairs
from kcover_portal.rescue import services
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import burn_ins, probations
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import node_status, node_work

PAGE_ROWS = 50
DASHBOARD_SHOWS = timedelta(hours=24)


@require_GET
@signed_in
@opens_first("nodes")
def nodes(request: Request) -> HttpResponse:
    """The list: filtered, sorted and paged by the URL."""
    now = timezone.now()
    found = lists.find(lists.NODES, request.user, request.GET)
    usual = () if found.sort else (node_status.trouble(now=now),)
    rows = found.ordered(*usual, "name", "cluster_id").select_related("cluster", "agent")
    page = Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))
    seen = accounts.scope(request.user)
    tiles = {tile.pk: tile for tile in fleet.tiles(seen, now=now, nodes=[node.pk for node in page.object_list])}
    wells = incidents.health_of(list(page.object_list), now=now)
    context = {
        "found": found,
        "form": forms.shown(
            request,
            found,
            *("q", "cluster", "pool", "status", "model", "driver", "label", "code", "probation", "burn_in"),
        ),
        "page": page,
        "rows": [
            (node, tiles.get(node.pk), wells[node.pk], fleet.shown_status(node, tiles.get(node.pk)))
            for node in page.object_list
        ],
        "usual": system.usual_version(seen.clusters()),
        "sort": found.sort,
        "any": found.seen.filter(gone_at=None).exists(),
        "verbs": bulk_actions.NODE_VERBS if accounts.may_somewhere(request.user, Verb.REPAIR) else (),
        "scoped": _scoped(request),
    }
    return render(request, "console/pages/nodes.html", context)


def _scoped(request: Request) -> list[tuple[str, str, str]]:
    """Address, icon and label of the forms that a selection of nodes can open."""
    offered = (
        (Verb.MAINTAIN, "console:maintenance-new", "tool", _("Schedule maintenance")),
        (Verb.CHECK, "console:check-run-new", "list-check", _("Run checks")),
    )
    return [
        (reverse(page), icon, label)
        for verb, page, icon, label in offered
        if accounts.scope(request.user, verb).has_clusters
    ]


@require_GET
@signed_in
def node(request: Request, cluster: str, name: str) -> HttpResponse:
    """One node: state, GPUs, incidents, decisions, timeline, and why it is not being healed."""
    row = _find(request, cluster, name)
    now = timezone.now()
    tile = next(iter(fleet.tiles(accounts.Scope.of(row.cluster), now=now, nodes=[row.pk])), None)
    well = incidents.health_of([row], now=now)[row.pk]
    state = tile.state if tile else "unknown"
    domains = fleet_queries.topology_of(row)
    opened = list(Incident.objects.filter(node=row, state=Incident.State.OPEN))
    sees_cluster = accounts.may(request.user, Verb.READ, row.cluster)
    active = Rescue.objects.filter(node=row, state__in=lifecycle.OPEN_RESCUE).select_related("cluster").first()
    away = [cluster] if fleet_queries.out_of_reach(row.cluster, now=now) else []
    context = {
        "node": row,
        "marks": marks.read(row.marks),
        "agent": getattr(row, "agent", None),
        "state": state,
        "health": well.node,
        "usual": system.usual_version([row.cluster]),
        "domains": [(name, domains[domain]) for domain, name in DOMAINS.items()],
        "cards": needs.about(request.user, row.cluster, [row], now=now),
        "validated": checks.last_validation(row),
        "sees_cluster": sees_cluster,
        "strip": node_strip.of(row, sees_cluster=sees_cluster, now=now),
        "validates": accounts.may(request.user, Verb.CHECK, row.cluster),
        "validate_query": f"?{forms.query(cluster=row.cluster.name, host=row.name)}",
        "gpus": _gpus(row, opened, well),
        "checks": list(row.checks.all()),
        "incidents": opened,
        "rescue": active,
        "rescues": Rescue.objects.filter(node=row).count(),
        "wait": _wait(active) if active else None,
        "decisions": list(Decision.objects.filter(node=row).select_related("incident")[:5]),
        "not_ready": not_ready.of([tile] if tile else [], out_of_reach=away, now=now),
        "why": timeline.why_not_healing(row, state=state, open_incidents=opened, now=now),
        "moments": timeline.of_node(row),
        "operates": (operates := accounts.may(request.user, Verb.REPAIR, row)),
        "verbs": node_acts.offered_to(request.user, row, active, opened, now=now) if operates else (),
        "reports": accounts.may(request.user, Verb.HANDLE_REPAIRS, row),
        "hardware": [one for one in parts.placed_in(row) if one.part.kind != Part.Kind.GPU],
        "repairs": list(repairs.open_of(row)),
        "probation": probations.on_node(row),
        "dashboard": dashboards.address(cluster, name, now - DASHBOARD_SHOWS, now),
        "burn_in_waits": localization.say(because) if (because := burn_ins.waits_because(row)) else "",
    }
    return render(request, "console/pages/node.html", context)


@require_GET
@signed_in
def figures(request: Request, cluster: str, name: str) -> HttpResponse:
    """What the GPUs of a node reported over time; a separate request, since the page is reloaded with every signal."""
    row = _find(request, cluster, name)
    return render(request, "console/parts/gpu_figures.html", {"history": gpu_figures.of(row, now=timezone.now())})


@require_GET
@signed_in
def report(request: Request, cluster: str, name: str) -> HttpResponse:
    """What the database holds of the reports of a node's agent; a separate request, because few people open it."""
    row = _find(request, cluster, name)
    found = agent_report.of(row)
    if found is None:
        raise Http404
    received_at, text = found
    context = {"node": row, "received_at": received_at, "report": text}
    return render(request, "console/parts/agent_report.html", context)


@require_GET
@signed_in
def work(request: Request, cluster: str, name: str) -> HttpResponse:
    """What runs on a node, and the rules for it; a separate request, since it asks the cluster."""
    row = _find(request, cluster, name)
    with place(request, concurrency_limits.CLUSTER_READS):
        found = node_work.of(row, accounts.scope(request.user), now=timezone.now())
    context = {"node": row, "work": found, "rules": node_work.rules(row)}
    return render(request, "console/parts/node_work.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, cluster: str, name: str, verb: str) -> HttpResponse:
    """A dry run (GET), then the request of a rescue with a reason (POST).

    If many pods are affected, the node's name must be typed.

    An approver may pass over guards that hold it back, each by its name.
    """
    if verb not in bulk_actions.NODE_VERBS:
        raise Http404
    row = _find(request, cluster, name)
    require(request, requests.right_for(verb), row)
    now = timezone.now()
    with place_for_preview(request):
        plan = services.preview(row, verb, now=now)
    holding = safety.holding(row, verb, now=now) if plan.held_back else {}
    passes = accounts.may(request.user, Verb.OVERRIDE, row)
    typed = row.name if forms.hits_much(plan.pods) else ""
    form = forms.NodeAct(request.POST or None, typed=typed, passable=guards.GUARDS if passes else ())

    def do(given: dict[str, Any], _now: datetime) -> HttpResponse:
        if given["override"] or requests.needs_factor(verb):
            confirm(request)
        actor, reason = accounts.actor(request.user), given["reason"]
        rescue = services.request(row, verb, actor=actor, reason=reason, now=now, override=given["override"])
        return lead(request, reverse("console:rescue", args=(rescue.pk,)))

    def more() -> dict[str, Any]:
        seen = accounts.scope(request.user)
        jobs = approvals.affected_jobs(row, seen, now=now) if plan.jobs else []
        return {"jobs": jobs, "rooms": node_acts.rooms(row, plan, now=now)}

    shown: dict[str, Any] = {"node": row, "verb": verb, "plan": plan, "holding": holding, "passes": passes}
    shown |= {"chosen": request.POST.getlist("override"), "page": "console/pages/node_act.html"}
    back = reverse("console:node", args=(cluster, name))
    return form_dialog.act(request, form, do, back=back, more=more, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def end_probation(request: Request, cluster: str, name: str) -> HttpResponse:
    """End the probation of a node early, with a reason."""
    row = _find(request, cluster, name)
    require(request, Verb.REPAIR, row)

    def end(given: dict[str, Any], now: datetime) -> None:
        services.end_probation(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    return form_dialog.act(
        request,
        forms.Act(request.POST or None),
        end,
        back=reverse("console:node", args=(cluster, name)),
        address=reverse("console:probation-end", args=(cluster, name)),
        title=_("End probation of %(node)s") % {"node": name},
        text=_("Label and taint are removed. Ordinary work may then be scheduled on the node."),
        verb=_("End probation"),
        icon="hourglass",
    )


def _wait(active: Rescue) -> Wait | None:
    steps = list(active.steps.all())
    return waits.of(active, steps, waits.ends_of_validations([steps]))


def _find(request: Request, cluster: str, name: str) -> Node:
    """The node, if the person can see it; else Http404."""
    return get_object_or_404(_seen(request).select_related("cluster", "agent"), cluster__name=cluster, name=name)


def _seen(request: Request) -> QuerySet[Node]:
    return accounts.visible(request.user, Node.objects.all(), node="")


def _gpus(row: Node, opened: list[Incident], well: NodeHealth) -> list[dict[str, Any]]:
    """The node's GPUs with their health and the open faults that name each of them."""
    placed = parts.present_in(row)
    return [
        {
            "gpu": gpu,
            "part": placed.get((Part.Kind.GPU, part_serials.known(gpu.serial), gpu.pci or str(gpu.index))),
            "health": well.gpus[gpu.pk],
            "faults": [
                incident
                for incident in opened
                if fleet.names({"gpu_uuid": incident.gpu_uuid, "device": incident.device}, uuid=gpu.uuid, pci=gpu.pci)
            ],
        }
        for gpu in row.devices.all()
    ]
