"""A form in a dialog, or on a page of its own without JavaScript: display, validation and execution."""

from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Protocol, runtime_checkable

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _

from kcover.decisions import guards
from kcover_portal.accounts.services import RetryLater
from kcover_portal.console.access import Request, dialog, later, lead
from kcover_portal.console.confirmation import confirm
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError, Refused

PAGE = "console/pages/ask.html"

Do = Callable[[dict[str, Any], datetime], HttpResponse | None]


@runtime_checkable
class Refusable(Protocol):
    """A form that finds the field of a service's error itself."""

    def refuse(self, error: Any) -> None: ...


def ask(request: Request, form: forms.BaseForm, *, back: str, page: str = PAGE, **shown: Any) -> HttpResponse:
    """Show the form; 422 if it has errors. ``back``: where Cancel leads. ``shown``: title, verb, icon, address."""
    context = {"form": form, "back": back, "base": dialog(request), **shown}
    return render(request, page, context, status=HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK)


def act(
    request: Request,
    form: forms.BaseForm,
    do: Do,
    *,
    back: str,
    step_up: bool = False,
    more: Callable[[], Mapping[str, Any]] = dict,
    **shown: Any,
) -> HttpResponse:
    """Show the form (GET), or act (POST) and lead back, unless ``do`` returns a page.

    ``step_up``: the act needs a fresh second factor, which is asked for before ``do``. What a service refuses becomes
    an error of the form; 429 if it can be repeated later. ``more``: what the form shows, if it is costly to find out.
    """
    refusal: RetryLater | None = None
    if request.method == "POST" and form.is_valid():
        if step_up:
            confirm(request)
        try:
            return do(form.cleaned_data, timezone.now()) or _done(request, back, **shown)
        except (FieldError, guards.SettingError) as error:
            _refuse(form, error)
        except Refused as error:
            refusal = error if isinstance(error, RetryLater) else None
            form.add_error(None, localization.say(error.reason))
    response = ask(request, form, back=back, **shown, **more())
    return later(response, refusal) if refusal else response


def _done(request: Request, back: str, *, title: object = "", verb: object = "", **_shown: object) -> HttpResponse:
    """Leads back. The next page says what was saved; other acts show there what they do."""
    if str(verb) == _("Save"):
        messages.success(request, _("Saved: %(title)s") % {"title": title})
    return lead(request, back)


def _refuse(form: forms.BaseForm, error: FieldError | guards.SettingError) -> None:
    if isinstance(form, Refusable):
        form.refuse(error)
        return
    field = error.field if isinstance(error, FieldError) and error.field in form.fields else None
    form.add_error(field, localization.say(error.reason))
