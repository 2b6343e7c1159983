"""What people do about a need, and the number of needs in the navigation."""

from datetime import datetime
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import form_dialog
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.forms import needs as forms
from kcover_portal.console.reads import needs as reads
from kcover_portal.lib import localization
from kcover_portal.needs import queries, services

MAX_PEOPLE = 200
LOOKS: dict[str, tuple[str | Promise, str, str | Promise]] = {
    "acknowledge": (
        _("Acknowledge"),
        "check",
        _("Tells others that you take care. It stays on the list. A new node or a higher severity ends this."),
    ),
    "unacknowledge": (
        _("Withdraw acknowledgement"),
        "x",
        _("Tells others that nobody takes care of it now. The audit log keeps the acknowledgement."),
    ),
    "assign": (_("Assign"), "user", _("Makes somebody responsible. It stays on the list.")),
    "snooze": (
        _("Snooze"),
        "clock",
        _("Moves it to the end of the list for this time. A new node or a higher severity brings it back."),
    ),
    "note": (_("Add a note"), "clipboard-list", _("For whoever looks at this next.")),
}


@require_GET
@signed_in
def count(request: Request) -> HttpResponse:
    """The number in the navigation; a request of its own, because every page shows it and few need it."""
    return render(request, "console/parts/needs_count.html", {"number": reads.number(request.user, now=timezone.now())})


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, need: str, verb: str) -> HttpResponse:
    """Ask (GET), then record the act (POST), and lead back to the page of the card."""
    if verb not in LOOKS:
        raise Http404
    scope = accounts.scope(request.user)
    entry = queries.entry(scope, list(scope.clusters()), need, now=timezone.now())
    if entry is None:
        raise Http404
    for place in services.places_of(entry):
        require(request, Verb.REPAIR, place)
    form = _form(request, entry, verb)
    actor = accounts.actor(request.user)

    def do(given: dict[str, Any], now: datetime) -> None:
        match verb:
            case "acknowledge":
                services.acknowledge(entry, actor=actor, reason=given["reason"], now=now)
            case "unacknowledge":
                services.unacknowledge(entry, actor=actor, reason=given["reason"], now=now)
            case "assign":
                services.assign(entry, assignee=given["assignee"], actor=actor, reason=given["reason"], now=now)
            case "snooze":
                services.snooze(entry, until=form.until(now), actor=actor, reason=given["reason"], now=now)
            case _:
                services.note(entry, text=given["text"], actor=actor, now=now)

    label, icon, text = LOOKS[verb]
    return form_dialog.act(
        request,
        form,
        do,
        back=(request.htmx.current_url_abs_path if request.htmx else None) or reverse("console:overview"),
        address=reverse("console:need-act", args=(need, verb)),
        title=f"{label}: {localization.say(entry.what).removesuffix('.')}",
        text=text,
        verb=label,
        icon=icon,
    )


def _form(request: Request, entry: queries.Entry, verb: str) -> Any:
    data = request.POST or None
    match verb:
        case "acknowledge" | "unacknowledge":
            return forms.Words({} if request.method == "POST" and data is None else data)
        case "assign":
            return forms.Assign(data, people=_people(entry), chosen=request.user.get_username())
        case "snooze":
            return forms.Snooze(data)
        case _:
            return forms.Note(data)


def _people(entry: queries.Entry) -> list[User]:
    """Those who may act on all of its nodes."""
    people = User.objects.filter(is_active=True).prefetch_related("bindings").order_by("username")[:MAX_PEOPLE]
    places = services.places_of(entry)
    return [person for person in people if all(accounts.may(person, Verb.REPAIR, place) for place in places)]
