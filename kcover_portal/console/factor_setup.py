"""Adding a second factor: the two forms, and their results. Used at sign-in and on the account page."""

from dataclasses import dataclass
from datetime import datetime

import segno
from django.http import HttpRequest
from django.utils.safestring import SafeString, mark_safe

from kcover_portal.accounts import services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import passkeys, second_factors, totp
from kcover_portal.console.forms import second_factors as forms
from kcover_portal.lib import localization


@dataclass(frozen=True, slots=True)
class Setup:
    """The forms of both factors, and the seed of the app. ``added``: the factor that this request added, or ""."""

    totp: forms.TotpSetup
    passkey: forms.NewPasskey
    state: str = ""  # the signed text of the seed
    seed: str = ""
    picture: str = ""
    added: str = ""

    @property
    def refused(self) -> bool:
        return bool(self.totp.errors or self.passkey.errors)


def read(request: HttpRequest, user: User, *, now: datetime) -> Setup:
    """Adds the factor that the request has, or returns the forms with a new seed."""
    sent = request.POST if request.method == "POST" else {}
    of_app = forms.TotpSetup(sent if "setup" in sent else None)
    of_passkey = forms.NewPasskey(sent if "credential" in sent else None)
    try:
        if of_app.is_valid():
            given = of_app.cleaned_data
            second_factors.enrol_totp(user, given["setup"], given["code"], now=now)
            return Setup(of_app, of_passkey, added=second_factors.TOTP)
        if of_passkey.is_valid():
            site = passkeys.site_of(request)
            passkeys.register(user, of_passkey.answer(), name=of_passkey.cleaned_data["name"], site=site, now=now)
            return Setup(of_app, of_passkey, added=second_factors.PASSKEY)
    except services.Refused as error:
        form, field = (of_app, "code") if of_app.is_bound else (of_passkey, "name")
        form.add_error(field, localization.say(error.reason))
    state = of_app["setup"].value() or ""
    try:
        seed = totp.seed_of(state, user, now=now)
    except services.Refused:  # none was sent, or it has expired
        state = totp.new_setup(user, now=now)
        seed = totp.seed_of(state, user, now=now)
    return Setup(of_app, of_passkey, state=state, seed=seed, picture=_picture(totp.address_of(user, seed)))


def _picture(address: str) -> SafeString:
    """The QR code as an inline SVG, dark on white in every theme."""
    drawn = segno.make(address, error="m", micro=False).svg_inline(scale=4, border=4, light="#fff", omitsize=False)
    return mark_safe(drawn)  # nosec B308, B703
