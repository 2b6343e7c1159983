"""The tokens behind the secrets that are shown at the doors, and that they were used."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q

from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import renewing, tokens

USE_NOTED_EVERY = timedelta(minutes=1)
AGENTS_USE_NOTED_EVERY = timedelta(hours=1)  # there are many, and their heartbeats say more


def find_token(secret: str, *, now: datetime) -> ApiToken | None:
    """The token that is in force under this secret, or None; its last use is noted at most once a minute."""
    rows = ApiToken.objects.select_related("cluster").filter(tokens.in_force(now))
    token = rows.filter(digest=tokens.digest(secret)).first()
    if token is None or (token.last_used_at is None and not renewing.begin_to_use(token, now=now)):
        return None
    if token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now
    return token


def find_tokens(digests: Collection[str], *, now: datetime) -> dict[str, ApiToken]:
    """The tokens in force under these digests, by digest, for many agents at once; ``find_token`` says more."""
    rows = ApiToken.objects.prefetch_related("cluster").filter(tokens.in_force(now), digest__in=digests)
    found = {
        token.digest: token for token in rows if token.last_used_at is not None or renewing.begin_to_use(token, now=now)
    }
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - AGENTS_USE_NOTED_EVERY)
    ids = sorted(token.pk for token in found.values())
    ApiToken.objects.filter(unnoted, pk__in=ids).update(last_used_at=now)
    return found
