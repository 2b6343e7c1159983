"""Preflight reports that an agent found on its node.

The body is that of ``POST /api/v1/preflight/reports``. This endpoint also accepts the token of the agent's pod.
"""

from typing import Any

from django.db import close_old_connections
from django.utils import timezone
from rest_framework.exceptions import ValidationError

from kcover import reasons
from kcover.values import strict_json
from kcover_portal.api.agent.credentials import Credential, speaks_for
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.checks import preflight as door
from kcover_portal.fleet.services import node_selection
from kcover_portal.lib.errors import FieldError, FieldErrors
from kcover_portal.preflight import services

WANTED = reasons.of("preflight_body_wanted", keys="namespace, report")
RETRY_AFTER = 5


def take(credential: Credential, sent: bytes) -> dict[str, Any]:
    """Stores a report about the agent's own node and returns the response. Raises Refusal (400, 403, 503)."""
    close_old_connections()
    try:
        body = base.body_of_data(_parsed(sent), door.ReportBody)
        report = door.sent_report(body)
        node = report.report.get("node_name")
        speaks_for(credential, node if isinstance(node, str) else "")
        taken = services.receive_from_node(credential.cluster, credential.node, report, now=timezone.now())
    except node_selection.Unanswered as silent:
        raise Refusal(503, silent.reason, retry_after=RETRY_AFTER) from silent
    except FieldError as error:
        raise Refusal(400, error.reason, field=error.field or "body") from error
    except FieldErrors as errors:
        first = errors.errors[0]
        raise Refusal(400, first.reason, field=first.field) from errors
    except ValidationError as error:
        field = str(next(iter(error.detail), "body")) if isinstance(error.detail, dict) else "body"
        raise Refusal(400, reasons.of("preflight_field_invalid", field=field), field=field) from error
    return door.answer_to(taken)


def _parsed(sent: bytes) -> dict[str, Any]:
    try:
        content = strict_json.loads(sent.decode())
    except (ValueError, reasons.ExplainedError) as error:
        raise Refusal(400, reasons.of("preflight_not_json", error=str(error)[:200]), field="body") from error
    if not isinstance(content, dict):
        raise Refusal(400, WANTED, field="body")
    return content
