"""Reads the logs of pods by the Kubernetes API, each namespace in rounds of its own.

A round reads each pod of a namespace that runs or has failed, from ``lateness`` before the last round began. In a turn
the namespaces share the number of pods that are read, so that one with many pods delays no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, zip_longest
from typing import Final

from django.db import transaction

from kcover import reasons
from kcover.sources import log_lines, pod_log
from kcover.sources.observation import ObservationBatch, Rejected
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, pull_position, source_faults, source_settings
from kcover_portal.sources.services.pull_position import Clock
from kcover_portal.sources.services.pull_request import NotRead

PODS_PER_TURN: Final = 200
PODS_PER_WRITE: Final = 16  # pods whose logs are stored together
TOGETHER: Final = 8  # pods that are read at a time
MAX_CONTAINERS: Final = 16  # of a pod
BYTES: Final = 256 * 1024  # of one answer; a kubelet may send slightly less than it is asked for
CUT_FROM: Final = BYTES - 16 * 1024
PAGES_PER_LOG: Final = 4  # answers of one container in a turn
MAX_TURN: Final = timedelta(seconds=20)  # then the requests that have begun end, and no other begins
MAX_BEHIND: Final = timedelta(minutes=10)  # of a container that writes faster than it is read
# The position is stored as a whole with each write, so it must stay small: 1 MiB at most.
MAX_KNOWN: Final = 1_000  # pods of a namespace that are read from a time of their own, and as many that have ended
MAX_KNOWN_OF_SOURCE: Final = 5_000  # shared equally by the namespaces
MAX_UID: Final = 64  # characters; a cluster whose uids are longer is not a Kubernetes cluster
TESTED: Final = 20  # pods that a test reads
READ_PHASES: Final = ("Running", "Failed")


@dataclass(slots=True, kw_only=True)
class Position:
    """Up to when the logs of a namespace were read, in nanoseconds.

    ``begun``: when the present round began; 0 between rounds. ``after``: the last pod of it that was read. ``unread``:
    by uid, up to when pods were read whose logs could not be read to the end. ``ended``: the uids of failed pods whose
    logs were read to the end; they are not read again.
    """

    until: int
    begun: int = 0
    after: str = ""
    unread: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PodReading:
    """What the logs of a pod say. ``until``: up to when they were read, None if to the end. ``problem``: why not."""

    pages: list[ObservationBatch] = field(default_factory=list)
    until: int | None = None
    problem: port.KubeError | None = None


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn. ``left``: the pods of each namespace that this round has not read. ``problems``: by place."""

    source: Source
    kube: port.Cluster
    clock: Clock
    end: datetime
    positions: dict[str, Position]
    left: dict[str, list[port.Pod]] = field(default_factory=dict)
    problems: dict[str, port.KubeError] = field(default_factory=dict)
    has_read: bool = False

    @property
    def is_over(self) -> bool:
        """True if no further request may begin."""
        return self.clock() > self.end


def read(source: Source, *, clock: Clock) -> bool:
    """Reads the next pods of each namespace. Returns whether a round has more of them. Raises NotRead."""
    started = clock()
    kube, positions = _connect(source), _positions(source, now=started)
    turn = Turn(source=source, kube=kube, clock=clock, end=started + MAX_TURN, positions=positions)
    _list(turn, now=started)
    share = PODS_PER_TURN // max(1, sum(map(bool, turn.left.values())))
    chosen = list(_in_turn({name: pods[: max(1, share)] for name, pods in turn.left.items()}))
    for begin in range(0, len(chosen), PODS_PER_WRITE):
        some = chosen[begin : begin + PODS_PER_WRITE]
        _read_some(turn, [pod for pod in some if pod.namespace not in turn.problems], now=clock())
        if turn.is_over:
            break
    for name, left in turn.left.items():
        if not left:
            position = turn.positions[name]
            position.until, position.begun, position.after = position.begun, 0, ""
            turn.has_read = True
    _store(turn, ObservationBatch(), now=clock())
    _tell(turn, now=clock())
    return any(position.begun and name not in turn.problems for name, position in turn.positions.items())


def _connect(source: Source) -> port.Cluster:
    try:
        return fleet.connect(source.cluster)
    except port.KubeError as error:
        raise _not_read(error) from error


def _not_read(error: port.KubeError) -> NotRead:
    wait = error.retry_after if isinstance(error, port.Unavailable) else None
    return NotRead(kube_reasons.of(error), wait=wait or 0.0)


def _positions(source: Source, *, now: datetime) -> dict[str, Position]:
    """By namespace. What is older than a day cannot open an incident and is not read."""
    first, oldest = (log_lines.nanoseconds(now - age) for age in (_lateness(source), source_faults.MAX_AGE))
    found = {}
    for name in source.settings.get("pod_namespaces", pod_log.DEFAULT_NAMESPACES):
        position = Position(**source.cursor.get(name) or {"until": first})
        found[name] = position if position.until >= oldest else Position(until=oldest)
    return found


def _lateness(source: Source) -> timedelta:
    return timedelta(seconds=source.settings.get("lateness", pod_log.LATENESS_SECONDS))


def _list(turn: Turn, *, now: datetime) -> None:
    """Lists the pods of the namespaces, the one that was read longest ago first. Raises NotRead."""
    for name in sorted(turn.positions, key=lambda name: turn.positions[name].until):
        if turn.is_over:
            return
        position = turn.positions[name]
        position.begun = position.begun or log_lines.nanoseconds(now)
        try:
            pods = [pod for pod in turn.kube.list_pods(namespace=name) if len(pod.uid) <= MAX_UID]
        except port.Unavailable as error:  # the API server: the other namespaces would not answer either
            raise _not_read(error) from error
        except port.KubeError as error:
            turn.problems[name] = error
            continue
        readable = [pod for pod in pods if pod.phase in READ_PHASES and pod.node and pod.containers]
        uids = {pod.uid for pod in readable}
        position.unread = {uid: until for uid, until in position.unread.items() if uid in uids}
        position.ended = [uid for uid in position.ended if uid in uids]
        left = uids.difference(position.ended)
        turn.left[name] = sorted(
            (pod for pod in readable if pod.name > position.after and pod.uid in left), key=lambda pod: pod.name
        )


def _in_turn(by_namespace: Mapping[str, Sequence[port.Pod]]) -> Iterator[port.Pod]:
    """The first pod of each namespace, then the second of each, and so on."""
    return (pod for pod in chain.from_iterable(zip_longest(*by_namespace.values())) if pod is not None)


def _read_some(turn: Turn, pods: Sequence[port.Pod], *, now: datetime) -> None:
    """Reads some pods and stores what they say with the position behind them."""
    found = _ask(turn, pods, now=now)
    pages = [page for one in found for page in one.pages]
    for pod, one in zip(pods, found, strict=True):
        _move_on(turn, pod, one)
    observations = (line for page in pages for line in page.observations)
    rejected = (item for page in pages for item in page.rejected)
    _store(turn, ObservationBatch(observations=tuple(observations), rejected=tuple(rejected)), now=now)


def _ask(turn: Turn, pods: Sequence[port.Pod], *, now: datetime) -> list[PodReading]:
    known = Node.objects.filter(cluster=turn.source.cluster, in_cluster=True, ready=True)
    ready = set(known.filter(name__in={pod.node for pod in pods}).values_list("name", flat=True))
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="pod-logs") as pool:
        return list(pool.map(partial(_read_pod, turn, ready=ready, now=now), pods))


def _move_on(turn: Turn, pod: port.Pod, one: PodReading) -> None:
    """Moves the position of the pod's namespace behind the pod, unless the portal may not read logs there."""
    position = turn.positions[pod.namespace]
    if isinstance(one.problem, port.RefusedByServer):
        turn.problems[pod.namespace] = one.problem
        return
    if one.problem is not None:
        turn.problems[f"{pod.namespace}/{pod.name}"] = one.problem
    else:
        turn.has_read = True
    position.unread.pop(pod.uid, None)
    room = min(MAX_KNOWN, MAX_KNOWN_OF_SOURCE // len(turn.positions))
    if one.until is not None and len(position.unread) < room:
        position.unread[pod.uid] = one.until
    elif one.until is None and pod.terminal and len(position.ended) < room:
        position.ended.append(pod.uid)
    if pod.namespace not in turn.problems:
        position.after = pod.name
        turn.left[pod.namespace].remove(pod)


def _read_pod(turn: Turn, pod: port.Pod, *, ready: set[str], now: datetime) -> PodReading:
    """What the pod's logs say since they were read. Runs in a thread, without the database."""
    position, found = turn.positions[pod.namespace], PodReading()
    overlapping = log_lines.nanoseconds(log_lines.moment(position.until) - _lateness(turn.source))
    oldest = log_lines.nanoseconds(now - source_faults.MAX_AGE)
    since = max(position.unread.get(pod.uid, overlapping), oldest)
    if pod.node not in ready:  # its kubelet would keep the request waiting
        return PodReading(until=since)
    try:
        for name in pod.containers[:MAX_CONTAINERS]:
            runs_before = [end for end in pod.past_failures if end.name == name]
            for previous in (True, False) if _ended_since(runs_before, since) else (False,):
                reached = _read_log(turn, pod, name, since, found.pages, previous=previous, now=now)
                if reached is not None:
                    found.until = min(reached, found.until or reached)
    except port.NotFound:  # the pod has gone, and its logs with it
        found.until = None
    except port.KubeError as error:
        found.until, found.problem = since, error
    return found


def _ended_since(runs: Sequence[port.ContainerFailure], since: int) -> bool:
    return any(end.finished_at is None or log_lines.nanoseconds(end.finished_at) >= since for end in runs)


def _read_log(
    turn: Turn, pod: port.Pod, name: str, since: int, pages: list[ObservationBatch], *, previous: bool, now: datetime
) -> int | None:
    """Reads one log page by page. Returns up to when it was read if it goes on. Raises port.KubeError."""
    container = pod_log.Container(namespace=pod.namespace, pod=pod.name, uid=pod.uid, name=name, node=pod.node)
    texts = tuple(turn.source.settings.get("pod_patterns", pod_log.PATTERNS))
    position = turn.positions[pod.namespace]
    counted_until = position.unread.get(pod.uid, position.until)
    begin, present = since, log_lines.nanoseconds(now)
    ask = partial(turn.kube.pod_log, pod.namespace, pod.name, container=name, most=BYTES, previous=previous)
    for _ in range(PAGES_PER_LOG):
        if turn.is_over:
            return since
        log = ask(since=log_lines.moment(since))
        is_cut = len(log) > CUT_FROM
        page = pod_log.read(log, container, texts=texts, is_cut=is_cut, counted_until=counted_until, now=now)
        pages.append(page.batch)
        if page.is_whole:
            return None
        second = (since // log_lines.SECOND + 1) * log_lines.SECOND
        if page.last < second and second > counted_until:  # more lines than an answer holds
            pages.append(_left_out(container, since, second))
        since = max(min(page.last, present), second)
    falls_behind = pod.uid in position.unread and since - begin < position.begun - position.until
    if falls_behind and since < log_lines.nanoseconds(now - MAX_BEHIND):
        pages.append(_left_out(container, since, present))
        return None
    return since


def _left_out(container: pod_log.Container, start: int, end: int) -> ObservationBatch:
    span = {"start": reasons.moment(log_lines.moment(start)), "end": reasons.moment(log_lines.moment(end))}
    reason = reasons.of("pod_log_left_out", container=container.path, **span)
    return ObservationBatch(rejected=(Rejected(container.path, reason),))


def _store(turn: Turn, batch: ObservationBatch, *, now: datetime) -> None:
    with transaction.atomic():
        if batch.observations or batch.rejected:
            intake.take(turn.source, batch, now=now)
        pull_position.store(turn.source, {name: asdict(position) for name, position in turn.positions.items()})


def _tell(turn: Turn, *, now: datetime) -> None:
    """Tells what could not be read. Raises NotRead if nothing could be read."""
    source = turn.source
    if not turn.problems:
        if reasons.stored_saying(source.error, "source_logs_unread"):
            source_settings.note_error(source, None, now=now)
        return
    first, error = next(iter(sorted(turn.problems.items())))
    reason = reasons.of("source_logs_unread", count=len(turn.problems), first=first, why=kube_reasons.of(error))
    if not turn.has_read:
        raise NotRead(reason)
    source_settings.note_error(source, reason, now=now)


def seen(source: Source, *, since: timedelta, now: datetime) -> int:
    """The number of faults in the logs of some pods since then. Raises NotRead."""
    positions = {name: Position(until=log_lines.nanoseconds(now - since)) for name in _positions(source, now=now)}
    turn = Turn(source=source, kube=_connect(source), clock=lambda: now, end=now, positions=positions)
    _list(turn, now=now)
    found = _ask(turn, list(_in_turn(turn.left))[:TESTED], now=now)
    problems = [*turn.problems.values(), *(one.problem for one in found if one.problem is not None)]
    if problems and len(problems) == len(found) + len(turn.problems):
        raise _not_read(problems[0])
    shown = (line for one in found for page in one.pages for line in page.observations)
    return sum(1 for line in shown if line.seen_at is None or line.seen_at >= now - since)
