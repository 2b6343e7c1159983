from datetime import datetime
from typing import Any

import pytest

from tests.portal.accounts.browsers import Clock


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """Argon2 is slow on purpose; these tests are about everything but that."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, now: datetime) -> Clock:
    return Clock(monkeypatch, now)
