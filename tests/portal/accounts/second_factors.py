"""People with second factors, for tests."""

from datetime import datetime
from typing import Any

import pyotp

from kcover_portal.accounts.models import TotpDevice, User
from kcover_portal.accounts.services import second_factors, totp
from tests.portal.accounts.browsers import Browser


class App:
    """The authenticator app of a person."""

    def __init__(self, seed: str) -> None:
        self.totp = pyotp.TOTP(seed)

    def code(self, now: datetime, steps: int = 0) -> str:
        return self.totp.at(now, counter_offset=steps)


def enrol(user: User, now: datetime) -> App:
    """Gives the person an app that has not been used since the step before."""
    setup = totp.new_setup(user, now=now)
    app = App(totp.seed_of(setup, user, now=now))
    second_factors.enrol_totp(user, setup, app.code(now), now=now)
    TotpDevice.objects.update(last_step=0)
    return app


def give(browser: Browser, code: str, **more: str) -> Any:
    return browser.client.post("/sign-in/factor/", {"factor_code": code, **more})


def is_in(browser: Browser) -> bool:
    return browser.client.get("/nodes/").status_code == 200
