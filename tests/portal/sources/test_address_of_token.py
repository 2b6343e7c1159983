"""The token of a pulled source goes to the address that it was given for, and to no other."""

from datetime import datetime

import pytest

from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import services
from kcover_portal.sources.models import Source


def test_a_token_does_not_follow_a_changed_address(east: Cluster, now: datetime) -> None:
    given = {"url": "https://loki.example", "token": "hush", "settings": {}}
    row = services.SOURCES.make(Source(name="logs", kind="loki", cluster=east), given, actor="test", now=now)
    try:
        row = services.SOURCES.change(row, {"url": "https://evil.example"}, actor="user:bob", reason="", now=now)
    except FieldError:
        return
    assert not encryption.is_set(row, "token")


def test_an_address_that_cannot_be_read_is_a_clear_error(east: Cluster, now: datetime) -> None:
    given = {"url": "https://loki.example", "token": "hush", "settings": {}}
    row = services.SOURCES.make(Source(name="logs", kind="loki", cluster=east), given, actor="test", now=now)
    with pytest.raises(FieldError):
        services.SOURCES.change(row, {"url": "https://[::1"}, actor="user:bob", reason="", now=now)


def test_a_token_is_given_again_before_certificates_are_not_checked(east: Cluster, now: datetime) -> None:
    given = {"url": "https://{node}:15132", "token": "hush", "settings": {}}
    row = services.SOURCES.make(Source(name="states", kind="gpud", cluster=east), given, actor="test", now=now)
    by = {"actor": "user:bob", "reason": "", "now": now}
    with pytest.raises(FieldError) as refused:
        services.SOURCES.change(row, {"settings": {"insecure": True}}, **by)
    assert refused.value.field == "token"
    row = services.SOURCES.change(row, {"settings": {"insecure": True}, "token": "hush"}, **by)
    assert services.SOURCES.change(row, {"settings": {"insecure": False}}, **by).settings == {"insecure": False}
