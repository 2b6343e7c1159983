"""Roll back or disable a policy."""

from collections.abc import Iterable

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal import localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import forms
from kcover_portal.console.access import Request, dialog, lead, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.views.policies import parts
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.policies.services.yaml_reader import Problem


@require_http_methods(["GET", "POST"])
@signed_in
def rollback(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Ask for a reason (GET), then publish an earlier revision again as a new one (POST)."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name)
    old = get_object_or_404(row.revisions, number=parts.number(request, "revision") or 0)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        confirm(request)
        try:
            services.rollback(
                name,
                old.number,
                kind=kind,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                expected=parts.expected(request),
            )
        except services.Conflict as error:
            form.add_error(None, localization.say(error.reason))
        except services.InvalidPolicies as error:
            form.add_error(None, [_placed(problem) for problem in error.problems])
        else:
            return lead(request, parts.addresses(row)["page"])
    live = queries.revision(row)
    lines = parts.lines(services.compare_revisions(live, old).lines) if live is not None else []
    return _ask(request, row, form, verb="rollback", old=old, lines=lines)


@require_http_methods(["GET", "POST"])
@signed_in
def archive(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Ask for a reason (GET), then disable the policy (POST); its revisions are kept."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name, revision__gt=0)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        confirm(request)
        try:
            services.delete(
                name,
                kind=kind,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                expected=parts.expected(request),
            )
        except (services.Conflict, services.NotFound) as error:
            form.add_error(None, localization.say(error.reason))
        else:
            return lead(request, parts.addresses(row)["page"])
    return _ask(request, row, form, verb="archive")


def _ask(
    request: Request,
    row: Policy,
    form: forms.Act,
    *,
    verb: str,
    old: Revision | None = None,
    lines: Iterable[parts.Line] = (),
) -> HttpResponse:
    context = {
        "policy": row,
        "addresses": parts.addresses(row),
        "verb": verb,
        "old": old,
        "lines": lines,
        "form": form,
        "expected": request.POST.get("expected") or row.revision,
        "base": dialog(request),
    }
    return render(request, "console/pages/policy_act.html", context, status=422 if form.errors else 200)


def _placed(problem: Problem) -> str:
    """The problem with its position in the text."""
    place = _("Line %(line)s, column %(column)s") % {"line": problem.line, "column": problem.column}
    return _("%(place)s: %(problem)s") % {"place": place, "problem": localization.say(problem.reason)}
