"""The overview page, its trends and the fleet map."""

import json

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import fleet, needs, safety, standbys, trends
from kcover_portal.console.reads import overview as reads
from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.policies import queries as policies
from kcover_portal.views import pack_previews

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
        "needs": needs.of(seen, whole, now=now),
        "silent": [tile for tile in summary.troubled if tile.state == "silent" and tile.cluster not in away],
        "active": reads.active(seen, now=now),
        "gauges": safety.gauges(whole, now=now),
        "standbys": standbys.of(whole, now=now),
        "recent": reads.recent_incidents(seen),
    }
    return render(request, "console/pages/overview.html", context)


@require_GET
@signed_in
def trend(request: Request) -> HttpResponse:
    """The trends of a week; a separate request, since the page is reloaded with every signal."""
    now = timezone.now()
    seen = accounts.scope(request.user)
    found = trends.faults(seen, now=now)
    context = {
        "recovery": trends.recovery(seen, now=now),
        "trend": found,
        "starts": json.dumps(found.starts),
        "series": json.dumps(found.series),
    }
    return render(request, "console/parts/trends.html", context)


@require_GET
@signed_in
def fleet_map(request: Request) -> JsonResponse:
    """Every node and GPU in a compact form for the canvas."""
    tiles = fleet.tiles(accounts.scope(request.user), now=timezone.now())
    return JsonResponse(fleet.packed(fleet.grouped(tiles)), json_dumps_params={"separators": (",", ":")})


@require_GET
@signed_in
def map_table(request: Request) -> HttpResponse:
    """The map as a table: pools with their counts, and each node that is not healthy."""
    tiles = fleet.tiles(accounts.scope(request.user), now=timezone.now())
    groups = fleet.grouped(tiles)
    troubled = sorted((tile for group in groups for tile in group.troubled), key=lambda tile: fleet.URGENCY[tile.state])
    context = {"groups": groups, "troubled": troubled[:TWIN_ROWS], "more": max(0, len(troubled) - TWIN_ROWS)}
    return render(request, "console/pages/map.html", context)
