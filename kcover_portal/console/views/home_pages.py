"""The person's home page: where / leads, and the choice of another one."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import Refused
from kcover_portal.console import home_pages
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.views import overview
from kcover_portal.lib import localization


@require_GET
@signed_in
def home(request: Request) -> HttpResponseBase:
    """The overview, or the way to the page that the person chose.

    A home that the person may no longer see, or whose query names nothing any more, is named above the overview. It
    stays stored, because the right may come back.
    """
    chosen = home_pages.stored(request.user)
    if chosen.name == home_pages.OVERVIEW or request.GET or request.htmx:
        return overview.overview(request)
    if home_pages.is_open_to(request.user, chosen):
        return redirect(chosen.address)
    text = _("Your home page %(page)s is not available: you may not see it, or a part of its address has no effect.")
    messages.warning(request, format_html("{} {}", text % {"page": chosen.title}, _("This is the overview instead.")))
    return overview.overview(request)


@require_POST
@signed_in
def choose(request: Request) -> HttpResponse:
    """Make the page with this address the home, then lead back to it; ``from`` "account": to the account."""
    back = "console:account"
    try:
        page = home_pages.read(request.user, request.POST.get("page", ""))
    except Refused as error:
        messages.error(request, localization.say(error.reason))
    else:
        User.objects.filter(pk=request.user.pk).update(home=page.stored)
        messages.success(request, _("Your home page is now: %(page)s.") % {"page": page.title})
        back = back if request.POST.get("from") == "account" else page.address
    return redirect(back)
