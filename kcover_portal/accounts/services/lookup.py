"""The tokens behind the secrets that are shown at the doors, and that they were used."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q

from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import renewal, tokens

USE_NOTED_EVERY = timedelta(minutes=1)
AGENTS_USE_NOTED_EVERY = timedelta(hours=1)  # there are many, and their heartbeats say more


def find_token(secret: str, *, now: datetime) -> ApiToken | None:
    """The token that is in force under this secret, or None; its last use is noted at most once a minute."""
    rows = ApiToken.objects.select_related("cluster").filter(tokens.in_force(now))
    token = rows.filter(digest=tokens.digest(secret)).first()
    if token is None or not renewal.begin_to_use(token, now=now):
        return None
    if token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now
    return token


def find_tokens(digests: Collection[str], *, now: datetime) -> dict[str, ApiToken]:
    """The tokens in force under these digests, by digest, for many agents at once; ``find_token`` says more.

    It waits for nobody who gives out or withdraws credentials: of those that take another's place (``takes_over``) no
    use is noted, and ``begin_to_use`` is for the caller.
    """
    rows = ApiToken.objects.prefetch_related("cluster").filter(tokens.in_force(now), digest__in=digests)
    found = {token.digest: token for token in rows}
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - AGENTS_USE_NOTED_EVERY)
    ids = sorted(token.pk for token in found.values() if not renewal.takes_over(token))
    ApiToken.objects.filter(unnoted, pk__in=ids).update(last_used_at=now)
    return found
