"""Sinks of the audit stream, for admins of all clusters."""

from typing import Final

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from kcover_portal import encryption
from kcover_portal.accounts.models import Verb
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.console import lists, presentation
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.settings_dialogs import SettingsDialogs
from kcover_portal.lib import localization


@require_GET
@signed_in
def audit_sinks(request: Request) -> HttpResponse:
    """Every sink, its last success, and how far it is behind."""
    require(request, Verb.STREAM_AUDIT, None)
    now, heads = timezone.now(), queries.Heads()
    found = [(sink, queries.lag(sink, now=now, heads=heads)) for sink in queries.sinks()]
    rows = [(sink, lag, _state(sink, lag), encryption.is_set(sink, "incoming_key"), _left(sink)) for sink, lag in found]
    exported = lists.find(lists.SINKS, request.user, QueryDict())
    context = {"sinks": rows, "kinds": Sink.Kind.choices, "found": exported}
    return render(request, "console/pages/audit_sinks.html", context)


def _left(sink: Sink) -> str:
    """Why an issue of an ended repair is still open."""
    left = queries.open_issue(sink)
    return localization.say(left) if left is not None else ""


def _state(sink: Sink, lag: queries.Lag) -> str:
    return presentation.connection(enabled=sink.enabled, trouble=queries.trouble(sink, lag), worked=sink.sent_at)


DIALOGS: Final = SettingsDialogs(
    resource=services.SINKS,
    page="audit-sinks",
    name="audit-sink",
    icon="send",
    labels=dict(Sink.Kind.choices),
    new_title=gettext_lazy("New sink: %(kind)s"),
    add=gettext_lazy("Create"),
    title=gettext_lazy("Sink %(name)s"),
    delete_title=gettext_lazy("Delete sink %(name)s…"),
    delete_text=gettext_lazy("Records that it has not received are not sent to it any more."),
)
