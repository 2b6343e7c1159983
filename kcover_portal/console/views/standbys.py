"""Warm standbys."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover.decisions import standby
from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import standbys as reads
from kcover_portal.policies import queries as policies


@require_GET
@signed_in
def standbys(request: Request) -> HttpResponse:
    """Standbys by pool, assignments, assignment rules and shortages."""
    clusters = list(accounts.clusters_of(request.user))
    context = {
        "standbys": reads.of(clusters, now=timezone.now()),
        "policy": policies.policies(policies.STANDBY).first(),
        "matches": policies.standby_rules(),
        "label": standby.LABEL,
    }
    return render(request, "console/pages/standbys.html", context)
