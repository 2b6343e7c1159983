"""Enrolment and renewal of the nodes' credentials."""

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError, InterfaceError, OperationalError
from django.utils import timezone

from kcover import reasons
from kcover.wire import fields
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent.credentials import Credential, speaks_for
from kcover_portal.api.agent.problem_responses import Refusal

log = logging.getLogger(__name__)

Asked: TypeAlias = tuple[Credential, str, str]  # the node, and the key of the enrolment
Bound: TypeAlias = tuple[str, datetime] | Exception

CREDENTIAL_LIFETIME = timedelta(days=30)  # the agent renews it after half of this time
POD_CREDENTIAL_LIFETIME = timedelta(days=7)  # for a credential from a pod's token, because the pod may be gone earlier
WANTED = reasons.of("enrolment_wanted", example='{"node": "NAME"}')
KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")


def request_of(body: bytes) -> tuple[str, str]:
    """Returns the node in an enrolment request, and its key; "" without a key. Raises Refusal (400)."""
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
    key = content.get("key", "")
    if not isinstance(key, str) or (key and not KEY.fullmatch(key)):
        reason = reasons.of("enrolment_key_invalid", value=fields.short_json(key))
        raise Refusal(400, reason, field="key")
    return node, key


def bind(asked: Sequence[Asked]) -> list[Bound]:
    """Creates or renews the credentials of nodes; returns the secret and the expiry of each, or an error.

    Enrolments by one token are one transaction.
    """
    close_old_connections()
    answers: dict[int, Bound] = {}
    blocked: dict[int, DatabaseError] = {}
    enrolling: defaultdict[str, list[int]] = defaultdict(list)  # by token
    for place, (credential, _node, _key) in enumerate(asked):
        if credential.node or credential.account:
            (answers[place],) = _attempt([asked[place]], _bind_own, blocked)
        else:
            enrolling[credential.digest].append(place)
    for places in enrolling.values():
        answers |= zip(places, _attempt([asked[place] for place in places], _enrol, blocked), strict=True)
    return [answers[place] for place in range(len(asked))]


def _attempt(
    asked: Sequence[Asked], work: Callable[[Sequence[Asked]], Sequence[Bound]], blocked: dict[int, DatabaseError]
) -> Sequence[Bound]:
    """Enrolments of one cluster together; if they fail by what they contain, one by one, so that only one is refused.

    ``blocked``: clusters for which the database failed, as their lock may be held. They are not waited for again.
    """
    cluster = asked[0][0].cluster.pk
    if cluster in blocked:
        return [blocked[cluster]] * len(asked)
    try:
        return work(asked)
    except Refusal as refusal:
        return [refusal] * len(asked)
    except (OperationalError, InterfaceError) as error:
        blocked[cluster] = error
        return [error] * len(asked)
    except Exception as error:  # one request must not refuse those that wait with it
        if len(asked) > 1:
            log.warning("%d enrolments failed together and are tried one by one: %s", len(asked), error)
            return [answer for one in asked for answer in _attempt([one], work, blocked)]
        return [error]


def _enrol(asked: Sequence[Asked]) -> Sequence[Bound]:
    """Enrols nodes by one enrolment token. Raises Refusal."""
    now = timezone.now()
    expires_at = now + CREDENTIAL_LIFETIME
    token = _token(asked[0][0])
    try:
        nodes, keys = [node for _, node, _ in asked], [key for _, _, key in asked]
        enrolled = accounts.enrol_together(token, nodes, keys=keys, expires_at=expires_at, now=now)
    except accounts.Refused as error:
        raise _refusal(error) from error
    return [_refusal(one) if isinstance(one, accounts.Refused) else _bound(*one) for one in enrolled]


def _bound(token: ApiToken, secret: str) -> Bound:
    return secret, token.expires_at or token.created_at + CREDENTIAL_LIFETIME


def _bind_own(asked: Sequence[Asked]) -> Sequence[Bound]:
    """Renews one node's credential, or enrols it by the token of its pod. Raises Refusal."""
    ((credential, node, _key),) = asked  # the first use of the newest ends the others, so a renewal needs no key
    speaks_for(credential, node)
    if credential.account:
        return [_bind_proven(credential)]
    now = timezone.now()
    expires_at = now + CREDENTIAL_LIFETIME
    try:
        return [(accounts.renew(_token(credential), expires_at=expires_at, now=now)[1], expires_at)]
    except accounts.Refused as error:
        raise _refusal(error) from error


def _token(credential: Credential) -> ApiToken:
    """Raises Refusal if it was deleted with its cluster, which the cache of credentials does not see."""
    found = ApiToken.objects.select_related("cluster").filter(digest=credential.digest).first()
    if found is None:
        raise Refusal(401, reasons.of("token_invalid"))
    return found


def _refusal(error: accounts.Refused) -> Refusal:
    match error:
        case accounts.InUse():
            return Refusal(409, error.reason, retry_after=error.retry_after)
        case accounts.RetryLater():
            return Refusal(429, error.reason, retry_after=error.retry_after)
        case accounts.NotRenewable() | accounts.OwnerWithoutRole():
            return Refusal(403, error.reason)
    return Refusal(401, error.reason)


def _bind_proven(credential: Credential) -> tuple[str, datetime]:
    """Enrols by a service account's token, whose node the cluster has confirmed."""
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
