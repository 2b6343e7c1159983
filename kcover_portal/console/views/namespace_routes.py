"""Routes of namespaces to channels for the owners of jobs, for admins of all clusters."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal import localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import channels
from kcover_portal.errors import FieldError
from kcover_portal.notify import queries, services


@require_http_methods(["GET", "POST"])
@signed_in
def new(request: Request) -> HttpResponse:
    """Show the form (GET), then bind a namespace to a channel (POST)."""
    require(request, Verb.WRITE_CHANNELS, None)
    form = channels.NamespaceRouteForm(request.POST or None, initial={"channel": request.GET.get("channel", "")})
    if request.method == "POST" and form.is_valid():
        confirm(request)
        given = form.cleaned_data
        try:
            services.make_namespace_route(
                given["channel"],
                cluster=given["cluster"],
                namespace=given["namespace"],
                actor=accounts.actor(request.user),
                now=timezone.now(),
            )
        except FieldError as error:
            form.add_error(error.field, localization.say(error.reason))
        else:
            return lead(request, reverse("console:notifications"))
    text = _(
        "This channel gets a message before and after the portal moves a job of the namespace,"
        " unless the job names a channel itself."
    )
    address = reverse("console:namespace-route-new")
    return _ask(request, form, title=_("Bind a namespace"), text=text, verb=_("Add"), address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def delete(request: Request, pk: int) -> HttpResponse:
    """Show the form (GET), then delete the route of a namespace (POST)."""
    require(request, Verb.WRITE_CHANNELS, None)
    row = get_object_or_404(queries.namespace_routes(), pk=pk)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        confirm(request)
        actor, reason = accounts.actor(request.user), form.cleaned_data["reason"]
        services.delete_namespace_route(row, actor=actor, reason=reason, now=timezone.now())
        return lead(request, reverse("console:notifications"))
    title = _("Unbind %(namespace)s from %(name)s…") % {"namespace": row.namespace, "name": row.channel.name}
    address = reverse("console:namespace-route-delete", args=(pk,))
    return _ask(request, form, title=title, verb=_("Delete"), address=address, icon="trash", grave=True)


def _ask(request: Request, form: forms.Act | channels.NamespaceRouteForm, **shown: object) -> HttpResponse:
    return form_dialog.ask(request, form, back=reverse("console:notifications"), **{"icon": "bell", **shown})
