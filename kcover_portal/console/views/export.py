"""Exports of lists."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover import audit
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import exports, lists, page_parameters
from kcover_portal.console.access import Request, place, signed_in
from kcover_portal.console.computed_lists import ComputedListing
from kcover_portal.console.list_query import ParameterProblem
from kcover_portal.console.reads.job_list import JOBS
from kcover_portal.console.reads.standbys import STANDBYS
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import localization
from kcover_portal.runtime.services import concurrency_limits

MAX_QUERY = 1000  # characters of the filters in the audit log
TEXT = "text/plain; charset=utf-8"
COMPUTED: Final[Mapping[str, ComputedListing[Any]]] = {one.name: one for one in (JOBS, STANDBYS)}


@require_GET
@signed_in
def export(request: Request, name: str, shape: str) -> HttpResponseBase:
    """The whole list with the same filters as the page; 400 for a bad filter, 429 while no place is free.

    Each export is in the audit log, which cannot be pruned, so a person may start only a few exports a minute.
    """
    if shape not in exports.SHAPES:
        raise Http404
    if name in COMPUTED:
        return _computed(request, COMPUTED[name], shape)
    listing = lists.LISTINGS.get(name)
    if listing is None:
        raise Http404
    found = lists.find(listing, request.user, request.GET)
    if problems := found.problems:
        return _refused(problems)
    now = timezone.now()
    place = begin(request, name, shape, query=found.query, now=now)
    return exports.response(found, shape, today=now.date(), place=place)


def _computed(request: Request, listing: ComputedListing[Any], shape: str) -> HttpResponseBase:
    """The export of rows that no table has; 503 if a cluster does not answer, because its rows would be missing."""
    now = timezone.now()
    if problems := [*page_parameters.unknown_to(listing.name, request.GET), *listing.problems(request.GET)]:
        return _refused(problems)
    with place(request, concurrency_limits.CLUSTER_READS):
        found = listing.find(request.user, request.GET, now)
    if found.missing:
        text = "\n".join(f"{cluster}: {localization.say(because)}" for cluster, because in found.missing)
        return HttpResponse(text, status=503, content_type=TEXT)
    slot = begin(request, listing.name, shape, query=request.GET.urlencode(), now=now)
    rows = iter(listing.exported(found.rows))
    return exports.stream(listing.name, list(listing.columns), rows, shape, today=now.date(), place=slot)


def _refused(problems: Sequence[ParameterProblem]) -> HttpResponse:
    text = "\n".join(f"{problem.name}: {localization.say(problem.reason)}" for problem in problems)
    return HttpResponse(text, status=400, content_type=TEXT)


def begin(request: Request, name: str, shape: str, *, query: str, now: datetime) -> concurrency_limits.ConcurrencySlot:
    """Takes a place for an export, and records it. Raises Busy."""
    who = accounts.place_key(request.user)
    place = concurrency_limits.take(concurrency_limits.EXPORTS, who, now=now)
    try:
        concurrency_limits.take(
            concurrency_limits.EXPORT_STARTS, who, now=now
        )  # never given back: it ends after its time
    except concurrency_limits.Busy:
        place.give_back(now=now)
        raise
    act = audit.ListExported(name=name, shape=shape, query=query[:MAX_QUERY])
    ledger.record("", act, actor=accounts.actor(request.user), now=now)
    return place
