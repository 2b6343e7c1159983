"""Service accounts' tokens at the agents' door: the cluster itself says on which node the pod runs that sends one.

A projected token of a pod is reviewed by the API server of the cluster that the request names, for the portal's own
audience, and speaks for the node of that pod: never for what the pod says of itself. Whose pods may speak for their
nodes is KCOVER_SERVICE_ACCOUNTS, as any pod can have a token for any audience made.

Whoever can reach the door can have tokens of that shape reviewed, if they name an account that may speak. Strangers
wait in a lane of their own, so that they are in the way of no token that was good before, and of none of a pod that
had such a one. Once that lane is crowded, the cluster's list of the agents' pods tells who is no stranger: a token
names its pod's uid, which nobody knows who was not told. All tokens that name one pod have two places in a lane. What
was refused is remembered apart.

A review holds for BELIEVED. While the API server does not answer, one that was good holds for BELIEVED_BLIND; a token
that was never reviewed is 503, and the agent keeps its report. A definite no ends all belief at once. What was believed
is in memory only: after a restart an agent may not be heard until the API server answers, and its silence is no news
(``blind``).
"""

import asyncio
import logging
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.db import connection
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import jwt_claims
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.api.agent.group_commit import Full
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port

log = logging.getLogger(__name__)

Remembered = TypeVar("Remembered")

HEADER = "X-Kcover-Cluster"
BELIEVED = 300.0  # seconds for which a review holds, less a random tenth: a fleet must not come back in step
BELIEVED_BLIND = 3600.0  # while the API server cannot be asked; kubelets renew their tokens within the hour
REFUSED_FOR = 10.0  # seconds until a token that was refused is reviewed again
CLUSTERS_KNOWN = 30.0  # seconds between looks at the clusters' rows; 5 for one that is not known
PODS_KNOWN = 5.0  # seconds between two lists of the agents' pods
DOWN = 5  # seconds for which a cluster whose API server did not answer is not asked again
AT_ONCE = 4  # reviews of one cluster under way, of strangers; as many of those who were vouched for
WAITING = 1_000  # and waiting
OF_ONE_POD = 2  # under way and waiting: a token and the one that follows it
CROWDED = 50  # strangers, from which on the cluster is asked which pods it has
LISTED = 30.0  # seconds between two such lists: who is no pod must not cost the API server more
MOST = 100_000  # tokens remembered, and pods
MOST_REFUSED = 10_000
THREADS = 16
STRANGERS = 8  # threads of theirs, so that many clusters' strangers leave the others their threads


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """A good review. ``at`` and ``until``: by the monotonic clock."""

    at: float
    until: float
    answer: Credential


@dataclass(slots=True)
class _Lane:
    """Reviews that wait for each other; ``threads``: where they are made."""

    threads: ThreadPoolExecutor
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    waiting: int = 0
    pods: Counter[str] = field(default_factory=Counter)  # how many of them wait

    @contextmanager
    def place(self, pod: str) -> Iterator[None]:
        """A place in it. Raises Full."""
        if self.waiting >= WAITING or (pod and self.pods[pod] >= OF_ONE_POD):
            raise Full
        self.waiting += 1
        self.pods[pod] += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self.pods[pod] -= 1
            if not self.pods[pod]:
                del self.pods[pod]


@dataclass(slots=True)
class _Way:
    """The way to one cluster's API server, for this process."""

    strangers: _Lane
    vouched: _Lane
    down_until: float = 0.0
    listed_at: float = -LISTED  # when the pods were asked for, as strangers were a crowd


@dataclass(slots=True)
class _Pods:
    """The node of each agent's pod, by the pod's uid: for reviews that do not name it, and to recognise strangers."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    nodes: dict[str, str] = field(default_factory=dict)
    listed_at: float = -PODS_KNOWN

    def look(self, client: port.Cluster) -> None:
        """In a thread that holds ``guard``. Raises port.KubeError."""
        namespaces = sorted({account.partition("/")[0] for account in settings.KCOVER_SERVICE_ACCOUNTS})
        pods = [pod for namespace in namespaces for pod in client.list_pods(namespace=namespace)]
        self.nodes = {pod.uid: pod.node for pod in pods if pod.node}
        self.listed_at = time.monotonic()


class ServiceAccounts:
    """The service accounts' tokens that this process has heard."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="token-reviews")
        self._strangers = ThreadPoolExecutor(STRANGERS, thread_name_prefix="strangers-reviews")
        self.forget()

    def forget(self) -> None:
        """Remembers nothing any more."""
        self._known: OrderedDict[str, _Reviewed] = OrderedDict()
        self._refused: OrderedDict[str, tuple[float, Refusal]] = OrderedDict()  # until when, by the monotonic clock
        self._vouched: OrderedDict[str, None] = OrderedDict()  # pods of which a token was good, by cluster and uid
        self._asking: dict[str, asyncio.Task[Credential]] = {}
        self._ways: dict[int, _Way] = {}
        self._pods: dict[int, _Pods] = {}
        self._clusters: dict[str, Cluster] = {}
        self._clusters_at = -CLUSTERS_KNOWN
        self._blind: set[int] = set()

    def blind(self) -> set[int]:
        """The clusters (by key) whose API servers could not be asked since the last call."""
        found, self._blind = self._blind, set()
        return found

    async def find(self, secret: str, cluster: str | None) -> Credential:
        """Whom the token speaks for in that cluster. Raises Refusal (401, 403, 503), Full, or the database's error."""
        if not cluster:
            raise Refusal(
                401, "a service account token does not name its cluster; send the cluster's name", field=HEADER
            )
        claims = jwt_claims.read(secret, now=timezone.now())
        _demand(claims.account)
        key = accounts.digest(f"{cluster}\0{secret}")
        known = self._known.get(key)
        if known is not None and time.monotonic() < known.until:
            return known.answer
        until, refusal = self._refused.get(key, (0.0, None))
        if refusal is not None and time.monotonic() < until:
            raise refusal
        asking = self._asking.get(key)
        if asking is None:  # an agent's report and its poll come with one token at one time
            asking = asyncio.create_task(self._ask(key, secret, cluster, claims))
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, key: str, secret: str, name: str, claims: jwt_claims.Claims) -> Credential:
        cluster = await self._cluster(name)
        way = self._ways.setdefault(cluster.pk, _Way(_Lane(self._strangers), _Lane(self._threads)))
        pod = f"{cluster.pk} {claims.pod}" if claims.pod else ""
        lane = way.vouched if key in self._known or pod in self._vouched else self._lane(cluster, way, claims.pod)
        try:
            with lane.place(claims.pod):
                async with lane.gate:
                    if time.monotonic() < way.down_until:
                        return self._unasked(key, cluster, "it did not answer a moment ago")
                    loop = asyncio.get_running_loop()
                    found = await loop.run_in_executor(
                        lane.threads, self._review, key, secret, cluster, claims.expires_at
                    )
        except port.Unavailable as error:
            way.down_until = time.monotonic() + DOWN
            self._blind.add(cluster.pk)
            log.warning("tokens of cluster %s cannot be reviewed: %s", cluster.name, error)
            return self._unasked(key, cluster, str(error))
        except port.KubeError as error:
            log.error("tokens of cluster %s cannot be reviewed (deploy/rbac.yaml allows it): %s", cluster.name, error)
            return self._unasked(key, cluster, str(error))
        except Refusal as refusal:
            if refusal.status != 503:
                self._known.pop(key, None)
                _put(self._refused, key, (time.monotonic() + REFUSED_FOR, refusal), most=MOST_REFUSED)
            raise
        at = time.monotonic()
        _put(self._known, key, _Reviewed(at, at + BELIEVED * random.uniform(0.9, 1.0), found), most=MOST)
        if pod:
            _put(self._vouched, pod, None, most=MOST)
        return found

    def _lane(self, cluster: Cluster, way: _Way, pod: str) -> _Lane:
        """The lane of a token whose pod is not vouched for. Nothing waits for the list: agents retry within seconds."""
        pods = self._pods.setdefault(cluster.pk, _Pods())
        now = time.monotonic()
        if way.strangers.waiting >= CROWDED and now >= max(way.listed_at + LISTED, way.down_until):
            way.listed_at = now
            asyncio.get_running_loop().run_in_executor(self._threads, _list, cluster, pods)
        return way.vouched if pod in pods.nodes else way.strangers

    def _unasked(self, key: str, cluster: Cluster, why: str) -> Credential:
        """What was good lately, while nobody can be asked."""
        known = self._known.get(key)
        if known and time.monotonic() < known.at + BELIEVED_BLIND:
            return known.answer
        reason = f"the API server of cluster {cluster.name} cannot review the token: {why}. Keep the report and retry."
        raise Refusal(503, reason[:500], retry_after=DOWN)

    async def _cluster(self, name: str) -> Cluster:
        age = time.monotonic() - self._clusters_at
        if age > CLUSTERS_KNOWN or (name not in self._clusters and age > PODS_KNOWN):
            loop = asyncio.get_running_loop()
            self._clusters = await loop.run_in_executor(self._threads, _clusters)
            self._clusters_at = time.monotonic()
        cluster = self._clusters.get(name)
        if cluster is None:
            raise Refusal(403, f"unknown cluster {name[:100]!r}", field=HEADER, code="unknown_cluster")
        return cluster

    def _review(self, key: str, secret: str, cluster: Cluster, expires_at: datetime) -> Credential:
        """In a thread. Raises Refusal or port.KubeError."""
        client = fleet.connect(cluster)
        who = client.review_token(secret, audiences=[jwt_claims.AUDIENCE])
        if who is None:
            raise Refusal(401, f"cluster {cluster.name} rejected this token, or its pod is gone", code="token_invalid")
        account = who.service_account or ""
        _demand(account, named=who.username)
        node = who.node_name or self._node_of(who, client, cluster)
        return Credential(key, cluster, node, expires_at, account=account)

    def _node_of(self, who: port.TokenIdentity, client: port.Cluster, cluster: Cluster) -> str:
        """The node of the token's pod, where the review does not name it (before Kubernetes 1.30)."""
        if not who.pod_uid:
            raise Refusal(
                403, "the token is not bound to a pod; use one projected into the agent's pod", code="token_unbound"
            )
        pods = self._pods.setdefault(cluster.pk, _Pods())
        with pods.guard:
            if who.pod_uid not in pods.nodes and time.monotonic() >= pods.listed_at + PODS_KNOWN:
                pods.look(client)
            node = pods.nodes.get(who.pod_uid)
        if node is None:
            reason = f"pod {who.pod_name} of cluster {cluster.name} is not known yet. Keep the report and retry."
            raise Refusal(503, reason, retry_after=DOWN)
        return node


def _demand(account: str, *, named: str = "") -> None:
    """Raises Refusal (403) unless the account's pods may speak for their nodes; ``named``: the account in full."""
    allowed: Sequence[str] = settings.KCOVER_SERVICE_ACCOUNTS
    if account not in allowed:
        who, names = named or jwt_claims.ACCOUNT + account.replace("/", ":", 1), ", ".join(allowed) or "nobody"
        raise Refusal(
            403,
            f"{who[:300]} may not report for nodes; KCOVER_SERVICE_ACCOUNTS allows {names}",
            code="account_not_allowed",
        )


def _list(cluster: Cluster, pods: _Pods) -> None:
    """In a thread."""
    try:
        with pods.guard:
            pods.look(fleet.connect(cluster))
    except port.KubeError as error:
        log.warning("cannot list the agent pods of cluster %s: %s", cluster.name, error)


def _clusters() -> dict[str, Cluster]:
    """In a thread, which asks too seldom to keep a connection for it."""
    try:
        return {cluster.name: cluster for cluster in fleet.clusters()}
    finally:
        connection.close()


def _put(among: OrderedDict[str, Remembered], key: str, value: Remembered, *, most: int) -> None:
    """Remembers it as the latest; the oldest are forgotten."""
    among[key] = value
    among.move_to_end(key)
    while len(among) > most:
        among.popitem(last=False)
