"""A cluster with two nodes, and systems that send events to its sources."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.api.v1.sources import sources
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests.portal.sources.stand_ins import StandIns


@pytest.fixture
def now() -> datetime:
    """The endpoints judge the age of events by the real clock."""
    return timezone.now()


@pytest.fixture(autouse=True)
def _no_requests_counted() -> None:
    """Tests share this process, and their sources have the same keys."""
    sources.request_rates.forget()


@pytest.fixture
def east(db: None, now: datetime) -> Cluster:
    row = Cluster.objects.create(name="east", created_at=now)
    for name in ("gpu-1", "gpu-2"):
        Node.objects.create(cluster=row, name=name, in_cluster=True, ready=True, boot_id="boot-1", created_at=now)
    return row


def add(
    cluster: Cluster, kind: str, *, now: datetime, name: str = "", url: str = "", token: str = "", **given: Any
) -> Source:
    return services.SOURCES.make(
        Source(name=name or kind, kind=kind, cluster=cluster),
        {"url": url, "token": token, "settings": given},
        actor="test",
        now=now,
    )


@pytest.fixture
def stand_ins(settings) -> Iterator[StandIns]:
    """Other systems, which the portal reads over HTTP."""
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    with StandIns() as running:
        yield running


def pull(source: Source, *, at: datetime) -> Source:
    """Reads a source, whether it is due or not, and returns its row."""
    Source.objects.filter(pk=source.pk).update(due_at=None)
    services.pull(source.pk, clock=lambda: at)
    source.refresh_from_db()
    return source


class Sender:
    """A system with a token for one source."""

    def __init__(self, source: Source, *, now: datetime) -> None:
        self.source = source
        _, secret = accounts.make_token(
            "source", cluster=source.cluster, source=source.name, created_by="test", now=now - timedelta(seconds=1)
        )
        self.headers = {"Authorization": f"Bearer {secret}"}

    def post(self, body: Any, *, to: str = "", content_type: str = "application/json", **headers: str) -> Any:
        path = to or f"/api/v1/sources/{self.source.name}/events"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body)
        return Client().post(path, data=data, content_type=content_type, headers={**self.headers, **named})


@pytest.fixture
def alertmanager(east: Cluster, now: datetime) -> Sender:
    return Sender(add(east, "alertmanager", now=now), now=now)


@pytest.fixture
def sentinel(east: Cluster, now: datetime) -> Sender:
    return Sender(add(east, "cloudevents", now=now, name="nvsentinel"), now=now)


def stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


@pytest.fixture
def alert(now: datetime) -> Callable[..., dict[str, Any]]:
    def make(
        name: str = "GpuEccErrors", *, status: str = "firing", node: str = "gpu-1", **labels: str
    ) -> dict[str, Any]:
        return {
            "status": status,
            "labels": {"alertname": name, "node": node, "severity": "critical", **labels},
            "annotations": {"summary": f"{name} on {node}"},
            "startsAt": stamp(now - timedelta(minutes=1)),
            "endsAt": stamp(now) if status == "resolved" else "0001-01-01T00:00:00Z",
            "fingerprint": f"{name}-{node}-{sorted(labels.items())}",
        }

    return make


def notification(*alerts: dict[str, Any]) -> dict[str, Any]:
    return {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "kcover", "alerts": list(alerts)}


@pytest.fixture
def health(now: datetime) -> Callable[..., dict[str, Any]]:
    def make(event: str = "1", *, at: datetime = now, **fields: Any) -> dict[str, Any]:
        given = {
            "agent": "syslog-health-monitor",
            "componentClass": "GPU",
            "checkName": "SysLogsXIDError",
            "isFatal": True,
            "isHealthy": False,
            "message": "GPU has fallen off the bus",
            "recommendedAction": 24,
            "errorCode": ["79"],
            "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:4e:00.0"}],
            "generatedTimestamp": stamp(at),
            "nodeName": "gpu-1",
        }
        return {
            "specversion": "1.0",
            "type": "com.nvidia.nvsentinel.health.v1",
            "source": "nvsentinel://east/healthevents",
            "id": event,
            "time": stamp(at),
            "data": {"metadata": {"cluster": "east"}, "healthEvent": {**given, **fields}},
        }

    return make
