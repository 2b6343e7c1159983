"""Repairs: the list, one repair with its history, and the dialogs that report and move one."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.audit import subjects
from kcover.repairs import repairs as core
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import action_labels, form_dialog, forms, lists, time_zones
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import repairs as repair_forms
from kcover_portal.console.forms.repairs import RepairForm
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.evidence import queries as evidence
from kcover_portal.fleet.models import Node
from kcover_portal.lib import localization
from kcover_portal.parts import queries as parts
from kcover_portal.parts.models import Part as PartRow, Placement
from kcover_portal.repairs import queries, services
from kcover_portal.repairs.models import Repair, VendorTerms
from kcover_portal.repairs.queries import needs
from kcover_portal.shared_reads import audit

PAGE_ROWS = 50
MAX_HISTORY = 100  # entries; the audit log has them all
Do = Callable[[RepairForm, str, datetime], Repair]  # with the person's name as an actor


@require_GET
@signed_in
@opens_first("repairs")
def repairs(request: Request) -> HttpResponse:
    """The list, newest first."""
    now = timezone.now()
    found = lists.find(lists.REPAIRS, request.user, request.GET)
    page = Paginator(found.ordered().select_related("cluster", "node"), PAGE_ROWS).get_page(request.GET.get("page"))
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "vendor", "assignee", "overdue"),
        "page": page,
        "rows": [(row, _need(row, now=now)) for row in page.object_list],
        "any": found.seen.exists(),
        "terms": list(VendorTerms.objects.all()),
        "sets_terms": accounts.may(request.user, Verb.CONFIGURE, None),
    }
    return render(request, "console/pages/repairs.html", context)


@require_GET
@signed_in
def repair(request: Request, pk: int) -> HttpResponse:
    """One repair: what is broken, who has it until when, and its history."""
    row = _find(request, pk)
    may = accounts.may(request.user, Verb.HANDLE_REPAIRS, row.place)
    entries = audit.entries(request.user).filter(cluster=row.cluster.name, subject=subjects.repair(row.pk))
    context = {
        "repair": row,
        "repairs": list(queries.open_of(row)),
        "need": _need(row, now=timezone.now()),
        "part_row": _part(request, row),
        "dates": [(label, getattr(row, f"{state}_at")) for state, label in Repair.State.choices],
        "verbs": [move.value for move in row.moves] if may else [],
        "changes": may and row.state != Repair.State.CLOSED,
        "entries": list(entries[:MAX_HISTORY]),
        "evidence": evidence.numbers_of([row.rescue_id]).get(row.rescue_id, []) if row.rescue_id else [],
        "validates": core.Move.CLOSE in row.moves and accounts.may(request.user, Verb.CHECK, row.cluster),
        "validate_query": f"?{forms.query(cluster=row.cluster.name, host=row.node_name)}",
    }
    return render(request, "console/pages/repair.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def new_repair(request: Request, cluster: str, name: str) -> HttpResponse:
    """Ask what is broken (GET), then report a repair of the node (POST)."""
    seen = accounts.visible(request.user, Node.objects.select_related("cluster"), node="")
    node = get_object_or_404(seen, cluster__name=cluster, name=name)
    require(request, Verb.HANDLE_REPAIRS, node)

    def do(form: RepairForm, actor: str, now: datetime) -> Repair:
        details = {name: value for name, value in form.changes().items() if not name.startswith("part_")}
        reason = form.cleaned_data["reason"]
        role = accounts.role_in(request.user, Verb.HANDLE_REPAIRS, node)
        return services.report(node, part=form.part(), details=details, actor=actor, role=role, reason=reason, now=now)

    return _ask(
        request,
        do,
        names=repair_forms.OF_CHANGE,
        initial={"part_kind": "node"},
        back=reverse("console:node", args=(cluster, name)),
        address=reverse("console:repair-new", args=(cluster, name)),
        title=_("Report a repair of %(node)s") % {"node": name},
        repairs=list(queries.open_of(node)),
        verb=_("Report"),
        icon="tool",
    )


@require_http_methods(["GET", "POST"])
@signed_in
def change(request: Request, pk: int) -> HttpResponse:
    """Ask for the details (GET), then change them (POST)."""
    row = _handled(request, pk)

    def do(form: RepairForm, actor: str, now: datetime) -> Repair:
        return services.change(row, form.changes(), actor=actor, reason=form.cleaned_data["reason"], now=now)

    return _ask(
        request,
        do,
        names=repair_forms.OF_CHANGE,
        initial=repair_forms.of(row),
        back=reverse("console:repair", args=(pk,)),
        address=reverse("console:repair-change", args=(pk,)),
        title=_("Change repair %(n)s") % {"n": pk},
        verb=_("Save"),
        icon="pencil",
    )


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, pk: int, verb: str) -> HttpResponse:
    """Ask for a reason and what belongs to the move (GET), then carry it out (POST)."""
    if verb not in list(core.Move):
        raise Http404
    row, wanted, look = _handled(request, pk), core.Move(verb), action_labels.verb(verb)
    initial = repair_forms.of(row)
    # The service stores the same where the person leaves these fields as they are.
    if wanted is core.Move.ACCEPT and (not row.assignee or row.assignee.startswith(core.ROLE_OWNER)):
        initial["assignee"] = request.user.get_username()
    if wanted is core.Move.HAND_OVER:
        initial["due"] = queries.due_by_terms(row.vendor, core.State.IN_REPAIR, now=timezone.now()) or row.due

    def do(form: RepairForm, actor: str, now: datetime) -> Repair:
        return services.act(row, wanted, form.changes(), actor=actor, reason=form.cleaned_data["reason"], now=now)

    return _ask(
        request,
        do,
        names=repair_forms.OF_MOVE[wanted],
        initial=initial,
        back=reverse("console:repair", args=(pk,)),
        address=reverse("console:repair-act", args=(pk, verb)),
        title=_("%(verb)s: repair %(n)s") % {"verb": look.label, "n": pk},
        text=look.help,
        verb=look.label,
        icon=look.icon,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def terms(request: Request) -> HttpResponse:
    """Ask for the terms of a vendor (GET), then set them (POST)."""
    require(request, Verb.CONFIGURE, None)
    row = VendorTerms.objects.filter(vendor=request.GET.get("vendor", "").replace("\0", "")).first()
    initial = {name: getattr(row, name) for name in ("vendor", "accept_days", "return_days")} if row else {}
    form = repair_forms.TermsForm(request.POST or None, initial=initial)

    def do(given: dict[str, Any], now: datetime) -> None:
        actor = accounts.actor(request.user)
        services.set_terms(given["vendor"], form.terms(), actor=actor, reason=given["reason"], now=now)

    return form_dialog.act(
        request,
        form,
        do,
        back=reverse("console:repairs"),
        address=reverse("console:repair-terms"),
        title=_("Terms of a vendor"),
        text=_("Sets the next date of a repair if nobody names one. Leave both fields blank to remove the terms."),
        verb=_("Save"),
        icon="calendar",
        step_up=True,
    )


def _ask(
    request: Request, do: Do, *, names: tuple[str, ...], initial: dict[str, Any], back: str, **shown: Any
) -> HttpResponse:
    """Show the form, or carry out what it says and lead to the repair. A refusal becomes an error of the form."""
    zone = time_zones.of(request)
    with timezone.override(zone):
        form = RepairForm(request.POST or None, names=names, initial=initial, zone=zone)

        def carry_out(_given: dict[str, Any], now: datetime) -> HttpResponse:
            done = do(form, accounts.actor(request.user), now)
            return lead(request, reverse("console:repair", args=(done.pk,)))

        return form_dialog.act(request, form, carry_out, back=back, **shown)


def _need(row: Repair, *, now: datetime) -> str:
    """Why the repair needs attention; "" if it does not."""
    why = needs.why(row, now=now)
    return localization.say(why) if why else ""


def _part(request: Request, row: Repair) -> int | None:
    """The part that is repaired, if agents reported it and the person may see where."""
    seen = accounts.visible(request.user, Placement.objects.all())
    kind, serial = (row.part_kind, row.part_serial) if row.part_serial else (PartRow.Kind.MACHINE, row.machine_serial)
    rows = parts.with_placement(PartRow.objects.filter(kind=kind, serial=serial), seen) if serial else None
    return rows.values_list("pk", flat=True).first() if rows is not None else None


def _find(request: Request, pk: int) -> Repair:
    seen = accounts.visible(request.user, Repair.objects.select_related("cluster", "node"))
    return get_object_or_404(seen, pk=pk)


def _handled(request: Request, pk: int) -> Repair:
    row = _find(request, pk)
    require(request, Verb.HANDLE_REPAIRS, row.place)
    return row
