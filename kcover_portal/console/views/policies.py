"""Policies: the list, one with its revisions, and the editor, whose mistakes are found by the server."""

import difflib
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover.policy import document
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role
from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.rescue.models import Rescue

SAMPLE = """\
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata:
  name: gpu-faults
spec:
  rules:
    - priority: 10
      errorCode: ["48", "62", "64"]
      mode: shadow
      actions:
        - name: cordon
        - name: drain
          attribute: {waittime: 10min}
        - name: reboot
          attribute: {unCordon: "true"}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference: mark is +, - or a space."""

    mark: str
    text: str


@require_GET
@signed_in
def policies(request: Request) -> HttpResponse:
    """Policies in force with their rules in the order in which they are asked."""
    rows = []
    for revision in queries.in_force():
        fired = Rescue.objects.filter(
            policy=revision.policy.name, cluster__in=accounts.clusters_of(request.user)
        ).order_by("-pk")
        rows.append(
            {
                "policy": revision.policy,
                "revision": revision,
                "rules": _rules(revision.document),
                "fired": fired.values_list("opened_at", flat=True).first(),
                "rescues": fired.count(),
            }
        )
    return render(request, "console/pages/policies.html", {"rows": rows})


def _rules(content: Any) -> tuple[document.Rule, ...]:
    """The rules as read; a text that this version cannot read has none, and its page says so."""
    try:
        policy = document.read(content)
    except document.PolicyInvalid:
        return ()
    return policy.rules if isinstance(policy, document.Policy) else ()


@require_GET
@signed_in
def policy(request: Request, name: str) -> HttpResponse:
    """One policy: a revision's text, what it changed, and all revisions."""
    row = get_object_or_404(Policy, name=name)
    revisions = list(row.revisions.all())
    asked = request.GET.get("revision", "")
    number = int(asked) if asked.isdecimal() else row.revision or (revisions[0].number if revisions else 0)
    chosen = get_object_or_404(row.revisions, number=number)
    before = row.revisions.filter(number__lt=number).first()
    context = {
        "policy": row,
        "revisions": revisions,
        "revision": chosen,
        "before": before,
        "rules": _rules(chosen.document),
        "lines": _difference(before.text, chosen.text) if before is not None else [],
        "found": lists.find(lists.REVISIONS, request.user, QueryDict(urlencode({"policy": name}))),
    }
    return render(request, "console/pages/policy.html", context)


def _difference(old: str, new: str) -> list[Line]:
    compared = difflib.ndiff(old.splitlines(), new.splitlines())
    return [Line(line[0], line[2:]) for line in compared if line[0] != "?"]


@require_http_methods(["GET", "POST"])
@signed_in
def edit(request: Request, name: str = "") -> HttpResponse:
    """The editor. Saving applies the whole text or nothing, and refuses when somebody else was faster."""
    require(request, Role.ADMIN, None)
    row = get_object_or_404(Policy, name=name) if name else None
    current = queries.revision(row) if row else None
    text = request.POST.get("text") or (current.text if current else SAMPLE)
    form = forms.Act(request.POST or None)
    reading = services.validate(text)
    conflict = ""
    if request.method == "POST" and form.is_valid() and not reading.problems:
        expected = request.POST.get("expected", "")
        try:
            made = services.apply(
                text,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                name=name or None,
                expected=int(expected) if name and expected.isdecimal() else None,
            )
        except services.Conflict as error:
            conflict = str(error)
        except services.Invalid as error:
            reading = services.Reading((), error.problems)
        else:
            return redirect(reverse("console:policy", args=(made[0].name,)))
    context = {
        "policy": row,
        "text": text,
        "expected": request.POST.get("expected") or (row.revision if row else ""),
        "form": form,
        "reading": reading,
        "conflict": conflict,
        "base": "console/base.html",
    }
    failed = request.method == "POST"
    return render(request, "console/pages/policy_edit.html", context, status=422 if failed else 200)


@require_POST
@signed_in
def validate(request: Request) -> HttpResponse:
    """What the server thinks of a text that is being written."""
    require(request, Role.ADMIN, None)
    reading = services.validate(request.POST.get("text", ""))
    return render(request, "console/parts/problems.html", {"reading": reading, "checked": _("just now")})
