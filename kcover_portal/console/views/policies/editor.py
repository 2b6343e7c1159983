"""The policy editor, validated by the server."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from kcover import audit, masked_addresses
from kcover_portal import localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import forms
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms.policy_tries import Trial
from kcover_portal.console.views.policies import parts
from kcover_portal.ledger import services as ledger
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.runtime.services import concurrency_limits

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


@require_http_methods(["GET", "POST"])
@signed_in
def edit(request: Request, name: str = "", kind: str = queries.RESCUE) -> HttpResponse:
    """The editor. Saving applies the whole text or nothing, and fails if someone else published in between."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name) if name else None
    current = queries.revision(row) if row else None
    text = request.POST.get("text") or (current.text if current else SAMPLE)
    form = forms.Act(request.POST or None)
    if current and request.method == "GET" and masked_addresses.has_key(text):
        act = audit.SecretRead(policy=name, standby=kind != queries.RESCUE)
        ledger.record("", act, actor=accounts.actor(request.user), now=timezone.now())
    reading = services.validate(text)
    conflict = ""
    if request.method == "POST" and form.is_valid() and not reading.problems:
        confirm(request)
        try:
            applied = services.apply(
                text,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                name=name or None,
                kind=kind,
                expected=parts.expected(request) if name else None,
            )
        except services.Conflict as error:
            conflict = localization.say(error.reason)
        except services.InvalidPolicies as error:
            reading = services.ValidationResult((), error.problems)
        else:
            return redirect(parts.addresses(applied[0])["page"])
    context = {
        "policy": row,
        "addresses": parts.addresses(row) if row else {},
        "text": text,
        "expected": request.POST.get("expected") or (row.revision if row else ""),
        "form": form,
        "tries": kind == queries.RESCUE,
        "trial": Trial(),
        "reading": reading,
        "changed": _changed(reading),
        "conflict": conflict,
        "base": "console/base.html",
    }
    failed = request.method == "POST"
    return render(request, "console/pages/policy_edit.html", context, status=422 if failed else 200)


@require_POST
@signed_in
def validate(request: Request) -> HttpResponse:
    """Validation of a text that is being edited, with its changes."""
    require(request, Verb.WRITE_POLICIES, None)
    with place(request, concurrency_limits.VALIDATIONS):
        reading = services.validate(request.POST.get("text", ""))
    context = {"reading": reading, "changed": _changed(reading), "checked": _("just now")}
    return render(request, "console/parts/problems.html", context)


def _changed(reading: services.ValidationResult) -> list[dict[str, Any]]:
    """The changes to every active policy of the text."""
    if reading.problems:
        return []
    live = {
        (row.policy.kind, row.policy.name): row
        for kind in (queries.RESCUE, queries.STANDBY)
        for row in queries.in_force(kind)
    }
    changed = []
    for policy in reading.policies:
        row = live.get(policy.key)
        if row is not None:
            found = services.compare((row.text, row.document), (policy.text, policy.document))
            changed.append({"name": policy.policy.name, "revision": row.number, "lines": parts.lines(found.lines)})
    return changed
