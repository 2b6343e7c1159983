"""Pages of policies: the list, one policy with its revisions, and the difference of two."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Q
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from kcover.decisions import match
from kcover.policy import document
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import lists
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import report_words
from kcover_portal.console.views.policies import parts
from kcover_portal.lib import localization
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.rescue.models import Rescue


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How rescues ended. ``finished``: by themselves; ``healed``: of these, with a node that was verified healthy."""

    number: int
    last: datetime
    finished: int
    healed: int

    @classmethod
    def together(cls, several: Collection["Outcomes"]) -> "Outcomes | None":
        """Their sum; None without any."""
        if not several:
            return None
        numbers = ([getattr(one, name) for one in several] for name in ("number", "finished", "healed"))
        number, finished, healed = map(sum, numbers)
        return cls(number, max(one.last for one in several), finished, healed)

    @property
    def share(self) -> str:
        """The healed ones among the finished ones, in per cent."""
        return report_words.percent(self.healed / self.finished, digits=0) if self.finished else ""


@require_GET
@signed_in
def policies(request: Request) -> HttpResponse:
    """Active policies with their rules in order of evaluation, the standby policy, and disabled policies."""
    revisions = list(queries.in_force())
    outcomes = _outcomes(request, [revision.policy.name for revision in revisions])
    rows = [
        {
            "policy": revision.policy,
            "revision": revision,
            "rules": _rules(revision.document),
            "outcomes": (of_rules := outcomes.get(revision.policy.name, {})),
            "rescues": Outcomes.together(of_rules.values()),
        }
        for revision in revisions
    ]
    context = {
        "rows": rows,
        "ranked": match.rank(queries.candidates()),
        "standbys": [{"revision": row, "matches": _matches(row.document)} for row in queries.in_force(queries.STANDBY)],
        "archived": [*queries.archived(), *queries.archived(queries.STANDBY)],
    }
    return render(request, "console/pages/policies.html", context)


def _outcomes(request: Request, names: list[str]) -> dict[str, dict[str, Outcomes]]:
    """The rescues of each policy by rule (``heal#2``), in one query."""
    rows = accounts.visible(request.user, Rescue.objects.filter(policy__in=names)).order_by().values("policy", "rule")
    finished = Q(state__in=(Rescue.State.SUCCEEDED, Rescue.State.FAILED))
    counted = rows.annotate(
        number=Count("pk"),
        last=Max("opened_at"),
        finished=Count("pk", filter=finished),
        healed=Count("pk", filter=finished & Q(verified=True)),
    )
    found: dict[str, dict[str, Outcomes]] = {}
    for row in counted:
        outcomes = Outcomes(**{name: row[name] for name in ("number", "last", "finished", "healed")})
        found.setdefault(row["policy"], {})[row["rule"]] = outcomes
    return found


def _rules(content: Any) -> tuple[document.Rule, ...]:
    """The parsed rules; empty for a text that this version cannot read."""
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
    number = parts.number(request, "revision") or row.revision or (revisions[0].number if revisions else 0)
    chosen = get_object_or_404(row.revisions, number=number)
    before = row.revisions.filter(number__lt=number).first()
    context = {
        "policy": row,
        "addresses": parts.addresses(row),
        "revisions": revisions,
        "revision": chosen,
        "before": before,
        "rules": _rules(chosen.document),
        "outcomes": _outcomes(request, [name]).get(name, {}),
        "matches": _matches(chosen.document),
        "lines": parts.lines(services.compare_revisions(before, chosen).lines) if before is not None else [],
        "found": lists.find(lists.REVISIONS, request.user, QueryDict(urlencode({"policy": name}))),
    }
    return render(request, "console/pages/policy.html", context)


@require_GET
@signed_in
def difference(request: Request, name: str, kind: str = queries.RESCUE) -> HttpResponse:
    """The changes between two revisions; by default since the one before the active one."""
    row = get_object_or_404(Policy, kind=kind, name=name)
    revisions = list(row.revisions.all())
    newer = parts.number(request, "to") or row.revision or (revisions[0].number if revisions else 0)
    older = parts.number(request, "from") or next((old.number for old in revisions if old.number < newer), newer)
    try:
        old, new = services.two_revisions(name, older, newer, kind=kind)
    except services.NotFound as error:
        raise Http404(localization.say(error.reason)) from error
    found = services.compare_revisions(old, new)
    context = {
        "policy": row,
        "addresses": parts.addresses(row),
        "revisions": revisions,
        "old": old,
        "new": new,
        "lines": parts.lines(found.lines),
        "changes": found.changes,
    }
    return render(request, "console/pages/policy_diff.html", context)
