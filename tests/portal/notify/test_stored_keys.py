"""A key that is stored goes to the address that it was given for, and to no other."""

from datetime import datetime

import pytest

from kcover_portal.errors import FieldError
from kcover_portal.notify import services

pytestmark = pytest.mark.django_db


def test_the_key_of_a_pager_does_not_follow_a_changed_address(now: datetime) -> None:
    by = {"actor": "user:ann", "now": now}
    row = services.make_channel("duty", "pagerduty", {"secret": "0123456789abcdef0123456789abcdef"}, **by)
    with pytest.raises(FieldError):
        services.change_channel(row, {"url": "https://collector.example/"}, reason="", **by)
