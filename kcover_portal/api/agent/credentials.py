"""Which node a credential speaks for: looked up once for many, remembered, forgotten soon after it is withdrawn.

What was looked up holds for LIVES; every KNOWN seconds one query asks for all that were revoked meanwhile. An agent's
use of its credential is written down when it is looked up, once an hour at most: its heartbeats tell the rest. First
uses of renewed ones, which wait for locks, have a thread of their own: nobody else waits with them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover_portal.accounts import queries as account_queries
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent.group_commit import Gathering
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster

KNOWN = 5.0  # seconds for which a revoked token may still be heard
LIVES = 600.0  # seconds after which a token is looked up again, whatever was told of it
MOST = 200_000
CLOCKS = timedelta(minutes=2)  # by which the portal's machines' clocks may differ, and a revocation wait for locks


@dataclass(frozen=True, slots=True)
class Credential:
    """What a token is good for. ``digest`` is the SHA-256 by which it is kept; ``node`` "": it only enrols.

    ``account``: the service account ("namespace/name") whose token it is, "" for one of the portal's own.
    """

    digest: str
    cluster: Cluster
    node: str
    expires_at: datetime | None
    account: str = ""


class Credentials:
    """The tokens of agents that this process has heard."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Credential]] = {}
        self._asked_at = 0.0  # when it was last asked what was revoked, by the monotonic clock
        self._clusters: dict[int, Cluster] = {}
        self._lookups: Gathering[str, Credential | ApiToken] = Gathering(self.look_up, name="credentials")
        self._first_uses: Gathering[ApiToken, Credential] = Gathering(self.begin_uses, name="first-uses")

    async def find(self, secret: str) -> Credential:
        """The credential behind a secret. Raises Refusal (401, 403), Full, or the database's error."""
        digest = accounts.digest(secret)
        found = self._remembered(digest) or await self._lookups.ask(digest, at_once=True)
        return await self._first_uses.ask(found, at_once=True) if isinstance(found, ApiToken) else found

    def forget(self) -> None:
        """Remembers nobody any more."""
        self._known.clear()
        self._clusters.clear()

    def _remembered(self, digest: str) -> Credential | None:
        """The credential, if what is remembered of it can be relied on."""
        looked_up, credential = self._known.get(digest, (0.0, None))
        if credential is None or time.monotonic() > min(looked_up + LIVES, self._asked_at + KNOWN):
            return None
        return None if credential.expires_at and credential.expires_at <= timezone.now() else credential

    def look_up(self, digests: Sequence[str]) -> list[Credential | ApiToken | Exception]:
        """What stands behind each digest, a token where its first use takes over; in the thread of the look-ups."""
        close_old_connections()
        now, at = timezone.now(), time.monotonic()
        if at > self._asked_at + KNOWN:
            since = now - timedelta(seconds=min(at - self._asked_at, LIVES)) - CLOCKS
            for digest in account_queries.revoked_since(since):
                self._known.pop(digest, None)
            self._asked_at = at
        # Asked once: what is remembered may run out during a slow look-up, which does not make it unknown.
        remembered = {digest: known for digest in digests if (known := self._remembered(digest)) is not None}
        unknown = set(digests) - remembered.keys()
        found = accounts.find_tokens(unknown, now=now) if unknown else {}
        if len(self._known) + len(found) > MOST:
            self._known.clear()
        answers: list[Credential | ApiToken | Exception] = []
        for digest in digests:
            token, credential = found.get(digest), remembered.get(digest)
            if token is not None and accounts.takes_over(token):
                answers.append(token)
                continue
            if credential is None:
                try:
                    credential = self._made(token)
                except Refusal as refusal:
                    answers.append(refusal)
                    continue
                self._known[digest] = (at, credential)
            answers.append(credential)
        return answers

    def begin_uses(self, begun: Sequence[ApiToken]) -> list[Credential | Exception]:
        """The first use of each; in the thread of the first uses. A cluster whose locks are held is asked once."""
        close_old_connections()
        stuck: dict[int | None, DatabaseError] = {}
        answers: list[Credential | Exception] = []
        for token in begun:
            try:
                answers.append(stuck.get(token.cluster_id) or self._begun(token))
            except Refusal as refusal:
                answers.append(refusal)
            except DatabaseError as error:
                stuck[token.cluster_id] = error
                answers.append(error)
        return answers

    def _begun(self, token: ApiToken) -> Credential:
        if (remembered := self._remembered(token.digest)) is not None:  # an agent has two lines
            return remembered
        now, at = timezone.now(), time.monotonic()
        credential = self._made(token if accounts.begin_to_use(token, now=now) else None)
        self._known[token.digest] = (at, credential)
        return credential

    def _made(self, token: ApiToken | None) -> Credential:
        if token is None:
            raise Refusal(
                401,
                "the token is unknown, expired or revoked; create one with manage.py token create",
                code="token_invalid",
            )
        if token.kind != ApiToken.Kind.AGENT:
            raise Refusal(403, f"this token is of kind {token.kind}; agents need kind agent", code="token_kind")
        if token.cluster is None:
            raise Refusal(
                403,
                "this agent token has no cluster; create one with token create --cluster NAME",
                code="token_cluster",
            )
        cluster = self._clusters.setdefault(token.cluster.pk, token.cluster)  # one for all of its nodes
        return Credential(token.digest, cluster, token.node, token.expires_at)


def secret_of(authorization: str) -> str:
    """The secret in an Authorization header's value. Raises Refusal (401)."""
    scheme, _, secret = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Refusal(401, "send the header Authorization: Bearer TOKEN", field="Authorization")
    return secret.strip()


def is_in(credential: Credential, cluster: str | None) -> None:
    """Raises Refusal (403) where the header X-Kcover-Cluster names another cluster than the token's."""
    if cluster is not None and cluster != credential.cluster.name:
        raise Refusal(
            403,
            f"this token is of cluster {credential.cluster.name}, not of {cluster[:100]!r}: leave the header out",
            field="X-Kcover-Cluster",
        )


def speaks_for(credential: Credential, node: str) -> None:
    """Raises Refusal (403) unless the token is bound to that node (invariant 47)."""
    if not credential.node:
        raise Refusal(
            403, "this token can only enrol; POST /api/v1/agent/enrol returns one for the node", code="enrolment_token"
        )
    if credential.node != node:
        raise Refusal(
            403, f"this token belongs to node {credential.node}, not {node[:253]!r}", field="node", code="other_node"
        )
