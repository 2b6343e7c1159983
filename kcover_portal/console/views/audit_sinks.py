"""Sinks of the audit stream, for admins of all clusters."""

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal import encryption, localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms.audit_sinks import SinkForm
from kcover_portal.errors import FieldError


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
    if request.method == "POST" and form.is_valid():
        confirm(request)
        actor, given = accounts.actor(request.user), form.cleaned_data
        try:
            services.make_sink(
                given["name"], kind, form.settings(), whole=given["whole"] == "yes", actor=actor, now=timezone.now()
            )
        except FieldError as error:
            form.refuse(error)
        else:
            return lead(request, reverse("console:audit-sinks"))
    address = reverse("console:audit-sink-new", args=(kind,))
    return _ask(request, form, title=_("New sink: %(kind)s") % {"kind": label}, verb=_("Create"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def sink(request: Request, name: str) -> HttpResponse:
    require(request, Verb.STREAM_AUDIT, None)
    row = get_object_or_404(Sink, name=name)
    form = SinkForm(request.POST or None, kind=row.kind, sink=row)
    if request.method == "POST" and form.is_valid():
        confirm(request)
        actor, reason = accounts.actor(request.user), form.cleaned_data["reason"]
        try:
            services.change_sink(row, form.settings(), actor=actor, reason=reason, now=timezone.now())
        except FieldError as error:
            form.refuse(error)
        else:
            return lead(request, reverse("console:audit-sinks"))
    address = reverse("console:audit-sink", args=(name,))
    return _ask(request, form, title=_("Sink %(name)s") % {"name": name}, verb=_("Save"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def delete_sink(request: Request, name: str) -> HttpResponse:
    require(request, Verb.STREAM_AUDIT, None)
    row = get_object_or_404(Sink, name=name)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        confirm(request)
        actor, reason = accounts.actor(request.user), form.cleaned_data["reason"]
        services.delete_sink(row, actor=actor, reason=reason, now=timezone.now())
        return lead(request, reverse("console:audit-sinks"))
    title = _("Delete sink %(name)s…") % {"name": name}
    text = _("Records that it has not received are not sent to it any more.")
    address = reverse("console:audit-sink-delete", args=(name,))
    return _ask(request, form, title=title, text=text, verb=_("Delete"), address=address, icon="trash", grave=True)


def _ask(request: Request, form: forms.Act | SinkForm, **shown: object) -> HttpResponse:
    return form_dialog.ask(request, form, back=reverse("console:audit-sinks"), **{"icon": "send", **shown})
