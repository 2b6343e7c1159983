from datetime import datetime

import pytest

from tests.portal.accounts.browsers import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, now: datetime) -> Clock:
    return Clock(monkeypatch, now)
