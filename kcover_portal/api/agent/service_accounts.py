"""Authenticates agents by service account tokens: the cluster itself confirms the node of the pod.

The API server of the cluster in the request reviews a pod's projected token for the portal's audience. The token then
speaks for the node of that pod; the pod's own claims are not used. Only the accounts in KCOVER_SERVICE_ACCOUNTS are
accepted, because any pod can request a token for any audience.

Anybody who can reach the endpoint can trigger reviews with invented tokens that name such an account. Unknown tokens
therefore wait in a separate lane, so that they cannot delay tokens or pods that were confirmed before. If that lane is
crowded, the cluster's list of agent pods separates real pods from strangers. A token names its pod's uid, which cannot
be guessed. Each pod has at most two places in a lane. Rejected tokens are remembered separately.

A review is valid for REVIEW_VALID_SECONDS. While the API server does not answer, a confirmed token stays valid for
REVIEW_VALID_IN_OUTAGE_SECONDS. A token that was never reviewed gets a 503, and the agent keeps its report. A rejection
ends the validity at once. Reviews are kept in memory only. After a restart, agents may therefore go unrecognised until
the API server answers, and their silence then proves nothing (``blind``).
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

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import jwt_claims
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.api.agent.group_commit import QueueFull
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port

log = logging.getLogger(__name__)

Remembered = TypeVar("Remembered")

HEADER = "X-Kcover-Cluster"
REVIEW_VALID_SECONDS = 300.0  # minus a random tenth, so that a fleet does not synchronize
REVIEW_VALID_IN_OUTAGE_SECONDS = 3600.0  # while the API server does not answer; kubelets renew tokens within the hour
REJECTION_VALID_SECONDS = 10.0  # until a rejected token is reviewed again
CLUSTER_CACHE_SECONDS = 30.0  # between reads of the clusters' rows; POD_CACHE_SECONDS for an unknown one
POD_CACHE_SECONDS = 5.0  # between lists of the agents' pods
CIRCUIT_OPEN_SECONDS = 5  # without requests, after an API server did not answer
MAX_CONCURRENT_REVIEWS = 4  # per cluster and lane
MAX_QUEUED_REVIEWS = 1_000  # per cluster and lane, including those in progress
MAX_REVIEWS_PER_POD = 2  # per lane: a token and its successor
LIST_PODS_FROM_QUEUE_LENGTH = 50  # waiting strangers from which on the cluster's pods are listed
POD_LIST_INTERVAL_SECONDS = 30.0  # between such lists, to limit the load that strangers can cause
MAX_CACHED_TOKENS = 100_000  # remembered tokens, and pods
MAX_CACHED_REJECTIONS = 10_000
KNOWN_POD_THREADS = 16
UNKNOWN_POD_THREADS = 8  # separate threads, so that strangers of many clusters cannot occupy all threads


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """A positive review. ``at`` and ``until`` are times of the monotonic clock."""

    at: float
    until: float
    answer: Credential


@dataclass(slots=True)
class _Lane:
    """A queue of reviews, which ``threads`` execute."""

    threads: ThreadPoolExecutor
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_REVIEWS))
    waiting: int = 0
    pods: Counter[str] = field(default_factory=Counter)  # number of waiting reviews per pod

    @contextmanager
    def place(self, pod: str) -> Iterator[None]:
        """Reserves a place in the lane. Raises QueueFull."""
        if self.waiting >= MAX_QUEUED_REVIEWS or (pod and self.pods[pod] >= MAX_REVIEWS_PER_POD):
            raise QueueFull
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
class _Server:
    """The lanes to one cluster's API server, and its state."""

    strangers: _Lane
    confirmed: _Lane
    down_until: float = 0.0
    listed_at: float = -POD_LIST_INTERVAL_SECONDS  # when the pods were last listed because of many strangers


@dataclass(slots=True)
class _Pods:
    """The nodes of the agents' pods by pod uid, for reviews without a node and to recognize strangers."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    nodes: dict[str, str] = field(default_factory=dict)
    listed_at: float = -POD_CACHE_SECONDS

    def look(self, client: port.Cluster) -> None:
        """Lists the pods. Runs in a thread that holds ``guard``. Raises port.KubeError."""
        namespaces = sorted({account.partition("/")[0] for account in settings.KCOVER_SERVICE_ACCOUNTS})
        pods = [pod for namespace in namespaces for pod in client.list_pods(namespace=namespace)]
        self.nodes = {pod.uid: pod.node for pod in pods if pod.node}
        self.listed_at = time.monotonic()


class ServiceAccounts:
    """A cache of reviewed service account tokens in this process."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(KNOWN_POD_THREADS, thread_name_prefix="token-reviews")
        self._strangers = ThreadPoolExecutor(UNKNOWN_POD_THREADS, thread_name_prefix="strangers-reviews")
        self.forget()

    def forget(self) -> None:
        self._known: OrderedDict[str, _Reviewed] = OrderedDict()
        self._refused: OrderedDict[str, tuple[float, Refusal]] = OrderedDict()  # (expiry, refusal)
        self._confirmed: OrderedDict[str, None] = OrderedDict()  # pods with a confirmed token, by cluster and uid
        self._reviews: dict[str, asyncio.Task[Credential]] = {}
        self._servers: dict[int, _Server] = {}
        self._pods: dict[int, _Pods] = {}
        self._clusters: dict[str, Cluster] = {}
        self._clusters_at = -CLUSTER_CACHE_SECONDS
        self._blind: set[int] = set()

    def blind(self) -> set[int]:
        """Returns the ids of clusters whose API servers did not answer since the last call."""
        found, self._blind = self._blind, set()
        return found

    async def find(self, secret: str, cluster: str | None) -> Credential:
        """Returns the token's credential in that cluster. Raises Refusal (401, 403, 503), QueueFull, DatabaseError."""
        if not cluster:
            raise Refusal(401, reasons.of("cluster_header_missing"), field=HEADER)
        claims = jwt_claims.read(secret, now=timezone.now())
        _require_allowed(claims.account)
        key = accounts.digest(f"{cluster}\0{secret}")
        known = self._known.get(key)
        if known is not None and time.monotonic() < known.until:
            return known.answer
        until, refusal = self._refused.get(key, (0.0, None))
        if refusal is not None and time.monotonic() < until:
            raise refusal
        review = self._reviews.get(key)
        if review is None:  # an agent's report and poll use one token at the same time
            review = asyncio.create_task(self._start_review(key, secret, cluster, claims))
            self._reviews[key] = review
            review.add_done_callback(lambda _: self._reviews.pop(key, None))
        return await asyncio.shield(review)

    async def _start_review(self, key: str, secret: str, name: str, claims: jwt_claims.Claims) -> Credential:
        cluster = await self._cluster(name)
        with log_context.bound(cluster=cluster.name):
            return await self._review_in_turn(key, secret, cluster, claims)

    async def _review_in_turn(self, key: str, secret: str, cluster: Cluster, claims: jwt_claims.Claims) -> Credential:
        server = self._servers.setdefault(cluster.pk, _Server(_Lane(self._strangers), _Lane(self._threads)))
        pod = f"{cluster.pk} {claims.pod}" if claims.pod else ""
        lane = (
            server.confirmed
            if key in self._known or pod in self._confirmed
            else self._lane(cluster, server, claims.pod)
        )
        try:
            with lane.place(claims.pod):
                async with lane.gate:
                    if time.monotonic() < server.down_until:
                        return self._without_review(key, cluster, reasons.of("api_server_down"))
                    loop = asyncio.get_running_loop()
                    found = await loop.run_in_executor(
                        lane.threads, self._review, key, secret, cluster, claims.expires_at
                    )
        except port.Unavailable as error:
            server.down_until = time.monotonic() + CIRCUIT_OPEN_SECONDS
            self._blind.add(cluster.pk)
            log.warning("tokens of cluster %s cannot be reviewed: %s", cluster.name, error)
            return self._without_review(key, cluster, str(error)[:400])
        except port.KubeError as error:
            log.error("tokens of cluster %s cannot be reviewed (deploy/rbac.yaml allows it): %s", cluster.name, error)
            return self._without_review(key, cluster, str(error)[:400])
        except Refusal as refusal:
            if refusal.status != 503:
                self._known.pop(key, None)
                until = time.monotonic() + REJECTION_VALID_SECONDS
                _put(self._refused, key, (until, refusal), most=MAX_CACHED_REJECTIONS)
            raise
        at = time.monotonic()
        until = at + REVIEW_VALID_SECONDS * random.uniform(0.9, 1.0)  # nosec B311
        _put(self._known, key, _Reviewed(at, until, found), most=MAX_CACHED_TOKENS)
        if pod:
            _put(self._confirmed, pod, None, most=MAX_CACHED_TOKENS)
        return found

    def _lane(self, cluster: Cluster, server: _Server, pod: str) -> _Lane:
        """Returns the lane of an unconfirmed pod. Does not wait for the list of pods: agents retry within seconds."""
        pods = self._pods.setdefault(cluster.pk, _Pods())
        now = time.monotonic()
        if server.strangers.waiting >= LIST_PODS_FROM_QUEUE_LENGTH and now >= max(
            server.listed_at + POD_LIST_INTERVAL_SECONDS, server.down_until
        ):
            server.listed_at = now
            asyncio.get_running_loop().run_in_executor(self._threads, _list_pods, cluster, pods)
        return server.confirmed if pod in pods.nodes else server.strangers

    def _without_review(self, key: str, cluster: Cluster, why: reasons.Value) -> Credential:
        """Returns a recently confirmed credential while the API server does not answer. Raises Refusal (503)."""
        known = self._known.get(key)
        if known and time.monotonic() < known.at + REVIEW_VALID_IN_OUTAGE_SECONDS:
            return known.answer
        reason = reasons.of("token_not_reviewed", cluster=cluster.name, why=why)
        raise Refusal(503, reason, retry_after=CIRCUIT_OPEN_SECONDS)

    async def _cluster(self, name: str) -> Cluster:
        age = time.monotonic() - self._clusters_at
        if age > CLUSTER_CACHE_SECONDS or (name not in self._clusters and age > POD_CACHE_SECONDS):
            loop = asyncio.get_running_loop()
            self._clusters = await loop.run_in_executor(self._threads, _clusters)
            self._clusters_at = time.monotonic()
        cluster = self._clusters.get(name)
        if cluster is None:
            raise Refusal(401, reasons.of("token_rejected", cluster=name[:100]))  # as of one that exists
        return cluster

    def _review(self, key: str, secret: str, cluster: Cluster, expires_at: datetime) -> Credential:
        """Reviews the token; runs in a thread. Raises Refusal or port.KubeError."""
        client = fleet.connect(cluster)
        identity = client.review_token(secret, audiences=[jwt_claims.AUDIENCE])
        if identity is None:
            raise Refusal(401, reasons.of("token_rejected", cluster=cluster.name))
        account = identity.service_account or ""
        _require_allowed(account, named=identity.username)
        node = identity.node_name or self._node_of(identity, client, cluster)
        return Credential(key, cluster, node, expires_at, account=account)

    def _node_of(self, identity: port.TokenIdentity, client: port.Cluster, cluster: Cluster) -> str:
        """Returns the node of the token's pod if the review does not name it (before Kubernetes 1.30)."""
        if not identity.pod_uid:
            raise Refusal(403, reasons.of("token_unbound"))
        pods = self._pods.setdefault(cluster.pk, _Pods())
        with pods.guard:
            if identity.pod_uid not in pods.nodes and time.monotonic() >= pods.listed_at + POD_CACHE_SECONDS:
                pods.look(client)
            node = pods.nodes.get(identity.pod_uid)
        if node is None:
            pod = reasons.of("pod_unknown", pod=str(identity.pod_name), cluster=cluster.name)
            raise Refusal(503, pod, retry_after=CIRCUIT_OPEN_SECONDS)
        return node


def _require_allowed(account: str, *, named: str = "") -> None:
    """Raises Refusal (403) unless KCOVER_SERVICE_ACCOUNTS allows the account; ``named`` is its full name for errors."""
    allowed: Sequence[str] = settings.KCOVER_SERVICE_ACCOUNTS
    if account not in allowed:
        name = named or jwt_claims.ACCOUNT + account.replace("/", ":", 1)
        names = ", ".join(allowed) or reasons.of("nobody")
        raise Refusal(403, reasons.of("account_not_allowed", account=name[:300], allowed=names))


def _list_pods(cluster: Cluster, pods: _Pods) -> None:
    """Lists a cluster's agent pods; runs in a thread."""
    with log_context.bound(cluster=cluster.name):
        try:
            with pods.guard:
                pods.look(fleet.connect(cluster))
        except port.KubeError as error:
            log.warning("cannot list the agent pods of cluster %s: %s", cluster.name, error)


def _clusters() -> dict[str, Cluster]:
    """Reads the clusters' rows. Runs in a thread, which is used too rarely to keep its connection."""
    try:
        return {cluster.name: cluster for cluster in fleet.clusters()}
    finally:
        connection.close()


def _put(cache: OrderedDict[str, Remembered], key: str, value: Remembered, *, most: int) -> None:
    """Stores a value as the latest and drops the oldest."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
