"""A key that is stored goes to the address that it was given for, and to no other."""

from datetime import datetime

import pytest

from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel

pytestmark = pytest.mark.django_db


def test_the_key_of_a_pager_does_not_follow_a_changed_address(now: datetime) -> None:
    by = {"actor": "user:ann", "now": now}
    row = services.CHANNELS.make(
        Channel(name="duty", kind="pagerduty"), {"secret": "0123456789abcdef0123456789abcdef"}, **by
    )
    with pytest.raises(FieldError):
        services.CHANNELS.change(row, {"url": "https://collector.example/"}, reason="", **by)


@pytest.mark.parametrize("kind", ["webhook", "dingtalk"])
def test_a_new_server_gets_no_signature_of_a_key_that_it_was_not_given(now: datetime, kind: str) -> None:
    by = {"actor": "user:ann", "now": now}
    settings = {"url": "https://a.example/in", "secret": "0123456789abcdef"}
    row = services.CHANNELS.make(Channel(name="hook", kind=kind), settings, **by)
    with pytest.raises(FieldError) as refused:
        services.CHANNELS.change(row, {"url": "https://collector.example/in"}, reason="", **by)
    assert refused.value.field == "secret"
    services.CHANNELS.change(row, {"url": "https://a.example/other"}, reason="", **by)
    services.CHANNELS.change(row, {**settings, "url": "https://b.example/in"}, reason="", **by)
