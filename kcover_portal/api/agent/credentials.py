"""Resolves credentials of agents to nodes. Look-ups are batched and cached, and revocations are polled.

A look-up is valid for CACHE_SECONDS; every REVOCATION_POLL_SECONDS, one query reads all tokens that were revoked
since. The use of a credential is recorded at its look-up, at most once an hour, because heartbeats are more precise.
The first use of a renewed credential waits for locks and therefore runs in a separate thread.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover import reasons
from kcover_portal.accounts import queries as account_queries, services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent.group_commit import GroupCommit
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster

REVOCATION_POLL_SECONDS = 5.0  # a revoked token may be accepted for this long
CACHE_SECONDS = 600.0  # then a token is always looked up again
MAX_CACHED_TOKENS = 200_000
MAX_CLOCK_DIFFERENCE = timedelta(minutes=2)  # between the portal's machines, plus waiting for locks


@dataclass(frozen=True, slots=True)
class Credential:
    """The rights of an agent's token. ``digest`` is its SHA-256; ``node`` is "" for a token that can only enrol.

    ``account`` is the service account ("namespace/name") of the token, "" for one of the portal's tokens.
    """

    digest: str
    cluster: Cluster
    node: str
    expires_at: datetime | None
    account: str = ""


class Credentials:
    """A cache of the agents' tokens in this process."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Credential]] = {}
        self._polled_at = 0.0  # when revocations were last read, by the monotonic clock
        self._clusters: dict[int, Cluster] = {}
        self._lookups: GroupCommit[str, Credential | ApiToken] = GroupCommit(self.look_up, name="credentials")
        self._first_uses: GroupCommit[ApiToken, Credential] = GroupCommit(self.begin_uses, name="first-uses")

    async def find(self, secret: str) -> Credential:
        """Returns the credential of a secret. Raises Refusal (401, 403), Full, or the database's error."""
        digest = accounts.digest(secret)
        found = self._cached(digest) or await self._lookups.ask(digest, at_once=True)
        return await self._first_uses.ask(found, at_once=True) if isinstance(found, ApiToken) else found

    def forget(self) -> None:
        self._known.clear()
        self._clusters.clear()

    def _cached(self, digest: str) -> Credential | None:
        """Returns the cached credential if it is still reliable, else None."""
        looked_up, credential = self._known.get(digest, (0.0, None))
        if credential is None or time.monotonic() > min(
            looked_up + CACHE_SECONDS, self._polled_at + REVOCATION_POLL_SECONDS
        ):
            return None
        return None if credential.expires_at and credential.expires_at <= timezone.now() else credential

    def look_up(self, digests: Sequence[str]) -> list[Credential | ApiToken | Exception]:
        """Returns a credential per digest, or a token whose first use replaces others. Runs in the look-up thread."""
        close_old_connections()
        now, at = timezone.now(), time.monotonic()
        if at > self._polled_at + REVOCATION_POLL_SECONDS:
            since = now - timedelta(seconds=min(at - self._polled_at, CACHE_SECONDS)) - MAX_CLOCK_DIFFERENCE
            for digest in account_queries.revoked_since(since):
                self._known.pop(digest, None)
            self._polled_at = at
        # Read the cache once: an entry may expire during a slow look-up, but that does not make the token unknown.
        cached = {digest: known for digest in digests if (known := self._cached(digest)) is not None}
        unknown = set(digests) - cached.keys()
        found = accounts.find_tokens(unknown, now=now) if unknown else {}
        if len(self._known) + len(found) > MAX_CACHED_TOKENS:
            self._known.clear()
        answers: list[Credential | ApiToken | Exception] = []
        for digest in digests:
            token, credential = found.get(digest), cached.get(digest)
            if token is not None and accounts.takes_over(token):
                answers.append(token)
                continue
            if credential is None:
                try:
                    credential = self._credential(token)
                except Refusal as refusal:
                    answers.append(refusal)
                    continue
                self._known[digest] = (at, credential)
            answers.append(credential)
        return answers

    def begin_uses(self, tokens: Sequence[ApiToken]) -> list[Credential | Exception]:
        """Records first uses, in their own thread. A cluster whose locks are held is tried only once."""
        close_old_connections()
        blocked: dict[int | None, DatabaseError] = {}
        answers: list[Credential | Exception] = []
        for token in tokens:
            try:
                answers.append(blocked.get(token.cluster_id) or self._begin_use(token))
            except Refusal as refusal:
                answers.append(refusal)
            except DatabaseError as error:
                blocked[token.cluster_id] = error
                answers.append(error)
        return answers

    def _begin_use(self, token: ApiToken) -> Credential:
        if (cached := self._cached(token.digest)) is not None:  # an agent has two connections
            return cached
        now, at = timezone.now(), time.monotonic()
        credential = self._credential(token if accounts.begin_to_use(token, now=now) else None)
        self._known[token.digest] = (at, credential)
        return credential

    def _credential(self, token: ApiToken | None) -> Credential:
        if token is None:
            raise Refusal(401, reasons.of("token_invalid"))
        if token.kind != ApiToken.Kind.AGENT:
            raise Refusal(403, reasons.of("token_kind", kind=token.kind))
        if token.cluster is None:
            raise Refusal(403, reasons.of("token_cluster"))
        cluster = self._clusters.setdefault(token.cluster.pk, token.cluster)  # one object for all nodes of the cluster
        return Credential(token.digest, cluster, token.node, token.expires_at)


def secret_of(authorization: str) -> str:
    """Returns the secret in an Authorization header. Raises Refusal (401)."""
    scheme, _, secret = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Refusal(401, reasons.of("not_authenticated"), field="Authorization")
    return secret.strip()


def is_in(credential: Credential, cluster: str | None) -> None:
    """Raises Refusal (403) if the header X-Kcover-Cluster names another cluster than the token's."""
    if cluster is not None and cluster != credential.cluster.name:
        reason = reasons.of("other_cluster", cluster=credential.cluster.name, other=repr(cluster[:100]))
        raise Refusal(403, reason, field="X-Kcover-Cluster")


def speaks_for(credential: Credential, node: str) -> None:
    """Raises Refusal (403) unless the token is bound to that node (invariant 47)."""
    if not credential.node:
        raise Refusal(403, reasons.of("enrolment_token"))
    if credential.node != node:
        reason = reasons.of("other_node", node=credential.node, other=repr(node[:253]))
        raise Refusal(403, reason, field="node")
