"""The portal's own state."""

from datetime import timedelta

from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import load_charts, system as reads
from kcover_portal.runtime import queries as runtime
from kcover_portal.shared_reads import due_work, portal_checks

SWEEP_LATE = timedelta(seconds=30)
WATCH_LATE = timedelta(seconds=120)
QUEUE_LATE = timedelta(seconds=10)


@require_GET
@signed_in
def system(request: Request) -> HttpResponse:
    """Agents, queue and watches of the visible clusters, the sweep and the database."""
    now = timezone.now()
    clusters = list(accounts.clusters_of(request.user))
    queue = due_work.of(clusters, now=now)
    sweep = runtime.heartbeat("sweep")
    context = {
        "agents": reads.agents(clusters, now=now),
        "queue": queue,
        "queue_well": queue.oldest is None or now - queue.oldest <= QUEUE_LATE,
        "sweep": sweep,
        "sweep_well": reads.fresh(sweep, now=now, limit=SWEEP_LATE),
        "watches": [
            (cluster, reads.fresh(cluster.watched_at, now=now, limit=WATCH_LATE) and not cluster.watch_error)
            for cluster in clusters
        ],
        "database": connection.display_name,
        "problems": portal_checks.seen_by(request.user, now=now),
        "bytes": reads.database_bytes(),
        "sees_load": accounts.scope(request.user).wide,
    }
    return render(request, "console/pages/system.html", context)


@require_GET
@signed_in
def load(request: Request) -> HttpResponse:
    """What the portal had to do over the last day: of all clusters, so for people who see all of them."""
    if not accounts.scope(request.user).wide:
        raise PermissionDenied
    return render(request, "console/parts/load.html", {"charts": load_charts.of(now=timezone.now())})
