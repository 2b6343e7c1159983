"""Errors for Sentry: their type, place and ids arrive over HTTP, and nothing that a person or a cluster wrote."""

import logging
from collections.abc import Iterator

import pytest
from django.http import HttpResponseServerError
from django.test import RequestFactory
from django.utils.log import log_response

from kcover import reasons
from kcover_portal.config import log_context
from kcover_portal.lib import error_reports
from tests.portal.telemetry.collector import Collector
from tests.portal.test_settings import run

SECRET = "hush-hush"
log = logging.getLogger("kcover_portal.test")


@pytest.fixture
def sentry() -> Iterator[Collector]:
    made = Collector()
    handler = error_reports.Handler(f"http://key@{made.address}/7", "test")
    logging.getLogger().addHandler(handler)
    made.close = handler.close
    yield made
    logging.getLogger().removeHandler(handler)
    made.stop()


def fails(password: str) -> None:
    local = {"password": password}
    raise LookupError(f"no such key: {local}")


def test_an_error_arrives_with_its_ids_and_without_its_texts(sentry: Collector) -> None:
    request = RequestFactory().post(f"/x/?token={SECRET}", {"a": SECRET}, HTTP_COOKIE=f"sessionid={SECRET}")
    try:
        with log_context.bound(rescue=7, node="gpu-1"):
            try:
                fails(SECRET)
            except LookupError as error:
                raise reasons.ExplainedError(reasons.of("channel_off")) from error
    except reasons.ExplainedError as error:
        log.exception("rescue %s failed: %s", 7, SECRET)
        path, response = request.get_full_path(), HttpResponseServerError()
        log_response("Internal Server Error: %s", path, response=response, request=request, exception=error)
    logging.getLogger("other").error(f"failed with {SECRET}")
    log.warning("no error")
    sentry.close()
    own, djangos, other = sentry.events()
    assert own["logentry"]["message"] == "rescue %s failed: %s"
    assert own["tags"] == {"rescue": "7", "node": "gpu-1", "reason": "channel_off"}
    assert (own["level"], own["environment"], own["logger"]) == ("error", "test", "kcover_portal.test")
    cause, raised = own["exception"]["values"]
    assert (cause["type"], raised["type"]) == ("LookupError", "ExplainedError")
    frame = cause["stacktrace"]["frames"][-1]
    assert (frame["function"], "vars" in frame) == ("fails", False)
    assert djangos["logentry"]["message"] == "Internal Server Error: %s"
    assert other["logentry"]["message"].startswith("other: ")
    assert not {"request", "user", "breadcrumbs", "extra"} & {*own, *djangos, *other}
    assert SECRET.encode() not in b"".join(sentry.bodies)
    assert set(sentry.paths) == {"/api/7/envelope/"}


def test_the_setting_adds_it_to_every_program(sentry: Collector) -> None:
    ended = run(
        "-c",
        "import django, logging; django.setup(); logging.getLogger('kcover_portal.x').error('no %s', 'hush-hush')",
        KCOVER_SENTRY_DSN=f"http://key@{sentry.address}/7",
        KCOVER_SENTRY_ENVIRONMENT="prod",
    )
    assert ended.returncode == 0, ended.stderr
    (event,) = sentry.events()
    assert (event["logentry"]["message"], event["environment"]) == ("no %s", "prod")
