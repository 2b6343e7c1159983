"""Roll back or disable a policy."""

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.views.policies import parts
from kcover_portal.lib import localization
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services.yaml_reader import Problem


@require_http_methods(["GET", "POST"])
@signed_in
def rollback(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Ask for a reason (GET), then publish an earlier revision again as a new one (POST)."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name)
    old = get_object_or_404(row.revisions, number=parts.number(request, "revision") or 0)
    form = forms.Act(request.POST or None)
    shown = {**_shown(request, row, "rollback"), "old": old}

    def difference() -> dict[str, Any]:
        live = queries.revision(row)
        return {"lines": parts.lines(services.compare_revisions(live, old).lines) if live is not None else []}

    def do(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        author, expected = accounts.actor(request.user), parts.expected(request)
        reason = given["reason"]
        try:
            services.rollback(name, old.number, kind=kind, author=author, reason=reason, now=now, expected=expected)
        except services.InvalidPolicies as error:
            form.add_error(None, [_placed(problem) for problem in error.problems])
            return form_dialog.ask(request, form, **shown, **difference())
        return None

    return form_dialog.act(request, form, do, step_up=True, more=difference, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def archive(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """Ask for a reason (GET), then disable the policy (POST); its revisions are kept."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name, revision__gt=0)
    form = forms.Act(request.POST or None)

    def do(given: dict[str, Any], now: datetime) -> None:
        author, expected = accounts.actor(request.user), parts.expected(request)
        services.delete(name, kind=kind, author=author, reason=given["reason"], now=now, expected=expected)

    return form_dialog.act(request, form, do, step_up=True, **_shown(request, row, "archive"))


def _shown(request: Request, row: Policy, verb: str) -> dict[str, Any]:
    addresses = parts.addresses(row)
    return {
        "policy": row,
        "addresses": addresses,
        "verb": verb,
        "expected": request.POST.get("expected") or row.revision,
        "back": addresses["page"],
        "page": "console/pages/policy_act.html",
    }


def _placed(problem: Problem) -> str:
    """The problem with its position in the text."""
    place = _("Line %(line)s, column %(column)s") % {"line": problem.line, "column": problem.column}
    return _("%(place)s: %(problem)s") % {"place": place, "problem": localization.say(problem.reason)}
