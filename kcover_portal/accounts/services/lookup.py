"""Finds tokens by their secrets and notes when they were used."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from kcover import reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import proxies, renewal, tokens
from kcover_portal.lib.prepared import Prepared

log = logging.getLogger(__name__)

USE_NOTE_INTERVAL = timedelta(minutes=1)
AGENT_USE_NOTE_INTERVAL = timedelta(hours=1)  # there are many agents, and their heartbeats are more precise


class WrongAddress(tokens.Refused):
    """The token may not be used from the address of the client."""


def _valid(*, digest: str, now: datetime) -> QuerySet[ApiToken]:
    in_force = tokens.in_force(now) & (tokens.owner_enabled() | ~Q(node=""))
    return ApiToken.objects.select_related("cluster", "owner").filter(in_force, digest=digest)


_VALID = Prepared(_valid, digest=str, now=datetime)


def find_token(secret: str, *, now: datetime, address: str = "") -> ApiToken | None:
    """Returns the valid token with this secret, or None. Its last use is noted at most once a minute.

    ``address``: of the client (``proxies.client_address``). Raises WrongAddress if it is not in the token's networks.

    A token whose owner is disabled is refused, unless it is the credential of a node.
    """
    token = _VALID.first(digest=tokens.digest(secret), now=now)
    if token is not None and token.networks and not proxies.is_within(address, token.networks, if_unknown=False):
        log.warning("token %s of %s was used from %s, outside of its networks", token.prefix, token.owner, address)
        raise WrongAddress(reasons.of("token_wrong_address", address=address or "?"))
    if token is None or not renewal.begin_to_use(token, now=now):
        return None
    if token.last_used_at is None or token.last_used_at <= now - USE_NOTE_INTERVAL:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_used_from=address)
        token.last_used_at, token.last_used_from = now, address
    return token


def find_tokens(digests: Collection[str], *, now: datetime) -> dict[str, ApiToken]:
    """Returns the valid tokens with these digests, by digest; like ``find_token``, for many agents at once.

    It does not wait for concurrent enrolments, renewals or revocations. It therefore notes no use of credentials that
    replace others (``takes_over``): the caller calls ``begin_to_use`` for them.
    """
    rows = ApiToken.objects.prefetch_related("cluster").filter(tokens.in_force(now), digest__in=digests)
    found = {token.digest: token for token in rows}
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - AGENT_USE_NOTE_INTERVAL)
    ids = sorted(token.pk for token in found.values() if not renewal.takes_over(token))
    ApiToken.objects.filter(unnoted, pk__in=ids).update(last_used_at=now)
    return found
