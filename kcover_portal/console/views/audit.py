"""The ledger: who did what, and the proof that nobody rewrote it."""

from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, signed_in
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Entry

PAGE = 100
FIELDS = ("q", "cluster", "actor", "verb", "node")


@require_GET
@signed_in
def audit(request: Request) -> HttpResponse:
    """Entries, newest first; older ones by key, so that a page never moves under the reader."""
    rows = _seen(request)
    asked = {name: request.GET.get(name, "").strip() for name in FIELDS}
    if asked["cluster"]:
        rows = rows.filter(cluster=asked["cluster"])
    if asked["node"]:
        rows = rows.filter(node=asked["node"])
    if asked["actor"]:
        rows = rows.filter(actor__icontains=asked["actor"])
    if asked["verb"]:
        rows = rows.filter(verb__startswith=asked["verb"])
    if asked["q"]:
        rows = rows.filter(Q(subject__icontains=asked["q"]) | Q(node__icontains=asked["q"]))
    before = request.GET.get("before", "")
    if before.isdecimal():
        rows = rows.filter(pk__lt=int(before))
    entries = list(rows.order_by("-pk")[: PAGE + 1])
    context = {
        "entries": entries[:PAGE],
        "older": entries[PAGE - 1].pk if len(entries) > PAGE else None,
        "before": before,
        "asked": asked,
        "filtered": any(asked.values()),
        "clusters": list(accounts.clusters_of(request.user).values_list("name", flat=True)),
    }
    return render(request, "console/pages/audit.html", context)


@require_POST
@signed_in
def verify(request: Request) -> HttpResponse:
    """Walks every chain that the person may see."""
    chains = set(_seen(request).order_by().values_list("cluster", flat=True).distinct())
    verdicts = [queries.verify(chain) for chain in sorted(chains)]
    return render(request, "console/parts/verdicts.html", {"verdicts": verdicts})


def _seen(request: Request) -> QuerySet[Entry]:
    """Entries of the person's clusters; the installation's own only for those whose role covers everything."""
    if accounts.sees_all(request.user):
        return Entry.objects.all()
    return Entry.objects.filter(cluster__in=accounts.clusters_of(request.user).values("name"))
