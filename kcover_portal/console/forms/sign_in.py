"""Forms that take a person's own password."""

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from kcover_portal.accounts import services
from kcover_portal.lib import localization

DEVICE_COOKIE = "kcover_device"


class SignIn(AuthenticationForm):
    """Name and password. ``refusal`` is set if the attempt was refused and the password not checked."""

    refusal: services.RetryLater | None = None

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name is None or not password or self.request is None:
            return self.cleaned_data
        try:
            user = services.check_password(
                self.request,
                name,
                password,
                address=services.client_address(self.request),
                device_cookie=self.request.COOKIES.get(DEVICE_COOKIE, ""),
                now=timezone.now(),
            )
        except services.RetryLater as refusal:
            self.refusal = refusal
            raise forms.ValidationError(localization.say(refusal.reason), code=refusal.reason.code) from refusal
        except services.PasswordsOff as refused:
            raise forms.ValidationError(localization.say(refused.reason), code=refused.reason.code) from refused
        if user is None:
            raise self.get_invalid_login_error()
        self.user_cache = user
        return self.cleaned_data


def _password(label: Any, autocomplete: str) -> forms.CharField:
    attrs = {"class": "form-control", "autocomplete": autocomplete}
    return forms.CharField(label=label, max_length=200, strip=False, widget=forms.PasswordInput(attrs=attrs))


class OwnPassword(forms.Form):
    old_password = _password(gettext_lazy("Old password"), "current-password")
    new_password = _password(gettext_lazy("New password"), "new-password")


class FirstPassword(forms.Form):
    """The password that an invited person chooses."""

    new_password = _password(gettext_lazy("New password"), "new-password")
