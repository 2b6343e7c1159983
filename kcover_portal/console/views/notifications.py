"""Notifications: channels, routes, tests and the delivery log, for admins of all clusters."""

from datetime import datetime
from typing import Any, Final

from django.forms import BaseForm
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms, keyset_pages, lists, presentation
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import channels
from kcover_portal.console.settings_dialogs import SettingsDialogs
from kcover_portal.notify import queries, services
from kcover_portal.notify.models import Channel, Delivery, Route

PAGE_ROWS = 50


@require_GET
@signed_in
def notifications(request: Request) -> HttpResponse:
    """Channels with their routes, and deliveries, newest or oldest first, paged by key."""
    require(request, Verb.WRITE_CHANNELS, None)
    found = lists.find(lists.DELIVERIES, request.user, request.GET)
    context = {
        "channels": [(channel, _state(channel)) for channel in queries.channels()],
        "kinds": Channel.Kind.choices,
        "found": found,
        "form": forms.shown(request, found, "state", "channel", "kind", "cluster"),
        "log": keyset_pages.page(found, found.rows.prefetch_related("notices"), size=PAGE_ROWS),
        "filtered": bool(found.query),
    }
    return render(request, "console/pages/notifications.html", context)


def _state(channel: Channel) -> str:
    return presentation.connection(enabled=channel.enabled, trouble=channel.trouble, worked=channel.sent_at)


CHANNELS: Final = SettingsDialogs(
    resource=services.CHANNELS,
    page="notifications",
    name="channel",
    icon="bell",
    labels=dict(Channel.Kind.choices),
    new_title=gettext_lazy("New channel: %(kind)s"),
    add=gettext_lazy("Create"),
    title=gettext_lazy("Channel %(name)s"),
    delete_title=gettext_lazy("Delete channel %(name)s…"),
    delete_text=gettext_lazy("Its routes are deleted with it. The delivery log is kept."),
)


@require_POST
@signed_in
def test_channel(request: Request, name: str) -> HttpResponse:
    """Send a test message; the delivery log shows the result."""
    require(request, Verb.WRITE_CHANNELS, None)
    row = get_object_or_404(Channel, name=name)
    services.test(row, actor=accounts.actor(request.user), now=timezone.now())
    return lead(request, reverse("console:notifications"))


@require_http_methods(["GET", "POST"])
@signed_in
def new_route(request: Request) -> HttpResponse:
    require(request, Verb.WRITE_CHANNELS, None)
    clusters = accounts.clusters_of(request.user)
    form = channels.RouteForm(request.POST or None, clusters=clusters, channel=request.GET.get("channel", ""))

    def make(given: dict[str, Any], now: datetime) -> None:
        services.make_route(
            given["channel"],
            kinds=given["kinds"],
            cluster=given["cluster"],
            least=given["least"],
            actor=accounts.actor(request.user),
            now=now,
        )

    return _act(request, form, make, page="console/pages/route_new.html")


@require_http_methods(["GET", "POST"])
@signed_in
def delete_route(request: Request, pk: int) -> HttpResponse:
    require(request, Verb.WRITE_CHANNELS, None)
    row = get_object_or_404(Route.objects.select_related("channel", "cluster"), pk=pk)
    form = forms.Act(request.POST or None)

    def delete(given: dict[str, Any], now: datetime) -> None:
        services.delete_route(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    title = _("Delete this route to %(name)s…") % {"name": row.channel.name}
    address = reverse("console:route-delete", args=(pk,))
    return _act(request, form, delete, title=title, verb=_("Delete"), address=address, icon="trash", grave=True)


@require_POST
@signed_in
def retry(request: Request, pk: int) -> HttpResponse:
    require(request, Verb.WRITE_CHANNELS, None)
    services.again(get_object_or_404(Delivery, pk=pk), now=timezone.now())
    return lead(request, reverse("console:notifications"))


def _act(request: Request, form: BaseForm, do: form_dialog.Do, **shown: Any) -> HttpResponse:
    look = {"icon": "bell", **shown}
    return form_dialog.act(request, form, do, back=reverse("console:notifications"), step_up=True, **look)
