"""Routes of namespaces to channels for the owners of jobs, for admins of all clusters."""

from datetime import datetime
from typing import Any

from django.forms import BaseForm
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.forms import channels
from kcover_portal.notify import queries, services


@require_http_methods(["GET", "POST"])
@signed_in
def new(request: Request) -> HttpResponse:
    """Show the form (GET), then bind a namespace to a channel (POST)."""
    require(request, Verb.WRITE_CHANNELS, None)
    form = channels.NamespaceRouteForm(request.POST or None, initial={"channel": request.GET.get("channel", "")})

    def make(given: dict[str, Any], now: datetime) -> None:
        services.make_namespace_route(
            given["channel"],
            cluster=given["cluster"],
            namespace=given["namespace"],
            actor=accounts.actor(request.user),
            now=now,
        )

    text = _(
        "This channel gets a message before and after the portal moves a job of the namespace,"
        " unless the job names a channel itself."
    )
    address = reverse("console:namespace-route-new")
    return _act(request, form, make, title=_("Bind a namespace"), text=text, verb=_("Add"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def delete(request: Request, pk: int) -> HttpResponse:
    """Show the form (GET), then delete the route of a namespace (POST)."""
    require(request, Verb.WRITE_CHANNELS, None)
    row = get_object_or_404(queries.namespace_routes(), pk=pk)
    form = forms.Act(request.POST or None)

    def unbind(given: dict[str, Any], now: datetime) -> None:
        services.delete_namespace_route(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    title = _("Unbind %(namespace)s from %(name)s…") % {"namespace": row.namespace, "name": row.channel.name}
    address = reverse("console:namespace-route-delete", args=(pk,))
    return _act(request, form, unbind, title=title, verb=_("Delete"), address=address, icon="trash", grave=True)


def _act(request: Request, form: BaseForm, do: form_dialog.Do, **shown: Any) -> HttpResponse:
    look = {"icon": "bell", **shown}
    return form_dialog.act(request, form, do, back=reverse("console:notifications"), step_up=True, **look)
