"""Kubernetes Events of one cluster, as its watch shows them."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from kcover import reasons
from kcover.sources import kube_events, settings
from kcover.sources.observation import Observation, ObservationBatch, Rejected, Unreadable
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_selection, storable_values
from kcover_portal.jobs import services as jobs
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.sources import queries
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, source_settings

log = logging.getLogger(__name__)

SETTINGS_READ_EVERY = timedelta(seconds=5)
CONTACT_NOTED_EVERY = timedelta(seconds=30)
FIRST_LOOK_BACK = timedelta(minutes=10)  # a cluster keeps Events for an hour, and its first ones may be long over
MAX_ORDERS = 1_000  # that wait for the API server
MAX_ORDERS_OF_NAMESPACE = 100
MAX_REPORTS = 10_000  # of preflight that wait for the API server: those of one large job
REPORTS_PER_TURN = 500  # each asks the API server: a flood of them must not keep faults waiting

TakePreflight = Callable[[Cluster, kube_events.PreflightEvent, datetime], None]


class EventFeed:
    """Takes the Events of one cluster that mean something. All others cost a comparison.

    ``take_preflight`` stores a preflight report, whose time is the earliest one. It raises an ExplainedError for one
    that is not counted, and node_selection.Unanswered if the cluster does not answer.
    """

    def __init__(self, cluster: Cluster, take_preflight: TakePreflight) -> None:
        self._cluster, self._take_preflight = cluster, take_preflight
        self._source: Source | None = None
        self._read_at: datetime | None = None
        self._noted_at: datetime | None = None
        self._since: datetime | None = None
        self._is_broken = False
        self._orders: dict[tuple[str, str], kube_events.RecoveryOrder] = {}
        self._reports: dict[str, kube_events.PreflightEvent] = {}  # by key, the oldest first

    def is_on(self, *, now: datetime) -> bool:
        """Returns whether the source is switched on; its row is read every SETTINGS_READ_EVERY."""
        if self._read_at is None or now - self._read_at >= SETTINGS_READ_EVERY:
            self._source, self._read_at = queries.watched(self._cluster, Source.Kind.EVENTS), now
            if self._source is None:
                self._since = None
            elif self._since is None:
                self._since = (self._source.last_contact_at or now) - FIRST_LOOK_BACK
        return self._source is not None

    def is_of_consequence(self, event: port.SeenEvent) -> bool:
        """Returns whether the Event may mean something."""
        wanted = self._source.settings.get("reasons", ()) if self._source is not None else ()
        return kube_events.is_of_consequence(event, wanted)

    def feed(self, events: Sequence[port.SeenEvent], *, now: datetime) -> None:
        """Takes Events. A failure is stored on the source and never stops the watch."""
        if not self.is_on(now=now) or self._source is None:
            return
        try:
            self._feed(self._source, events, now=now)
        except port.KubeError as error:
            self.note(kube_reasons.of(error), now=now)
        except Exception as error:
            log.exception("cluster %s: Events could not be taken", self._cluster.name)
            self.note(reasons.of("source_broken", problem=storable_values.error_text(error)), now=now)

    def note(self, problem: reasons.Reason | None, *, now: datetime) -> None:
        """Stores why Events cannot be watched or taken; None once they can, with the time."""
        if self._source is None:
            return
        if problem is not None or self._is_broken:
            self._is_broken = problem is not None
            source_settings.note_error(self._source, problem, now=now)
        elif self._noted_at is None or now - self._noted_at >= CONTACT_NOTED_EVERY:
            self._noted_at = now
            Source.objects.filter(pk=self._source.pk).update(last_contact_at=now)

    def _feed(self, source: Source, events: Sequence[port.SeenEvent], *, now: datetime) -> None:
        found: list[Observation] = []
        rejected: list[Rejected] = []
        for event in filter(self.is_of_consequence, events):
            if event.last_at is not None and self._since is not None and event.last_at < self._since:
                continue
            try:
                self._understand(source, event, found, now=now)
            except reasons.ExplainedError as error:
                path = getattr(error, "path", "")
                rejected.append(Rejected(f"{event.namespace}/{event.name}/{path}".rstrip("/"), error.reason))
        if found or rejected:
            intake.take(source, ObservationBatch(observations=tuple(found), rejected=tuple(rejected)), now=now)
        self._carry_out(source, now=now)
        self._take_reports(source, now=now)

    def _understand(self, source: Source, event: port.SeenEvent, found: list[Observation], *, now: datetime) -> None:
        """Raises Unreadable."""
        namespaces = source.settings.get("namespaces", kube_events.trusted(self._cluster.event_namespace))
        wanted = source.settings.get("reasons", ())
        match kube_events.read(event, namespaces=namespaces, wanted=wanted, now=now):
            case Observation() as seen:
                found.append(seen)
            case kube_events.PreflightEvent() as report:
                if len(self._reports) >= MAX_REPORTS:
                    raise Unreadable("", reasons.of("event_reports_many", most=MAX_REPORTS))
                doubt = settings.doubt(source.kind, source.settings)
                at = report.at - doubt if report.at is not None else None
                self._reports[report.key] = replace(report, at=at)
            case kube_events.RecoveryOrder() as order:
                self._check_room(order.namespace)
                self._orders[order.namespace, order.pod] = order

    def _check_room(self, namespace: str) -> None:
        """Raises Unreadable if too many orders wait, of all or of this namespace."""
        mine = sum(1 for other, _ in self._orders if other == namespace)
        for count, most in ((mine, MAX_ORDERS_OF_NAMESPACE), (len(self._orders), MAX_ORDERS)):
            if count >= most:
                raise Unreadable("", reasons.of("event_orders_many", most=most))

    def _carry_out(self, source: Source, *, now: datetime) -> None:
        """Orders the restart of the jobs of pods, once. Raises port.Unavailable, and then it is tried again."""
        kube = fleet.connect(self._cluster)
        pods_of = functools.cache(lambda namespace: {pod.name: pod for pod in kube.list_pods(namespace=namespace)})
        for place, order in list(self._orders.items()):
            if now - order.at <= kube_events.ORDER_VALID_FOR and not intake.is_taken(source, order.key):
                rejected: tuple[Rejected, ...] = ()
                because = reasons.of("job_event_asks", pod=order.pod, message=order.message[:300])
                try:
                    pod = pods_of(order.namespace).get(order.pod)
                    if pod is not None:
                        jobs.recover_pod(self._cluster, pod, cause=JobOrder.Cause.EVENT, because=because, now=now)
                except port.Unavailable:
                    raise
                except port.KubeError as error:  # about this namespace or job only
                    rejected = (Rejected(f"{order.namespace}/{order.pod}", kube_reasons.of(error)),)
                intake.take(source, ObservationBatch(ignored=(order.key,), rejected=rejected), now=now)
            del self._orders[place]

    def _take_reports(self, source: Source, *, now: datetime) -> None:
        """Stores preflight reports, each once. One that the cluster cannot confirm now waits for the next turn."""
        for key, report in list(self._reports.items())[:REPORTS_PER_TURN]:
            if not intake.is_taken(source, key):
                rejected: tuple[Rejected, ...] = ()
                try:
                    self._take_preflight(self._cluster, report, now)
                except node_selection.Unanswered:
                    return
                except reasons.ExplainedError as error:
                    path = f"{report.namespace}/{report.node}/{getattr(error, 'path', '')}".rstrip("/")
                    rejected = (Rejected(path, error.reason),)
                intake.take(source, ObservationBatch(ignored=(key,), rejected=rejected), now=now)
            del self._reports[key]
