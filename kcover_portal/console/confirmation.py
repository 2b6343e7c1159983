"""Step-up on the console: a view calls ``confirm`` before a grave action.

If a factor is due, the answer is a form that asks for it. The form of a POST sends the person's input again, together
with the factor, so that nothing has to be typed twice. The form of a GET leads back to the address.
"""

from http import HTTPStatus

from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from kcover import reasons
from kcover_portal.accounts import services
from kcover_portal.accounts.services import passkeys, step_up
from kcover_portal.accounts.services.step_up import RequiredConfirmation
from kcover_portal.console.access import Interruption, Request, dialog, later
from kcover_portal.console.forms import second_factors as forms
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError

OWN_FIELDS = ("csrfmiddlewaretoken", "factor_code", "factor_credential", "factor_state")

Form = forms.Factor | forms.Password


def confirm(request: Request, *, resend: bool = True) -> None:
    """Returns if the person's second factor is fresh, or came with this request. Raises Interruption.

    ``resend`` False: the form does not repeat the person's input, which is secret, and leads back to the page.
    """
    due = step_up.due(request.user, request.session, now=timezone.now())
    _settle(request, due, target=request.get_full_path() if request.method == "GET" or not resend else "")


def confirm_for_factors(request: Request, *, target: str = "") -> None:
    """As ``confirm``, before the person changes their factors. Without a factor, the password must be fresh.

    ``target``: where the form leads, if it is not this address.
    """
    due = step_up.due_for_factors(request.user, request.session, now=timezone.now())
    _settle(request, due, target=target or (request.get_full_path() if request.method == "GET" else ""))


def _settle(request: Request, due: RequiredConfirmation | None, *, target: str) -> None:
    """Returns if nothing is due, or the request has what is due. Raises Interruption with a form."""
    if due is None:
        return
    if due is RequiredConfirmation.ENROLMENT:
        _interrupt(request, None, target=target)
    form = _form(request, by_password=due is RequiredConfirmation.PASSWORD)
    refusal: services.RetryLater | None = None
    if form.is_bound and form.is_valid():
        try:
            _check(request, form)
        except FieldError as error:
            form.add_error(error.field, localization.say(error.reason))
        except services.Refused as error:
            refusal = error if isinstance(error, services.RetryLater) else None
            form.add_error(None, localization.say(error.reason))
        else:
            return
    _interrupt(request, form, target=target, refusal=refusal)


def _form(request: Request, *, by_password: bool) -> Form:
    sent = request.POST if request.method == "POST" else {}
    if by_password:
        return forms.Password(sent if "password" in sent else None)
    return forms.Factor(sent if "factor_code" in sent else None)


def _check(request: Request, form: Form) -> None:
    """Checks what the form has. Raises FieldError and Refused."""
    user, session = request.user, request.session
    address, now = services.client_address(request), timezone.now()
    if isinstance(form, forms.Factor):
        given = form.given()
        assert given is not None
        step_up.confirm(user, session, given, site=passkeys.site_of(request), address=address, now=now)
    elif user.has_usable_password():
        step_up.confirm_password(user, session, form.cleaned_data["password"], address=address, now=now)
    else:
        raise services.Refused(reasons.of("sign_in_again"))


def _interrupt(request: Request, form: Form | None, *, target: str, refusal: services.RetryLater | None = None) -> None:
    """Raises Interruption with the form; without one, with the page that says that the person has to add a factor."""
    page = reverse("console:factor-new")
    context = {
        "form": form,
        "address": reverse("console:confirm") if target else request.get_full_path(),
        "kept": [("next", target)] if target else _input_of(request),
        "by_password": isinstance(form, forms.Password),
        "passkeys": request.user.passkeys.exists(),
        "missing": "" if form else localization.say(reasons.of("second_factor_missing", page=page)),
        "back": reverse("console:overview"),
        "base": dialog(request),
        "title": _("Confirm that it is you"),
    }
    response = render(request, "console/pages/confirm.html", context, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    if request.htmx:  # from whatever part of the page the request came
        response.headers["HX-Retarget"] = "#dialog"
        response.headers["HX-Reswap"] = "innerHTML"
    raise Interruption(later(response, refusal) if refusal else response)


def _input_of(request: Request) -> list[tuple[str, str]]:
    """The person's input without passwords: a page never contains those."""
    return [
        (name, str(value))
        for name, values in request.POST.lists()
        if name not in OWN_FIELDS and "password" not in name
        for value in values
    ]
