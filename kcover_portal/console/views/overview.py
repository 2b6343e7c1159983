"""The overview page, its trends and the fleet map."""

import json

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.forms.cluster_settings import DOMAINS
from kcover_portal.console.reads import fleet, fleet_map, needs, not_ready, overview as reads, safety, standbys, trends
from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.policies import queries as policies
from kcover_portal.shared_reads import pack_previews

TWIN_ROWS = 300  # nodes in the map's table; the list of nodes has all of them


@require_GET
@signed_in
def overview(request: Request) -> HttpResponse:
    """The home page. Without clusters, it shows how to enrol the first one."""
    now = timezone.now()
    seen = accounts.scope(request.user)
    clusters = list(seen.clusters())
    whole = [cluster for cluster in clusters if cluster in seen]
    summary = fleet.summary(seen, now=now)
    away = {cluster.name for cluster in clusters if fleet_queries.out_of_reach(cluster, now=now)}
    context = {
        "clusters": clusters,
        "no_policy": not policies.policies().exists(),
        "first_choice": pack_previews.is_first_choice_open(),
        "total": summary.nodes,
        "gpus": summary.gpus,
        "counts": reads.counts(summary.counts),
        "needs": needs.of(request.user, clusters, now=now),
        "healed": reads.healed(seen, now=now),
        "again": reads.rebooted_again(seen, now=now),
        "silent": [tile for tile in summary.troubled if tile.is_silent and tile.cluster not in away],
        "not_ready": not_ready.of(summary.troubled, out_of_reach=away, now=now),
        "active": reads.active(seen, now=now),
        "gauges": safety.gauges(whole, now=now),
        "standbys": standbys.of(whole, now=now),
        "recent": reads.recent_incidents(seen),
        "map": fleet_map.choice(request.GET.dict()),
        "groupings": [(domain, DOMAINS[domain]) for domain in fleet_map.GROUPINGS],
    }
    return render(request, "console/pages/overview.html", context)


@require_GET
@signed_in
def trend(request: Request) -> HttpResponse:
    """The trends of a span; a separate request, since the page is reloaded with every signal."""
    now = timezone.now()
    seen = accounts.scope(request.user)
    asked = request.GET.get("span", "")
    span = asked if asked in trends.SPANS else trends.USUAL
    found = trends.faults(seen, now=now, span=span)
    context = {
        "spans": trends.SPANS,
        "span": span,
        "own": reverse("console:trends"),
        "length": trends.SPANS[span].label,
        "recovery": trends.recovery(seen, now=now, span=span),
        "trend": found,
        "starts": json.dumps(found.starts),
        "series": json.dumps(found.series),
    }
    return render(request, "console/parts/trends.html", context)


@require_GET
@signed_in
def map_data(request: Request) -> HttpResponse:
    """Every node and GPU in a compact form for the canvas."""
    chosen = fleet_map.choice(request.GET.dict())
    groups = fleet_map.groups(accounts.scope(request.user), chosen.by, now=timezone.now())
    return HttpResponse(fleet_map.packed(groups), content_type="application/json")


@require_GET
@signed_in
def map_table(request: Request) -> HttpResponse:
    """The map as a table: groups with their counts, and each node that is not healthy or that is looked for.

    A page of its own, and the table alone for the map's own page.
    """
    chosen = fleet_map.choice(request.GET.dict())
    groups = fleet_map.matching(fleet_map.groups(accounts.scope(request.user), chosen.by, now=timezone.now()), chosen)
    listed = [(group, tile) for group in groups for tile in group.tiles if chosen.narrows or tile.state != "healthy"]
    listed.sort(key=lambda one: fleet.URGENCY[one[1].state])
    context = {
        "groups": groups[:TWIN_ROWS],
        "more_groups": max(0, len(groups) - TWIN_ROWS),
        "by": DOMAINS[chosen.by],
        "groupings": [(domain, DOMAINS[domain]) for domain in fleet_map.GROUPINGS],
        "chosen": chosen,
        "listed": listed[:TWIN_ROWS],
        "more": max(0, len(listed) - TWIN_ROWS),
    }
    alone = request.htmx and request.htmx.target != "live"
    return render(request, "console/parts/map_table.html" if alone else "console/pages/map.html", context)
