"""Settings of a cluster on the page Safety: topology, drains, two-person rules, and changes that wait for an admin."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.accounts.services import second_admins
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import cluster_settings as setting_forms
from kcover_portal.console.reads import safety as reads
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import pending_changes


@require_http_methods(["GET", "POST"])
@signed_in
def topology(request: Request, cluster: str) -> HttpResponse:
    """Set the label keys that name a node's rack, leaf switch, NVLink domain and pool."""
    row = _configurable(request, cluster)
    form = setting_forms.Topology(request.POST or None, cluster=row)
    text = _(
        "The key of the node label that names each part. Roles and budgets of a pool follow the new label at once."
    )
    title = _("Topology of %(cluster)s") % {"cluster": row.name}
    return _change(request, row, form, page="safety-topology", title=title, icon="server", text=text)


@require_http_methods(["GET", "POST"])
@signed_in
def drains(request: Request, cluster: str) -> HttpResponse:
    """Set what follows a drain that ran out of time."""
    row = _configurable(request, cluster)
    form = setting_forms.DrainTimeout(request.POST or None, cluster=row)
    title = _("Drains in %(cluster)s") % {"cluster": row.name}
    return _change(request, row, form, page="safety-drains", title=title, icon="clock", text=_wait_of_second(row))


@require_http_methods(["GET", "POST"])
@signed_in
def two_people(request: Request, cluster: str) -> HttpResponse:
    """Set what needs a second person. A looser setting waits for another admin where the cluster asks for one."""
    row = _configurable(request, cluster)
    form = setting_forms.TwoPeople(request.POST or None, cluster=row)
    title = _("Two-person rules in %(cluster)s") % {"cluster": row.name}
    return _change(request, row, form, page="safety-people", title=title, icon="users", text=_wait_of_second(row))


def _wait_of_second(row: Cluster) -> str:
    """The note above the form, where a looser setting waits for a second admin; "" elsewhere."""
    return _("This cluster asks for a second admin. A looser setting waits for that admin.") if row.second_admin else ""


def _change(
    request: Request,
    row: Cluster,
    form: setting_forms.Topology | setting_forms.DrainTimeout | setting_forms.TwoPeople,
    *,
    page: str,
    **look: Any,
) -> HttpResponse:
    def change(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        changes, reason = form.changes(), given["reason"]
        if pending_changes.loosens_settings(row, changes) and pending_changes.needs_second(row):
            return ask_second(request, row, pending_changes.SETTINGS, changes, reason=reason)
        actor, kind = accounts.actor(request.user), pending_changes.SETTINGS
        pending_changes.change(row, kind, changes, may_loosen=True, actor=actor, reason=reason, now=now)
        return None

    shown: dict[str, Any] = {"verb": _("Save"), "address": reverse(f"console:{page}", args=(row.name,)), **look}
    return form_dialog.act(request, form, change, back=reverse("console:safety"), step_up=True, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def answer(request: Request, pk: int, verb: str) -> HttpResponse:
    """Confirm or reject a change that waits for another admin."""
    if verb not in ("confirm", "reject"):
        raise Http404
    row = get_object_or_404(reads.open_changes(list(accounts.clusters_of(request.user)), now=timezone.now()), pk=pk)
    require(request, Verb.CONFIGURE, row.cluster)
    form = forms.Act(request.POST or None)

    def settle(given: dict[str, Any], now: datetime) -> None:
        if verb == "confirm":
            second_admins.confirm(row, who=request.user, now=now)
        else:
            pending_changes.reject(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    title = _("Confirm the change") if verb == "confirm" else _("Reject the change")
    shown: dict[str, Any] = {"title": title, "icon": "shield-check", "verb": title, "text": row.reason}
    shown["address"] = reverse("console:change", args=(pk, verb))
    back, grave = reverse("console:safety"), verb == "confirm"
    return form_dialog.act(request, form, settle, back=back, step_up=grave, **shown)


def open_changes(request: Request, clusters: list[Cluster]) -> list[dict[str, Any]]:
    """The changes that wait. ``own``: the person counts as the requester, so somebody else has to confirm."""
    now = timezone.now()
    rows = list(reads.open_changes(clusters, now=now))
    names = {accounts.actor(request.user), *accounts.counted_as(request.user, at=now)} if rows else set()
    return [
        {
            "change": row,
            "lines": reads.change_lines(row),
            "may": accounts.may(request.user, Verb.CONFIGURE, row.cluster),
            "own": bool(names & {row.requested_by, *row.requesters}),
        }
        for row in rows
    ]


def ask_second(request: Request, row: Cluster, kind: str, changes: Mapping[str, Any], *, reason: str) -> HttpResponse:
    """Store a change that waits for another admin, lead to the safety page and say there that it is not in force."""
    second_admins.request(row, kind, changes, who=request.user, reason=reason, now=timezone.now())
    messages.warning(request, _("Not in force yet: another admin must confirm this change."))
    return lead(request, reverse("console:safety"))


def _configurable(request: Request, name: str) -> Cluster:
    row: Cluster = get_object_or_404(accounts.clusters_of(request.user), name=name)
    require(request, Verb.CONFIGURE, row)
    return row
