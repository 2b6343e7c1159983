"""Kubernetes Events."""

from datetime import datetime

from kcover.values import moments
from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class ObjectReference(base.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class EventSource(base.Struct, frozen=True):
    component: str = ""


class EventSeries(base.Struct, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class EventObject(base.AnyObject, frozen=True):
    """A core/v1 Event. Clients of events.k8s.io set ``eventTime`` and ``series`` and leave the timestamps null."""

    reason: str = ""
    type: str = ""
    message: str = ""
    count: int | None = None
    involved_object: ObjectReference = ObjectReference()
    source: EventSource | None = None
    reporting_component: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None

    def value(self) -> values.SeenEvent:
        meta, series = self.metadata, self.series or EventSeries()
        last_at = series.last_observed_time or self.last_timestamp or self.event_time or meta.creation_timestamp
        return values.SeenEvent(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            reason=self.reason,
            type=self.type,
            message=self.message,
            count=series.count or self.count or 1,
            involved_kind=self.involved_object.kind,
            involved_name=self.involved_object.name,
            involved_namespace=self.involved_object.namespace,
            annotations=meta.annotations or {},
            component=self.reporting_component or (self.source.component if self.source else ""),
            last_at=moments.bounded_or_none(last_at),
            resource_version=meta.resource_version,
        )
