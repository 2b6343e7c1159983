"""Sinks of the audit stream, for admins of all clusters."""

from datetime import datetime
from typing import Any

from django.forms import BaseForm
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.forms.audit_sinks import SinkForm
from kcover_portal.lib import localization


@require_GET
@signed_in
def audit_sinks(request: Request) -> HttpResponse:
    """Every sink, its last success, and how far it is behind."""
    require(request, Verb.STREAM_AUDIT, None)
    now, heads = timezone.now(), queries.Heads()
    found = [(sink, queries.lag(sink, now=now, heads=heads)) for sink in queries.sinks()]
    rows = [(sink, lag, state(sink, lag), encryption.is_set(sink, "incoming_key"), _left(sink)) for sink, lag in found]
    context = {"sinks": rows, "kinds": Sink.Kind.choices}
    return render(request, "console/pages/audit_sinks.html", context)


def _left(sink: Sink) -> str:
    """Why an issue of an ended repair is still open."""
    left = queries.open_issue(sink)
    return localization.say(left) if left is not None else ""


def state(sink: Sink, lag: queries.Lag) -> str:
    """The state of a sink, a key of ``presentation.TABLES["channel"]``."""
    if not sink.enabled:
        return "off"
    if queries.trouble(sink, lag):
        return "trouble"
    return "works" if sink.sent_at else "new"


@require_http_methods(["GET", "POST"])
@signed_in
def new_sink(request: Request, kind: str) -> HttpResponse:
    """Show the form for this kind (GET), then create the sink (POST)."""
    require(request, Verb.STREAM_AUDIT, None)
    label = dict(Sink.Kind.choices).get(kind)
    if label is None:
        raise Http404
    form = SinkForm(request.POST or None, kind=kind)

    def make(given: dict[str, Any], now: datetime) -> None:
        actor, whole = accounts.actor(request.user), given["whole"] == "yes"
        services.make_sink(given["name"], kind, form.settings(), whole=whole, actor=actor, now=now)

    address = reverse("console:audit-sink-new", args=(kind,))
    return _act(request, form, make, title=_("New sink: %(kind)s") % {"kind": label}, verb=_("Create"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def sink(request: Request, name: str) -> HttpResponse:
    require(request, Verb.STREAM_AUDIT, None)
    row = get_object_or_404(Sink, name=name)
    form = SinkForm(request.POST or None, kind=row.kind, sink=row)

    def change(given: dict[str, Any], now: datetime) -> None:
        actor = accounts.actor(request.user)
        services.change_sink(row, form.settings(), actor=actor, reason=given["reason"], now=now)

    address = reverse("console:audit-sink", args=(name,))
    return _act(request, form, change, title=_("Sink %(name)s") % {"name": name}, verb=_("Save"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def delete_sink(request: Request, name: str) -> HttpResponse:
    require(request, Verb.STREAM_AUDIT, None)
    row = get_object_or_404(Sink, name=name)
    form = forms.Act(request.POST or None)

    def delete(given: dict[str, Any], now: datetime) -> None:
        services.delete_sink(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    title = _("Delete sink %(name)s…") % {"name": name}
    text = _("Records that it has not received are not sent to it any more.")
    address = reverse("console:audit-sink-delete", args=(name,))
    return _act(
        request, form, delete, title=title, text=text, verb=_("Delete"), address=address, icon="trash", grave=True
    )


def _act(request: Request, form: BaseForm, do: form_dialog.Do, **shown: Any) -> HttpResponse:
    look = {"icon": "send", **shown}
    return form_dialog.act(request, form, do, back=reverse("console:audit-sinks"), step_up=True, **look)
