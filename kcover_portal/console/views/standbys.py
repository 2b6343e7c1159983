"""Warm standbys."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover.decisions import standby
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import presentation
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.forms import list_filters
from kcover_portal.console.reads import standbys as reads
from kcover_portal.policies import queries as policies


@require_GET
@signed_in
def standbys(request: Request) -> HttpResponse:
    """Standbys by pool, assignments, assignment rules and shortages."""
    now, listing = timezone.now(), reads.STANDBYS
    found = reads.of(list(reads.clusters(request.user, request.GET)), now=now)
    is_narrowed = any((asked := listing.asked(request.GET)).values())
    pools = [(pool, reads.chosen(pool.spares, request.GET)) for pool in found.pools]
    context = {
        "standbys": found,
        "pools": [(pool, spares) for pool, spares in pools if spares or not is_narrowed],
        "is_narrowed": is_narrowed,
        "list": listing,
        "problems": listing.problems(request.GET),
        "form": list_filters.of_computed(asked, _choices(request)),
        "policy": policies.policies(policies.STANDBY).first(),
        "matches": policies.standby_rules(),
        "label": standby.LABEL,
    }
    return render(request, "console/pages/standbys.html", context)


def _choices(request: Request) -> dict[str, list[tuple[str, Any]]]:
    return {
        "cluster": [(name, name) for name in accounts.clusters_of(request.user).values_list("name", flat=True)],
        "state": [(state, presentation.TABLES["spare"][state].label) for state in reads.STANDBYS.choices["state"]],
    }
