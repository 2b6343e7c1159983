"""A form in a dialog, or on a page of its own without JavaScript: display, validation and execution."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from kcover_portal import localization
from kcover_portal.accounts import services
from kcover_portal.checks.services import CheckRunRefused
from kcover_portal.checks.services.validations import ValidationRefused
from kcover_portal.console.access import Request, dialog, lead
from kcover_portal.errors import FieldError
from kcover_portal.needs.services import NeedRefused
from kcover_portal.parts.services import ReviewRefused
from kcover_portal.preflight.services.pair_plans import PlanRefused
from kcover_portal.repairs.services import RepairRefused
from kcover_portal.rescue.services import RescueRefused

REFUSALS = (
    services.Refused,
    CheckRunRefused,
    NeedRefused,
    PlanRefused,
    RepairRefused,
    RescueRefused,
    ReviewRefused,
    ValidationRefused,
)


def ask(request: Request, form: forms.BaseForm, *, back: str, **shown: Any) -> HttpResponse:
    """Show the form; 422 if it has errors. ``back``: where Cancel leads. ``shown``: title, verb, icon, address."""
    context = {"form": form, "back": back, "base": dialog(request), **shown}
    return render(request, "console/pages/ask.html", context, status=422 if form.errors else 200)


def act(
    request: Request,
    form: forms.BaseForm,
    do: Callable[[dict[str, Any], datetime], HttpResponse | None],
    *,
    back: str,
    **shown: Any,
) -> HttpResponse:
    """Show the form (GET), or act (POST) and lead back, unless ``do`` returns a page.

    A FieldError and the refusal of a service (REFUSALS) become errors of the form.
    """
    if request.method == "POST" and form.is_valid():
        try:
            answer = do(form.cleaned_data, timezone.now())
        except FieldError as error:
            form.add_error(error.field if error.field in form.fields else None, localization.say(error.reason))
        except REFUSALS as error:
            form.add_error(None, localization.say(error.reason))
        else:
            return answer or lead(request, back)
    return ask(request, form, back=back, **shown)
