"""Forms that take a second factor, or set one up. Hidden fields are filled in by static/console/passkeys.js."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.accounts.services import passkeys
from kcover_portal.accounts.services.second_factors import SubmittedFactor

MAX_ANSWER = 20_000  # characters of a passkey's answer
CODE_ATTRS = {
    "class": "form-control mono",
    "autocomplete": "one-time-code",
    "autocapitalize": "none",
    "spellcheck": "false",
    "maxlength": "40",
}


def _hidden(most: int = MAX_ANSWER) -> forms.CharField:
    return forms.CharField(required=False, max_length=most, widget=forms.HiddenInput)


class Factor(forms.Form):
    """A code of the app, a recovery code, or the answer of a passkey. The names differ from those of other forms."""

    factor_code = forms.CharField(
        label=gettext_lazy("Code"),
        required=False,
        max_length=40,
        widget=forms.TextInput(attrs=CODE_ATTRS),
        help_text=gettext_lazy("Six digits from your authenticator app, or a recovery code."),
    )
    factor_credential = _hidden()
    factor_state = _hidden()

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError if nothing was given."""
        if not self.errors and self.given() is None:
            self.add_error("factor_code", self.fields["factor_code"].error_messages["required"])
        return self.cleaned_data

    def given(self) -> SubmittedFactor | None:
        """The factor that was sent; None without one."""
        data = self.cleaned_data
        if data.get("factor_credential"):
            return SubmittedFactor(
                passkey=passkeys.PasskeyResponse(data["factor_credential"], data.get("factor_state", ""))
            )
        return SubmittedFactor(code=data["factor_code"]) if data.get("factor_code") else None


class Password(forms.Form):
    password = forms.CharField(
        label=gettext_lazy("Password"),
        max_length=200,
        strip=False,
        widget=forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "current-password"}),
    )


class TotpSetup(forms.Form):
    """The first code of an authenticator app whose seed is in ``setup``."""

    setup = forms.CharField(max_length=500, widget=forms.HiddenInput)
    code = forms.CharField(label=gettext_lazy("Code"), max_length=40, widget=forms.TextInput(attrs=CODE_ATTRS))


class NewPasskey(forms.Form):
    """A name for a new passkey, and the browser's answer."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
        help_text=gettext_lazy("The device that stores the passkey, such as phone."),
    )
    credential = forms.CharField(max_length=MAX_ANSWER, widget=forms.HiddenInput)
    state = forms.CharField(max_length=1000, widget=forms.HiddenInput)

    def answer(self) -> passkeys.PasskeyResponse:
        return passkeys.PasskeyResponse(self.cleaned_data["credential"], self.cleaned_data["state"])
