"""Rescues: the list by tabs, one rescue step by step, and actions on it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.plans import lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms, lists
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.fault_names import of_rescue
from kcover_portal.console.reads import approvals, bulk_actions, entries as records, rescues as reads, waits
from kcover_portal.console.rescue_tabs import TABS
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.evidence import queries as evidence
from kcover_portal.ledger import queries as ledger
from kcover_portal.policies import queries as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

PAGE_ROWS = 50
NEEDED = {
    "approve": Verb.APPROVE,
    "reject": Verb.APPROVE,
    "cancel": Verb.REPAIR,
    "retry": Verb.REPAIR,
    "skip": Verb.REPAIR,
}
PRESETS = {  # reasons that people give often; each can be changed before it is sent
    "approve": (_("Evidence checked"), _("Owner of the job informed"), _("Agreed with the team")),
    "reject": (_("The job must finish first"), _("False alarm"), _("Repaired by hand")),
}
CONFIRMED = ("approve", "skip")  # ask for a fresh second factor


@require_GET
@signed_in
@opens_first("rescues")
def rescues(request: Request) -> HttpResponse:
    """The list, newest first, in tabs with counts."""
    found = lists.find(lists.RESCUES, request.user, request.GET)
    rows = found.ordered("-id").select_related("node", "cluster", "decision").prefetch_related("steps", "approvals")
    page = Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))
    context = {
        "found": found,
        "form": forms.shown(request, found, *("q", "cluster", "status", "code", "origin", "policy", "since", "until")),
        "tabs": [(tab.name, tab.label, found.narrowed.filter(tab.where).count()) for tab in TABS],
        "tab": request.GET.get("tab", "all"),
        "kept": [("tab", request.GET.get("tab", ""))],
        "page": page,
        "sort": found.sort,
        "rows": [_row(rescue) for rescue in page.object_list],
        "any": found.seen.exists(),
        "verbs": [
            verb
            for verb, (_say, role) in bulk_actions.RESCUE_VERBS.items()
            if accounts.may_somewhere(request.user, role)
        ],
    }
    return render(request, "console/pages/rescues.html", context)


def _row(rescue: Rescue) -> dict[str, Any]:
    steps = list(rescue.steps.all())
    done, total = reads.number_of(steps)
    step = reads.current(steps)
    return {
        "rescue": rescue,
        "state": needs_person.status_of(rescue),
        "cause": of_rescue(rescue) or reads.asked_for(steps),
        "done": done,
        "total": total,
        "step": reads.title(step) if step and rescue.state in lifecycle.OPEN_RESCUE else "",
    }


@require_GET
@signed_in
def rescue(request: Request, pk: int) -> HttpResponse:
    """One rescue: summary, steps with their calls, decision, and possible actions."""
    row = _find(request, pk)
    now = timezone.now()
    steps = list(row.steps.all())
    entries = list(ledger.timeline(row.cluster.name, rescue=row.pk).reverse())
    done, total = reads.number_of(steps)
    context = {
        "rescue": row,
        "state": needs_person.status_of(row),
        "summary": reads.summary(row, steps),
        "steps": reads.timeline(row, steps, entries, now=now),
        "done": done,
        "total": total,
        "due_at": reads.countdown(row, now=now),
        "wait": waits.of(row, steps, waits.ends_of_validations([steps])),
        "verified": {True: "yes", False: "no", None: "untried"}[row.verified],
        "entries": records.of_people(entries, rescue=row.pk),
        "question": approvals.question(row, user=request.user) if reads.awaits_approval(row) else None,
        "held_back": reads.held_back(row),
        "passed_over": reads.passed_over(row),
        "newer": _newer_revision(row),
        "incidents": list(row.incidents.all()),
        "evidence": evidence.of_rescue(row.pk),
        "verbs": [verb for verb in reads.offered(row, steps) if _may(request, verb, row)],
    }
    return render(request, "console/pages/rescue.html", context)


def _newer_revision(row: Rescue) -> int:
    """The active revision of the rescue's policy if it is another one; 0 if it is the same, or disabled."""
    if not row.policy:
        return 0
    active = policies.policies().filter(name=row.policy).values_list("revision", flat=True).first() or 0
    return active if active != row.revision else 0


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, pk: int, verb: str) -> HttpResponse:
    """Ask for a reason (GET), then act on the plan that was shown (POST)."""
    if verb not in NEEDED:
        raise Http404
    row = _find(request, pk)
    require(request, _needed(request, verb, row), row.node)
    form = forms.Act(request.POST or None)

    def do(given: dict[str, Any], now: datetime) -> HttpResponse:
        say: Callable[..., Rescue] = getattr(services, verb)
        say(
            row,
            actor=accounts.actor(request.user),
            reason=given["reason"],
            now=now,
            plan_hash=request.POST.get("plan_hash") or None,
            **({"via": "console"} if verb in ("approve", "reject") else {}),
            **({"approver": accounts.may(request.user, Verb.APPROVE, row.node)} if verb == "cancel" else {}),
            **({"step": _number(request.POST.get("step", ""))} if verb in ("retry", "skip") else {}),
        )
        return lead(request, _after(request, row, verb))

    def more() -> dict[str, Any]:
        steps = list(row.steps.all())
        asked = approvals.question(row, user=request.user) if verb in ("approve", "reject") else None
        return {"steps": steps, "step": reads.current(steps), "question": asked}

    page = {"page": "console/pages/rescue_act.html", "back": reverse("console:rescue", args=(pk,))}
    shown: dict[str, Any] = {"rescue": row, "verb": verb, "presets": PRESETS.get(verb, ()), **page}
    return form_dialog.act(request, form, do, step_up=verb in CONFIRMED, more=more, **shown)


def _after(request: Request, row: Rescue, verb: str) -> str:
    """Where an act leads: an answer on another page than the rescue's leads to the next request."""
    page = reverse("console:rescue", args=(row.pk,))
    here = (request.htmx.current_url_abs_path or "") if request.htmx else ""
    if verb not in ("approve", "reject") or not here or here.startswith(page):
        return page
    following = approvals.next_question(request.user, after=row.pk)
    place = f"#question-{following}" if following else ""
    return f"{reverse('console:approvals')}?answered={row.pk}{place}"


def _may(request: Request, verb: str, row: Rescue) -> bool:
    return accounts.may(request.user, _needed(request, verb, row), row.node)


def _needed(request: Request, verb: str, row: Rescue) -> Verb:
    """The verb for an action. Whoever requested what two people must approve withdraws it without another role."""
    own = accounts.actor(request.user) in row.requesters[:1]
    return Verb.APPROVE if verb == "cancel" and services.is_held_question(row) and not own else NEEDED[verb]


def _number(text: str) -> int | None:
    """The index of the step that was shown, or None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len("32767") else None


def _find(request: Request, pk: int) -> Rescue:
    seen: QuerySet[Rescue] = accounts.visible(request.user, Rescue.objects.all())
    return get_object_or_404(
        seen.select_related("node", "cluster", "decision").prefetch_related("steps", "approvals", "incidents"), pk=pk
    )
