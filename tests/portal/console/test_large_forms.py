"""A form may be as large as any request: beyond that the server refuses it before Django sees it."""

import logging

import pytest
from django.test import Client

from kcover_portal.config import request_limits

pytestmark = pytest.mark.django_db


def test_a_large_form_is_answered_without_a_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    body = "username=anna&password=" + "x" * (request_limits.MAX_BODY - 1_000)
    answer = Client().post("/sign-in/", body, content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 200
    assert [one.name for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []
