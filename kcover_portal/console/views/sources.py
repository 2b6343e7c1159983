"""Sources of faults: everybody sees those of their clusters; admins of a cluster change them."""

from datetime import datetime
from typing import Any

from django.forms import BaseForm
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover import reasons
from kcover.sources import settings
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, dialog, place, require, signed_in
from kcover_portal.console.forms.sources import SourceForm
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source

ADDED = (*settings.PUSHED, *settings.PULLED)  # kinds of which people add sources


@require_GET
@signed_in
def sources(request: Request) -> HttpResponse:
    """The sources of the person's clusters, with their state."""
    rows = list(accounts.visible(request.user, queries.all_sources(), node=None))
    troubles = queries.troubles(rows, now=timezone.now())
    configured = set(accounts.clusters_of(request.user, Verb.CONFIGURE).values_list("pk", flat=True))
    tested = set(accounts.clusters_of(request.user, Verb.GUARD).values_list("pk", flat=True))
    context = {
        "sources": [
            {
                "row": row,
                "state": _state(row, troubles.get(row.pk)),
                "trouble": troubles.get(row.pk),
                "warning": queries.warning(row),
                "may_change": row.cluster_id in configured,
                "may_test": row.cluster_id in tested,
            }
            for row in rows
        ],
        "kinds": [(kind, Source.Kind(kind).label) for kind in ADDED] if configured else [],
    }
    return render(request, "console/pages/sources.html", context)


def _state(row: Source, trouble: reasons.Reason | None) -> str:
    """The state of a source, a key of ``presentation.TABLES["source"]``."""
    if not row.enabled:
        return "off"
    if trouble is not None:
        return "trouble"
    return "works" if row.last_contact_at else "new"


@require_http_methods(["GET", "POST"])
@signed_in
def new_source(request: Request, kind: str) -> HttpResponse:
    """Show the form for this kind (GET), then add the source (POST)."""
    clusters = accounts.clusters_of(request.user, Verb.CONFIGURE)
    if not clusters:
        require(request, Verb.CONFIGURE, None)
    if kind not in ADDED:
        raise Http404
    form = SourceForm(request.POST or None, kind=kind, clusters=clusters)

    def make(given: dict[str, Any], now: datetime) -> None:
        cluster, columns = clusters.get(name=given["cluster"]), form.given()
        services.make_source(
            given["name"],
            kind,
            cluster,
            url=columns.get("url", ""),
            token=columns.get("token", ""),
            given=columns.get("settings", {}),
            actor=accounts.actor(request.user),
            now=now,
        )

    title = _("New source: %(kind)s") % {"kind": Source.Kind(kind).label}
    return _act(request, form, make, title=title, verb=_("Add"), address=reverse("console:source-new", args=(kind,)))


@require_http_methods(["GET", "POST"])
@signed_in
def source(request: Request, name: str) -> HttpResponse:
    row = _configurable(request, name)
    form = SourceForm(request.POST or None, kind=row.kind, source=row)

    def change(given: dict[str, Any], now: datetime) -> None:
        actor = accounts.actor(request.user)
        services.change_source(row, form.given(), actor=actor, reason=given["reason"], now=now)

    address = reverse("console:source", args=(name,))
    return _act(request, form, change, title=_("Source %(name)s") % {"name": name}, verb=_("Save"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def delete_source(request: Request, name: str) -> HttpResponse:
    row = _configurable(request, name)
    form = forms.Act(request.POST or None)

    def delete(given: dict[str, Any], now: datetime) -> None:
        services.delete_source(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    title = _("Delete source %(name)s…") % {"name": name}
    text = _("Its tokens are revoked. Incidents that it opened stay.")
    address = reverse("console:source-delete", args=(name,))
    return _act(
        request, form, delete, title=title, text=text, verb=_("Delete"), address=address, icon="trash", grave=True
    )


@require_POST
@signed_in
def test_source(request: Request, name: str) -> HttpResponse:
    """Show what the source saw in the last hour."""
    row = _visible(request, name)
    require(request, Verb.GUARD, row.cluster)
    with place(request, concurrency_limits.SOURCE_TESTS):
        trial = services.try_here_or_by_worker(row, clock=timezone.now)
    context = {"source": row, "trial": trial, "base": dialog(request)}
    return render(request, "console/pages/source_test.html", context)


def _visible(request: Request, name: str) -> Source:
    return get_object_or_404(accounts.visible(request.user, queries.all_sources(), node=None), name=name)


def _configurable(request: Request, name: str) -> Source:
    row = _visible(request, name)
    require(request, Verb.CONFIGURE, row.cluster)
    return row


def _act(request: Request, form: BaseForm, do: form_dialog.Do, **shown: Any) -> HttpResponse:
    look = {"icon": "plug", **shown}
    return form_dialog.act(request, form, do, back=reverse("console:sources"), step_up=True, **look)
