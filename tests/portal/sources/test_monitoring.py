"""The real Prometheus and the real Alertmanager with an exporter of one GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from kcover import reasons
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure
from kcover_portal.notify import queries as notify_queries, services as notify
from kcover_portal.notify.models import Channel, Delivery
from tests import waiting
from tests.contract import scripted
from tests.portal.sources import monitoring
from tests.portal.sources.conftest import Sender, add, pull
from tests.portal.sources.stand_ins import UUID

pytestmark = [
    monitoring.needs(monitoring.PROMETHEUS, monitoring.ALERTMANAGER),
    pytest.mark.real_clock("Prometheus and Alertmanager say when something was"),
]
METRIC = "DCGM_FI_DEV_XID_ERRORS"
SLOW_SECONDS = 120.0  # two servers that scrape, evaluate and group, the first time 5 s after their start
LABELS = f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:4E:00.0",Hostname="gpu-1"'
RULE = {
    "alert": "GpuXid",
    "expr": f"{METRIC} == 62",  # no other test shows it
    "labels": {"severity": "critical", "xid": "{{ $value }}"},
    "annotations": {"summary": "Xid {{ $value }} on {{ $labels.Hostname }}"},
}


@dataclass(slots=True, kw_only=True)
class Monitored:
    """Both servers. ``xid``: the last of the GPU. ``hook``: the exporter, and what Alertmanager has posted."""

    xid: int = 0
    hook: scripted.Scripted | None = None
    prometheus: monitoring.Prometheus | None = None
    alertmanager: monitoring.Alertmanager | None = None

    def answer(self, request: scripted.Handler) -> None:
        text = f"# TYPE {METRIC} gauge\n{METRIC}{{{LABELS}}} {self.xid}\n" if request.path == "/metrics" else ""
        request.reply(200, text.encode(), Content_Type="text/plain; version=0.0.4")

    def show(self, xid: int) -> None:
        """The exporter shows a value, and Prometheus has scraped it."""
        self.xid = xid
        waiting.until(lambda: self.prometheus.value(METRIC) == str(xid), "a scrape", seconds=SLOW_SECONDS)

    def posted(self, status: str, name: str = RULE["alert"]) -> tuple[dict[str, str], dict[str, Any]]:
        """The headers and the body of the first notification about alerts of this name with this status."""

        def fits(body: dict[str, Any]) -> bool:
            return body["status"] == status and body["groupLabels"]["alertname"] == name

        def look() -> list[Any]:
            return [one for one in self.hook.requests if one[0] == "POST" and fits(one[3])]

        return waiting.until(look, "a notification", seconds=SLOW_SECONDS)[0][2:]


@pytest.fixture(scope="module")
def monitored() -> Iterator[Monitored]:
    """Prometheus begins to scrape after 5 s, so that the tests share it."""
    made = Monitored()
    with (
        scripted.serve(made.answer) as made.hook,
        monitoring.Alertmanager(webhook=f"{made.hook.url}/events") as made.alertmanager,
        monitoring.Prometheus(
            exporter=made.hook.address, alertmanager=made.alertmanager.address, rule=RULE
        ) as made.prometheus,
    ):
        yield made


def test_prometheus_is_read(east: Cluster, monitored: Monitored, now: datetime, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    url = monitored.prometheus.url
    source = add(east, "prometheus", now=now, url=url)
    monitored.show(0)
    source = pull(source, at=timezone.now())
    assert (source.error, Incident.objects.count()) == ({}, 0)
    monitored.show(79)
    source = pull(source, at=timezone.now())
    incident = Incident.objects.get()
    assert (source.error, incident.kind, incident.code) == ({}, "xid", "79")
    assert (incident.node.name, incident.device, incident.gpu_uuid) == ("gpu-1", "0000:4e:00", UUID)
    refused = pull(add(east, "prometheus", now=now, name="wrong", url=url, query="up =="), at=now)
    assert refused.error["params"]["status"] == "400"


def test_an_alert_of_a_rule_opens_an_incident_and_resolves_it(alertmanager: Sender, monitored: Monitored) -> None:
    monitored.alertmanager.token.write_text(alertmanager.headers["Authorization"].removeprefix("Bearer "))

    def forward(status: str) -> dict[str, Any]:
        """Sends what Alertmanager posted to the portal, with Alertmanager's own token."""
        headers, body = monitored.posted(status)
        alertmanager.headers = {"Authorization": headers["Authorization"]}
        answer = alertmanager.post(body, content_type=headers["Content-Type"])
        assert answer.status_code == 202, answer.content
        return answer.json()

    monitored.show(62)
    assert forward("firing") == {"accepted": 1, "duplicates": 0, "rejected": []}
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.state) == ("alert", "GpuXid", "open")
    assert (incident.node.name, incident.device, incident.severity) == ("gpu-1", "0000:4e:00", "fatal")
    monitored.show(0)
    assert forward("resolved") == {"accepted": 1, "duplicates": 0, "rejected": []}
    incident.refresh_from_db()
    assert incident.state == "closed"


def test_an_alert_of_the_portal_reaches_alertmanager_and_is_no_fault_when_it_comes_back(
    alertmanager: Sender, monitored: Monitored, settings: Any
) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    cluster, now, by = alertmanager.source.cluster, timezone.now(), {"actor": "test"}
    notify.sweep(now=now)
    given = {"url": monitored.alertmanager.url, "batching": 0, "min_interval": 0}
    channel = notify.CHANNELS.make(Channel(name="am", kind="alertmanager"), given, now=now, **by)
    notify.make_route(channel, kinds=["incident.opened"], now=now, **by)

    def deliver() -> None:
        notify.sweep(now=timezone.now())
        (due,) = notify_queries.due(now=timezone.now())
        notify.send(due, clock=timezone.now)
        assert Delivery.objects.get(pk=due).state == "sent"

    def comes_back(status: str) -> dict[str, Any]:
        headers, body = monitored.posted(status, "KcoverIncidentOpened")
        answer = alertmanager.post(body, content_type=headers["Content-Type"])
        assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (202, 1, [])
        return body["alerts"][0]

    about = {"cluster": cluster, "node": Node.objects.get(name="gpu-1"), "kind": "xid", "code": "48"}
    incident = Incident.objects.create(**about, severity="degraded", opened_at=now, last_at=now)
    deliver()
    alert = comes_back("firing")
    assert (alert["labels"]["node"], alert["labels"]["severity"]) == ("gpu-1", "error")
    assert alert["generatorURL"] == f"https://portal.example/incidents/{incident.pk}/"
    assert notify.repeat(now=timezone.now()) == 1
    why = reasons.of("closed_by_because", by="test", why="proved")
    closure.close([incident.pk], because=why, actor="test", now=timezone.now())
    deliver()
    assert comes_back("resolved")["fingerprint"] == alert["fingerprint"]
    assert Incident.objects.count() == 1
