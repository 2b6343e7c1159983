"""Enrolment and renewal of the nodes' credentials."""

import json
from datetime import datetime, timedelta
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from kcover import reasons
from kcover.wire import fields
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent.credentials import Credential, speaks_for
from kcover_portal.api.agent.problem_responses import Refusal

CREDENTIAL_LIFETIME = timedelta(days=30)  # the agent renews it after half of this time
POD_CREDENTIAL_LIFETIME = timedelta(days=7)  # for a credential from a pod's token, because the pod may be gone earlier
WANTED = reasons.of("enrolment_wanted", example='{"node": "NAME"}')


def node_of(body: bytes) -> str:
    """Returns the node in an enrolment request. Raises Refusal (400)."""
    try:
        content = json.loads(body.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise Refusal(400, reasons.of("enrolment_too_deep", wanted=WANTED), field="body") from None
    except ValueError as error:
        reason = reasons.of("enrolment_not_json", error=str(error), wanted=WANTED)
        raise Refusal(400, reason, field="body") from None
    if not isinstance(content, dict):
        reason = reasons.of("enrolment_not_object", value=fields.short_json(content), wanted=WANTED)
        raise Refusal(400, reason, field="body")
    node = content.get("node")
    if node is None:
        raise Refusal(400, reasons.of("enrolment_node_missing", wanted=WANTED), field="node")
    if not isinstance(node, str) or len(node) > 253 or not fields.NODE.fullmatch(node):
        reason = reasons.of("enrolment_node_invalid", value=fields.short_json(node), wanted=WANTED)
        raise Refusal(400, reason, field="node")
    return node


def bind(credential: Credential, node: str) -> tuple[str, datetime]:
    """Creates or renews the node's credential; returns its secret and its expiry. Raises Refusal."""
    if credential.node:
        speaks_for(credential, node)
    if credential.account:
        return _bind_proven(credential)
    close_old_connections()
    now = timezone.now()
    token = ApiToken.objects.select_related("cluster").get(digest=credential.digest)
    expires_at = now + CREDENTIAL_LIFETIME
    try:
        if token.node:
            _, secret = accounts.renew(token, expires_at=expires_at, now=now)
        else:
            _, secret = accounts.enrol(token, node, expires_at=expires_at, now=now)
    except accounts.InUse as error:
        raise Refusal(409, error.reason, retry_after=error.retry_after) from error
    except (accounts.RenewedLately, accounts.EnrolledOften, accounts.UnknownNode) as error:
        raise Refusal(429, error.reason, retry_after=error.retry_after) from error
    except (accounts.NotRenewable, accounts.OwnerWithoutRole) as error:
        raise Refusal(403, error.reason) from error
    except accounts.Refused as error:
        raise Refusal(401, error.reason) from error
    return secret, expires_at


def _bind_proven(credential: Credential) -> tuple[str, datetime]:
    """Enrols by a service account's token, whose node the cluster has confirmed."""
    close_old_connections()
    now = timezone.now()
    expires_at = now + POD_CREDENTIAL_LIFETIME
    _, secret = accounts.enrol_proven(
        credential.cluster, credential.node, account=credential.account, expires_at=expires_at, now=now
    )
    return secret, expires_at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise Refusal(400, reasons.of("enrolment_duplicate_key", wanted=WANTED), field="body")
    return content
