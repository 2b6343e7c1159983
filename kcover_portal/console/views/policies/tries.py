"""Try a policy before it is published: what would it have decided? Nothing is applied."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover.reasons import Reason
from kcover_portal.console import presentation
from kcover_portal.console.access import Request, later, place, signed_in
from kcover_portal.console.forms.policy_tries import Trial
from kcover_portal.console.list_query import KEY
from kcover_portal.console.policy_samples import SAMPLE
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, PolicyTry, Revision
from kcover_portal.rescue.decide import policy_tries as jobs
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import policy_tries

MAX_ROWS = 100  # differences on the page; the REST API returns all
EFFECT_DAYS = 7  # whose decisions the editor compares before a text is published


@require_http_methods(["GET", "POST"])
@signed_in
def begin(request: Request) -> HttpResponse:
    """Show the form (GET); begin a try (POST), from here or from the editor."""
    text = (
        request.POST.get("text", "")
        if request.method == "POST"
        else _text(request.GET.get("policy", "").replace("\0", ""))
    )
    form = Trial(request.POST if request.method == "POST" else None)
    shown: dict[str, Any] = {"form": form, "text": text}
    if request.method != "POST":
        return _show(request, shown)
    if not form.is_valid():
        return _show(request, shown, status=422)
    try:
        with place(request, concurrency_limits.VALIDATIONS):
            services.draft(text)
        now, counted = timezone.now(), _counted(request)
        if counted is not None:
            jobs.cancel(counted, now=now)  # the editor began it by itself, and this is asked for
        row = policy_tries.begin(request.user, text, **form.incidents(), now=now)
    except services.InvalidPolicies as error:
        return _show(request, shown | {"problems": error.problems}, status=422)
    except FieldError as error:
        form.add_error(error.field, localization.say(error.reason))
        return _show(request, shown, status=422)
    except jobs.TryRefused as error:
        form.add_error(None, localization.say(error.reason))
        running = policy_tries.tries(request.user).filter(state__in=PolicyTry.OPEN).first()
        return later(_show(request, shown | (_content(request, running) if running else {})), error)
    if request.htmx:
        return _show(request, shown | _content(request, row))
    return redirect("console:policy-try-one", row.pk)


@require_GET
@signed_in
def one(request: Request, pk: int) -> HttpResponse:
    """The progress and the results of the person's try."""
    row = get_object_or_404(policy_tries.tries(request.user), pk=pk)
    return _show(request, {"form": Trial(), "text": row.text, **_content(request, row)})


@require_POST
@signed_in
def cancel(request: Request, pk: int) -> HttpResponse:
    row = get_object_or_404(policy_tries.tries(request.user), pk=pk)
    jobs.cancel(row, now=timezone.now())
    row.refresh_from_db()
    if request.htmx:
        return _show(request, _content(request, row))
    return redirect("console:policy-try-one", pk)


@require_POST
@signed_in
def effect(request: Request) -> HttpResponse:
    """Begins to count how many of the last week's decisions a text would change.

    The editor asks when somebody is about to publish. The same text is not counted twice, and another text ends the
    count of the one before.
    """
    text, before, now = request.POST.get("text", ""), _counted(request), timezone.now()
    if before is not None and _holds(before, text):
        return _effect(request, before)
    if before is not None:
        jobs.cancel(before, now=now)
    try:
        with place(request, concurrency_limits.VALIDATIONS):
            services.draft(text)
        return _effect(request, policy_tries.begin(request.user, text, days=EFFECT_DAYS, now=now))
    except services.InvalidPolicies:
        return _effect(request)  # the validation beside it says why
    except jobs.TryRefused as error:
        return _effect(request, refusal=error.reason)


@require_GET
@signed_in
def one_effect(request: Request, pk: int) -> HttpResponse:
    """The progress of a count, then its result."""
    return _effect(request, get_object_or_404(policy_tries.tries(request.user), pk=pk))


def _counted(request: Request) -> PolicyTry | None:
    """The person's last count, which the editor names."""
    named = request.POST.get("counted", "")
    return policy_tries.tries(request.user).filter(pk=named).first() if KEY.fullmatch(named) else None


def _holds(row: PolicyTry, text: str) -> bool:
    """Returns whether the count is about this text, and no policy was published since."""
    if row.text != text or row.state not in (*PolicyTry.OPEN, PolicyTry.State.DONE):
        return False
    return not Revision.objects.filter(at__gte=row.requested_at).exists()


def _effect(request: Request, row: PolicyTry | None = None, *, refusal: Reason | None = None) -> HttpResponse:
    is_open = row is not None and row.state in PolicyTry.OPEN
    context = {"days": EFFECT_DAYS, "tried": row, "open": is_open, "refusal": refusal}
    if row is not None:
        context["done"] = row.total - len(row.pending)
        context["changed"] = 0 if is_open else len(policy_tries.summary(request.user, row).changed)
    return render(request, "console/parts/policy_effect.html", context)


def _text(name: str) -> str:
    """The active text of a policy, or a sample."""
    policy = Policy.objects.filter(kind=queries.RESCUE, name=name, revision__gt=0).first()
    revision = queries.revision(policy) if policy is not None else None
    return revision.text if revision is not None else SAMPLE


def _content(request: Request, row: PolicyTry) -> dict[str, Any]:
    found = policy_tries.summary(request.user, row)
    changed = found.changed
    answers = [name for name in presentation.TABLES["answer"] if found.before[name] or found.after[name]]
    return {
        "tried": row,
        "open": row.state in PolicyTry.OPEN,
        "found": found,
        "answers": [(name, found.before[name], found.after[name]) for name in answers],
        "rules": found.rules.most_common(),
        "guards": found.guards.most_common(),
        "changed": changed[:MAX_ROWS],
        "more": len(changed) - MAX_ROWS if len(changed) > MAX_ROWS else 0,
        "nodes": [tuple(name.split("/", 1)) for name in found.nodes[:MAX_ROWS]],
    }


def _show(request: Request, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    template = "console/parts/policy_try.html" if request.htmx else "console/pages/policy_try.html"
    return render(request, template, context, status=status)
