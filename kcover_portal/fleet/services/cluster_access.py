"""The test of the access to a cluster: whether its API server answers, and which rights the account has there."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import urlsplit

from django.conf import settings

from kcover import audit, reasons
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import kubeconfig
from kcover_portal.kube import diagnosis, live, port, rights
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import outgoing

SECONDS: Final = 10.0  # for the whole test; pages wait for 15 s
THREADS: Final = 6
LIST_NODES: Final = port.Right("list", "", "nodes")
T = TypeVar("T")
LogNamespaces = Callable[[Cluster], Collection[str]]
_log_namespaces: list[LogNamespaces] = []


class State(StrEnum):
    """The server's answer about the rights of a feature; ``UNKNOWN``: it did not come in time."""

    GRANTED = "granted"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FeatureAccess:
    """A feature, and which of its rights are missing or were not answered."""

    feature: rights.Feature
    missing: tuple[port.Right, ...]
    unknown: tuple[port.Right, ...]

    @property
    def title(self) -> reasons.Reason:
        return reasons.of(f"feature_{self.feature.name}")

    @property
    def refused(self) -> tuple[port.Right, ...]:
        """The rights that the account lacks; those without an answer if it lacks none."""
        return self.missing or self.unknown

    @property
    def state(self) -> State:
        if self.missing:
            return State.MISSING
        return State.UNKNOWN if self.unknown else State.GRANTED


@dataclass(frozen=True, slots=True)
class Access:
    """The result. ``unreachable``: why the server cannot be used; the rest is then empty.

    ``nodes``: their number; None if the account may not list them.
    """

    unreachable: reasons.Reason | None = None
    version: str = ""
    nodes: int | None = None
    features: Sequence[FeatureAccess] = field(default_factory=tuple)

    @property
    def manifests(self) -> list[str]:
        """The files that grant what is missing, each once."""
        lacking = (one.feature.manifest for one in self.features if one.state == State.MISSING)
        return list(dict.fromkeys(lacking))

    @property
    def usable(self) -> bool:
        """Returns whether the server answered and the account has all required rights."""
        needed = [one for one in self.features if one.feature.need == rights.Need.REQUIRED]
        return self.unreachable is None and all(one.state == State.GRANTED for one in needed)


def reads_logs_in(find: LogNamespaces) -> None:
    """Registers where an app reads logs of pods. It calls this at start."""
    _log_namespaces.append(find)


def namespaces(cluster: Cluster) -> rights.Namespaces:
    """Where the portal creates objects in this cluster, and reads logs of pods."""
    return rights.Namespaces(
        jobs=cluster.job_namespace,
        preflight=cluster.nccl_namespace,
        events=cluster.event_namespace,
        pod_logs=tuple(sorted({name for find in _log_namespaces for name in find(cluster)})),
    )


def test_kubeconfig(given: kubeconfig.Kubeconfig) -> Access:
    """Tests a kubeconfig that ``kubeconfig.read_pasted`` made. Only addresses that ``outgoing`` allows are called."""
    try:
        server = urlsplit(given.server)
        outgoing.addresses(server.hostname or "", server.port)
        kube = live.on_trial(given.text, resolve=outgoing.addresses)
    except reasons.ExplainedError as error:
        return Access(error.reason)
    except ValueError:  # of a port that is not one
        return Access(reasons.of("cluster_not_kubernetes"))
    except port.KubeError as error:
        return Access(diagnosis.of(error))
    return test(kube, rights.features(rights.Namespaces()))


def test_inside() -> Access:
    """Tests the account of this process in the cluster that it runs in: only the rights that web uses."""
    features = rights.of_process("web", rights.features(rights.Namespaces()))
    try:
        return test(live.on_trial(None, resolve=outgoing.addresses), features)
    except port.KubeError as error:
        return Access(diagnosis.of(error))


def process_of(cluster: Cluster) -> str:
    """The process whose rights alone this one can test: web, where it has other rights than the engine; "": all."""
    return "web" if cluster.in_cluster or settings.KCOVER_CLUSTER_ACCESS == "read" else ""


def test_and_record(cluster: Cluster, *, actor: str, now: datetime) -> Access:
    """Tests the stored access as far as this process can, and writes the test to the audit log."""
    access = test_registered(cluster, process=process_of(cluster))
    record(cluster.name, access, actor=actor, now=now)
    return access


def test_registered(cluster: Cluster, *, process: str) -> Access:
    """Tests the access that is stored for a cluster, with its namespaces. ``process``: only its rights; "": all."""
    features = rights.features(namespaces(cluster))
    if process:
        features = rights.of_process(process, features)
    try:
        return test(queries.connect(cluster), features)
    except port.KubeError as error:
        cause = error.__cause__
        return Access(cause.reason if isinstance(cause, SecretUnreadable) else diagnosis.of(error))


def test(kube: port.Cluster, features: Sequence[rights.Feature]) -> Access:
    """Asks a server for its version, the account's rights and the number of nodes, in ``SECONDS``."""
    until = time.monotonic() + SECONDS
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cluster-access")
    try:
        version = _in_time(pool.submit(kube.version), until)
        # Servers tell everybody their version, so the first review is what shows whether the credentials are valid.
        listed = _in_time(pool.submit(kube.is_allowed, LIST_NODES), until)
        if version is None or listed is None:
            return Access(reasons.of("cluster_timeout"))
        answers = _answers(pool, kube, features, until)
        nodes = _in_time(pool.submit(kube.count_nodes), until) if listed else None
    except port.KubeError as error:
        return Access(diagnosis.of(error))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return Access(None, version, nodes, tuple(_of_feature(one, answers) for one in features))


def record(name: str, access: Access, *, server: str = "", actor: str, now: datetime) -> None:
    """Writes the test to the audit log. ``server``: the address that was called; "" for a registered cluster."""
    missing = tuple(one.feature.name for one in access.features if one.state == State.MISSING)
    reached, why = access.unreachable is None, () if access.unreachable is None else (access.unreachable,)
    act = audit.ClusterAccessTested(cluster=name, server=server, reached=reached, missing=missing, because=why)
    ledger.record(name, act, actor=actor, now=now)


def _in_time(future: "Future[T]", until: float) -> T | None:
    """Returns the result, or None if there is none in time. Raises what the call raised."""
    done, _ = wait([future], timeout=max(until - time.monotonic(), 0))
    return future.result() if done else None


def _answers(
    pool: ThreadPoolExecutor, kube: port.Cluster, features: Collection[rights.Feature], until: float
) -> Mapping[port.Right, bool]:
    """Returns which rights the account has; those without an answer are left out."""
    asked = {
        right: pool.submit(kube.is_allowed, right) for right in dict.fromkeys(r for f in features for r in f.rights)
    }
    wait(asked.values(), timeout=max(until - time.monotonic(), 0))
    answered = {right: future for right, future in asked.items() if future.done() and not future.exception()}
    return {right: future.result() for right, future in answered.items()}


def _of_feature(feature: rights.Feature, answers: Mapping[port.Right, bool]) -> FeatureAccess:
    missing = tuple(right for right in feature.rights if answers.get(right) is False)
    return FeatureAccess(feature, missing, tuple(right for right in feature.rights if right not in answers))
