"""Browsers at the sign-in page, and a clock that the test moves."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services
from kcover_portal.accounts.models import User

PASSWORD = "correct horse battery"
WRONG = "wrong horse battery"


class Clock:
    """Replaces ``timezone.now`` for the views."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
        self.now = now
        monkeypatch.setattr(timezone, "now", lambda: self.now)

    def advance(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


class Browser:
    """A browser at an address, with its cookies."""

    def __init__(self, address: str = "192.0.2.1", **headers: str) -> None:
        self.client = Client(REMOTE_ADDR=address, headers=headers)

    def sign_in(self, name: str, password: str = PASSWORD) -> Any:
        return self.client.post("/sign-in/", {"username": name, "password": password})

    def fail(self, name: str, times: int = 1) -> list[int]:
        return [self.sign_in(name, WRONG).status_code for _ in range(times)]


def make_user(name: str, now: datetime, role: str = "viewer") -> User:
    return services.make_user(name, password=PASSWORD, role=role, created_by="test", now=now)


def wait_of(response: Any) -> int:
    """The seconds of Retry-After; asserts that the response is a 429."""
    assert response.status_code == 429
    return int(response.headers["Retry-After"])
