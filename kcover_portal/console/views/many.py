"""One act on many rows of a list: a preview of what is hit (GET), then the act, row by row (POST)."""

import secrets
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, dialog, signed_in
from kcover_portal.console.reads import many

LIMIT = 100  # rows at once: each is looked up in its cluster
MANY = 5  # rows; above this the number is typed
VERBS = {"nodes": many.NODE_VERBS, "rescues": tuple(many.RESCUE_VERBS)}


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, name: str, verb: str) -> HttpResponse:
    """Hits exactly the rows that the preview named, as they were then; each has its own answer."""
    if verb not in VERBS.get(name, ()):
        raise Http404
    asked = request.POST if request.method == "POST" else request.GET
    seen = dict(part.partition(":")[::2] for part in asked.get("picked", "").split(",") if part)
    chosen = asked.copy()
    chosen["picked"] = ",".join(seen)
    if request.method == "POST":
        chosen.pop("all", None)  # what was not in the preview is not hit
    found = lists.find(lists.LISTINGS[name], request.user, chosen)
    rows = found.rows.select_related("node", "cluster") if name == "rescues" else found.rows.select_related("cluster")
    rows = rows.order_by("pk") if name == "rescues" else rows.order_by("cluster__name", "name")
    number = rows.count()
    context: dict[str, Any] = {"name": name, "verb": verb, "number": number, "limit": LIMIT, "base": dialog(request)}
    if not number or number > LIMIT:
        return render(request, "console/pages/many.html", {**context, "too_many": number > LIMIT}, status=422)
    picked = list(rows.prefetch_related("steps", "approvals") if name == "rescues" else rows)
    now = timezone.now()
    if name == "nodes":
        hits = many.preview_nodes(picked, verb, user=request.user, now=now)
    else:
        hits = many.preview_rescues(picked, verb, user=request.user)
    willing = [hit for hit in hits if not hit.refusals]
    pods = sum(hit.pods or 0 for hit in willing)
    # Once previewed, the number to type stays the one that was shown, whatever changed since.
    shown = len(seen) if request.method == "POST" else len(willing)
    form = forms.Act(request.POST or None, typed=f"{verb} {shown}" if shown > MANY or pods >= forms.MUCH else "")
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        if name == "nodes":
            once = request.POST.get("once", "")[:40] or secrets.token_hex(8)
            answers = many.act_on_nodes(picked, verb, user=request.user, reason=reason, once=once, now=now)
        else:
            plans = {int(key): plan for key, plan in seen.items()}
            answers = many.act_on_rescues(picked, verb, user=request.user, reason=reason, plans=plans, now=now)
        return render(request, "console/pages/many_done.html", {**context, "answers": answers})
    context |= {
        "form": form,
        "hits": hits,
        "willing": len(willing),
        "pods": pods,
        "picked": request.POST.get("picked") or ",".join(hit.key for hit in willing),
        "once": request.POST.get("once") or secrets.token_hex(8),
    }
    return render(request, "console/pages/many.html", context, status=422 if form.errors else 200)
