"""Policies of both kinds: the list, one with its revisions, what changed, the way back, and the editor, whose mistakes
are found by the server."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from kcover.policy import document
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role
from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, dialog, require, signed_in
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
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
ADDRESS = {queries.RESCUE: "policy", queries.STANDBY: "standby-policy"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference: mark is +, -, @ or a space."""

    mark: str
    text: str


@require_GET
@signed_in
def policies(request: Request) -> HttpResponse:
    """Policies in force with their rules in the order in which they are asked, the standby policy, and the archive."""
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
    context = {
        "rows": rows,
        "standbys": [{"revision": one, "matches": _matches(one.document)} for one in queries.in_force(queries.STANDBY)],
        "archived": [*queries.archived(), *queries.archived(queries.STANDBY)],
        "missing": services.missing_defaults(),
    }
    return render(request, "console/pages/policies.html", context)


def _rules(content: Any) -> tuple[document.Rule, ...]:
    """The rules as read; a text that this version cannot read has none, and its page says so."""
    policy = _read(content)
    return policy.rules if isinstance(policy, document.Policy) else ()


def _matches(content: Any) -> tuple[document.StandbyRule, ...]:
    policy = _read(content)
    return policy.matches if isinstance(policy, document.StandbyPolicy) else ()


def _read(content: Any) -> document.Policy | document.StandbyPolicy | None:
    try:
        return document.read(content)
    except document.PolicyInvalid:
        return None


@require_GET
@signed_in
def policy(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """One policy: a revision's text, what it changed, and all revisions."""
    row = get_object_or_404(Policy, kind=kind, name=name)
    revisions = list(row.revisions.all())
    number = _number(request, "revision") or row.revision or (revisions[0].number if revisions else 0)
    chosen = get_object_or_404(row.revisions, number=number)
    before = row.revisions.filter(number__lt=number).first()
    context = {
        "policy": row,
        "addresses": _addresses(row),
        "revisions": revisions,
        "revision": chosen,
        "before": before,
        "rules": _rules(chosen.document),
        "matches": _matches(chosen.document),
        "lines": _lines(services.compare_revisions(before, chosen).lines) if before is not None else [],
        "found": lists.find(lists.REVISIONS, request.user, QueryDict(urlencode({"policy": name}))),
    }
    return render(request, "console/pages/policy.html", context)


@require_GET
@signed_in
def difference(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """What changed between any two revisions; without numbers, since the one before that in force."""
    row = get_object_or_404(Policy, kind=kind, name=name)
    revisions = list(row.revisions.all())
    newer = _number(request, "to") or row.revision or (revisions[0].number if revisions else 0)
    older = _number(request, "from") or next((one.number for one in revisions if one.number < newer), newer)
    try:
        old, new = services.two_revisions(name, older, newer, kind=kind)
    except services.NotFound as error:
        raise Http404(str(error)) from error
    found = services.compare_revisions(old, new)
    context = {
        "policy": row,
        "addresses": _addresses(row),
        "revisions": revisions,
        "old": old,
        "new": new,
        "lines": _lines(found.lines),
        "changes": found.changes,
    }
    return render(request, "console/pages/policy_diff.html", context)


def _lines(unified: Iterable[str]) -> list[Line]:
    """The lines of a unified diff, without its head."""
    return [Line(line[:1], line[1:]) for line in list(unified)[2:]]


def _number(request: Request, name: str) -> int | None:
    """A revision's number from the query; anything else is as if it were not there."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None


def _addresses(row: Policy) -> dict[str, str]:
    """The addresses of a policy's pages, which depend on its kind."""
    base = ADDRESS[row.kind]
    verbs = ("edit", "diff", "rollback", "archive")
    return {"page": reverse(f"console:{base}", args=(row.name,))} | {
        verb: reverse(f"console:{base}-{verb}", args=(row.name,)) for verb in verbs
    }


@require_http_methods(["GET", "POST"])
@signed_in
def rollback(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Asks for a reason (GET), then puts an earlier revision's text in force again, as a new revision (POST)."""
    require(request, Role.ADMIN, None)
    row = get_object_or_404(Policy, kind=kind, name=name)
    old = get_object_or_404(row.revisions, number=_number(request, "revision") or 0)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            services.rollback(
                name,
                old.number,
                kind=kind,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                expected=_expected(request),
            )
        except (services.Conflict, services.Invalid) as error:
            form.add_error(None, str(error))
        else:
            return _done(request, _addresses(row)["page"])
    live = queries.revision(row)
    lines = _lines(services.compare_revisions(live, old).lines) if live is not None else []
    return _ask(request, row, form, verb="rollback", old=old, lines=lines)


@require_http_methods(["GET", "POST"])
@signed_in
def archive(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Asks for a reason (GET), then takes the policy out of force (POST); its revisions stay."""
    require(request, Role.ADMIN, None)
    row = get_object_or_404(Policy, kind=kind, name=name, revision__gt=0)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            services.delete(
                name,
                kind=kind,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                expected=_expected(request),
            )
        except (services.Conflict, services.NotFound) as error:
            form.add_error(None, str(error))
        else:
            return _done(request, _addresses(row)["page"])
    return _ask(request, row, form, verb="archive")


@require_POST
@signed_in
def install_defaults(request: Request) -> HttpResponse:
    """Puts the shipped policies in force, in shadow mode."""
    require(request, Role.ADMIN, None)
    services.install_defaults(author=accounts.actor(request.user), reason=_("the shipped policies"), now=timezone.now())
    return redirect("console:policies")


def _ask(
    request: Request,
    row: Policy,
    form: forms.Act,
    *,
    verb: str,
    old: Revision | None = None,
    lines: Iterable[Line] = (),
) -> HttpResponse:
    context = {
        "policy": row,
        "addresses": _addresses(row),
        "verb": verb,
        "old": old,
        "lines": lines,
        "form": form,
        "expected": request.POST.get("expected") or row.revision,
        "base": dialog(request),
    }
    return render(request, "console/pages/policy_act.html", context, status=422 if form.errors else 200)


def _done(request: Request, target: str) -> HttpResponse:
    return HttpResponseClientRedirect(target) if request.htmx else redirect(target)


def _expected(request: Request) -> int | None:
    """The revision that the person saw in force."""
    text = request.POST.get("expected", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None


@require_http_methods(["GET", "POST"])
@signed_in
def edit(request: Request, name: str = "", kind: str = queries.RESCUE) -> HttpResponse:
    """The editor. Saving applies the whole text or nothing, and refuses when somebody else was faster."""
    require(request, Role.ADMIN, None)
    row = get_object_or_404(Policy, kind=kind, name=name) if name else None
    current = queries.revision(row) if row else None
    text = request.POST.get("text") or (current.text if current else SAMPLE)
    form = forms.Act(request.POST or None)
    reading = services.validate(text)
    conflict = ""
    if request.method == "POST" and form.is_valid() and not reading.problems:
        try:
            made = services.apply(
                text,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                name=name or None,
                kind=kind,
                expected=_expected(request) if name else None,
            )
        except services.Conflict as error:
            conflict = str(error)
        except services.Invalid as error:
            reading = services.Reading((), error.problems)
        else:
            return redirect(_addresses(made[0])["page"])
    context = {
        "policy": row,
        "addresses": _addresses(row) if row else {},
        "text": text,
        "expected": request.POST.get("expected") or (row.revision if row else ""),
        "form": form,
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
    """What the server thinks of a text that is being written, and what it would change."""
    require(request, Role.ADMIN, None)
    reading = services.validate(request.POST.get("text", ""))
    context = {"reading": reading, "changed": _changed(reading), "checked": _("just now")}
    return render(request, "console/parts/problems.html", context)


def _changed(reading: services.Reading) -> list[dict[str, Any]]:
    """For every policy of the text that is in force: what would change."""
    if reading.problems:
        return []
    live = {
        (row.policy.kind, row.policy.name): row
        for kind in (queries.RESCUE, queries.STANDBY)
        for row in queries.in_force(kind)
    }
    changed = []
    for one in reading.policies:
        row = live.get(one.key)
        if row is not None:
            found = services.compare((row.text, row.document), (one.text, one.document))
            changed.append({"name": one.policy.name, "revision": row.number, "lines": _lines(found.lines)})
    return changed
