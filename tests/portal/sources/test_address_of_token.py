"""The token of a pulled source goes to the address that it was given for, and to no other."""

from datetime import datetime

import pytest

from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import services


def test_a_token_does_not_follow_a_changed_address(east: Cluster, now: datetime) -> None:
    given = {"url": "https://loki.example", "token": "hush", "given": {}}
    row = services.make_source("logs", "loki", east, **given, actor="test", now=now)
    try:
        row = services.change_source(row, {"url": "https://evil.example"}, actor="user:bob", reason="", now=now)
    except FieldError:
        return
    assert not encryption.is_set(row, "token")


def test_an_address_that_cannot_be_read_is_a_clear_error(east: Cluster, now: datetime) -> None:
    given = {"url": "https://loki.example", "token": "hush", "given": {}}
    row = services.make_source("logs", "loki", east, **given, actor="test", now=now)
    with pytest.raises(FieldError):
        services.change_source(row, {"url": "https://[::1"}, actor="user:bob", reason="", now=now)


def test_a_token_is_given_again_before_certificates_are_not_checked(east: Cluster, now: datetime) -> None:
    given = {"url": "https://{node}:15132", "token": "hush", "given": {}}
    row = services.make_source("states", "gpud", east, **given, actor="test", now=now)
    by = {"actor": "user:bob", "reason": "", "now": now}
    with pytest.raises(FieldError) as refused:
        services.change_source(row, {"settings": {"insecure": True}}, **by)
    assert refused.value.field == "token"
    row = services.change_source(row, {"settings": {"insecure": True}, "token": "hush"}, **by)
    assert services.change_source(row, {"settings": {"insecure": False}}, **by).settings == {"insecure": False}
