"""Search by name or number: the box at the top, and the command palette."""

from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from kcover_portal.accounts import queries as accounts
from kcover_portal.console import forms
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import search as reads
from kcover_portal.fleet.models import Node


@require_GET
@signed_in
def search(request: Request) -> HttpResponse:
    """Redirect to what has exactly this name or number, or to the nodes of similar names; else list what was found."""
    text = request.GET.get("q", "").replace("\0", "").strip()[: reads.MAX_TEXT]
    exact = accounts.visible(request.user, Node.objects.filter(name=text), node="").select_related("cluster")
    if text and len(found := list(exact[:2])) == 1:
        return redirect("console:node", cluster=found[0].cluster.name, name=found[0].name)
    hits = reads.find(request.user, text)
    kinds = {hit.kind for hit in hits}
    if kinds <= {"node"} or kinds == {"node", "code"}:  # many codes are about "gpu"
        return redirect(f"{reverse('console:nodes')}?{forms.query(q=text) or 'view=none'}")
    if len(hits) == 1:
        return redirect(hits[0].page)
    return render(request, "console/pages/search.html", {"hits": hits, "text": text})


@require_GET
@signed_in
def found(request: Request) -> JsonResponse:
    """What the palette offers for a text."""
    return JsonResponse({"hits": reads.as_json(reads.find(request.user, request.GET.get("q", "")))})
