"""Saved views: queries of lists that a person keeps under a name."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.forms import Form
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import SavedView, Verb
from kcover_portal.accounts.services import Refused, saved_views
from kcover_portal.console import form_dialog, lists
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.forms.saved_views import ViewForm
from kcover_portal.console.reads.saved_views import PAGES

P = ParamSpec("P")


View = Callable[Concatenate[Request, P], HttpResponse]


def opens_first(name: str) -> Callable[[View[P]], View[P]]:
    """Leads the bare address of a list to the view with which the person opens it."""

    def around(view: View[P]) -> View[P]:
        @wraps(view)
        def led(request: Request, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if not request.GET and not request.htmx:
                first = saved_views.first_view(request.user, name)
                if first is not None and first.query:
                    return redirect(f"{request.path}?{first.query}")
            return view(request, *args, **kwargs)

        return led

    return around


@require_http_methods(["GET", "POST"])
@signed_in
def save(request: Request, name: str) -> HttpResponse:
    """Ask for a name (GET), then keep the query of the address (POST)."""
    if name not in PAGES:
        raise Http404
    found = lists.find(lists.LISTINGS[name], request.user, request.GET)
    form = ViewForm(request.POST or None, shares=saved_views.may_share(request.user))

    def do(given: dict[str, Any], now: datetime) -> None:
        if found.problems:
            parameters = ", ".join(problem.name for problem in found.problems)
            raise Refused(reasons.of("view_parameters", parameters=parameters))
        saved_views.save(request.user, listing=name, query=found.view_query, now=now, **given)

    back = f"{reverse(PAGES[name])}?{found.view_query or 'view=none'}"
    address = f"{reverse('console:view-new', args=(name,))}?{found.view_query}"
    look: dict[str, Any] = {"title": _("Save view"), "verb": _("Save"), "icon": "device-floppy"}
    text = _("Keeps the filters, the order and the columns of this list.")
    return form_dialog.act(request, form, do, back=back, address=address, text=text, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def change(request: Request, pk: int) -> HttpResponse:
    """Rename a view, share it, or open the list with it."""
    row = get_object_or_404(SavedView, pk=pk, user=request.user)
    shares = row.shared or saved_views.may_share(request.user)
    form = ViewForm(request.POST or None, shares=shares, view=row)

    def do(given: dict[str, Any], now: datetime) -> None:
        saved_views.change(row, now=now, **given)

    address = reverse("console:view-change", args=(pk,))
    look: dict[str, Any] = {"title": _("View %(name)s") % {"name": row.name}, "verb": _("Save"), "icon": "edit"}
    return form_dialog.act(request, form, do, back=_page(row.listing, QueryDict(row.query)), address=address, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def delete(request: Request, pk: int) -> HttpResponse:
    """Delete a view of one's own."""
    row = get_object_or_404(SavedView, pk=pk, user=request.user)

    def do(given: dict[str, Any], now: datetime) -> None:
        saved_views.delete(row, now=now)

    address = reverse("console:view-delete", args=(pk,))
    look: dict[str, Any] = {
        "title": _("Delete view %(name)s?") % {"name": row.name},
        "verb": _("Delete"),
        "icon": "trash",
    }
    text = _("The rows of the list stay as they are.")
    back = _page(row.listing, QueryDict(row.query))
    form = Form(request.POST if request.method == "POST" else None)
    return form_dialog.act(request, form, do, back=back, address=address, text=text, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def open_first(request: Request, pk: int) -> HttpResponse:
    """Open a list with the shared view of somebody else, or not any more."""
    row = get_object_or_404(saved_views.shared_by_others(request.user).select_related("user"), pk=pk)
    opens = row.first_of.filter(user=request.user).exists()

    def do(given: dict[str, Any], now: datetime) -> None:
        saved_views.open_with(request.user, row, opens_first=not opens)

    title = _("Do not open the list with view %(name)s?") if opens else _("Open the list with view %(name)s?")
    look: dict[str, Any] = {"title": title % {"name": row.name}, "verb": _("Save"), "icon": "home"}
    text = _("It stays %(person)s's view. If it is not shared any more, the list opens without it.")
    form = Form(request.POST if request.method == "POST" else None)
    address, back = reverse("console:view-first", args=(pk,)), _page(row.listing, QueryDict(row.query))
    text = text % {"person": row.user.get_username()}
    return form_dialog.act(request, form, do, back=back, address=address, text=text, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def withdraw(request: Request, pk: int) -> HttpResponse:
    """Stop sharing a view of another person, who may have left."""
    require(request, Verb.ADMINISTER, None)
    row = get_object_or_404(SavedView.objects.select_related("user"), pk=pk, shared=True)

    def do(given: dict[str, Any], now: datetime) -> None:
        saved_views.withdraw(row, actor=accounts.actor(request.user), now=now)

    address = reverse("console:view-withdraw", args=(pk,))
    look: dict[str, Any] = {
        "title": _("Stop sharing view %(name)s?") % {"name": row.name},
        "verb": _("Stop sharing"),
        "icon": "users",
    }
    text = _("%(person)s keeps the view.") % {"person": row.user.get_username()}
    form = Form(request.POST if request.method == "POST" else None)
    return form_dialog.act(
        request, form, do, back=_page(row.listing, QueryDict(row.query)), address=address, text=text, **look
    )


def _page(listing: str, query: QueryDict) -> str:
    return f"{reverse(PAGES[listing])}?{query.urlencode() or 'view=none'}"
