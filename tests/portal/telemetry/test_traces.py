"""Traces over OTLP: one goes from the report to the calls and the message, whoever does the work."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover.faults.fault import Fault
from kcover_portal import tracing
from kcover_portal.config import env, telemetry_settings
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.notify import services as notify
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue
from tests.contract import over_http
from tests.portal.jobs.sim_world import Simulated, SimWorld
from tests.portal.notify.conftest import make_channel, tell
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import CORDON, World
from tests.portal.telemetry.collector import Collector, attributes
from tests.portal.test_settings import run

pytestmark = pytest.mark.django_db
KEY = "a key that signs nothing else than these ids"


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    made = Collector()
    settings.SECRET_KEY = KEY
    settings.KCOVER_TRACES = telemetry_settings.Traces(
        url=f"http://{made.address}/v1/traces", headers={"authorization": "Bearer hush"}
    )
    yield made
    tracing.stop()
    made.stop()


@pytest.fixture
def sim() -> Iterator[SimWorld]:
    simulated = Simulated(nodes=1)
    with over_http.simulator(simulated.objects) as rig:
        made = SimWorld(simulated, rig)
        yield made
        made.uninstall()


def heal(sim: SimWorld, commits: Any) -> Node:
    """A fault, its decision, the cordon and a message about it, each by a process of its own."""
    policies.apply(CORDON, author="test", reason="", now=sim.now)
    node = Node.objects.get(cluster=sim.cluster, labels__has_key="nvidia.com/gpu.count")
    receiver = Receiver("a secret of some length")
    notify.make_route(make_channel(receiver, now=sim.now), kinds=("rescue.opened",), actor="test", now=sim.now)
    notify.sweep(now=sim.now)
    for work in (
        lambda: sim.report(Fault(kind="xid", code=62, source="kmsg"), node=node.name, boot_id=node.boot_id),
        lambda: World.work(sim),
        lambda: tell(sim),
        lambda: tell(sim),
    ):
        with commits(execute=True):
            work()
        tracing.stop()
        sim.now += timedelta(seconds=61)
    receiver.stop()
    return node


def test_one_trace_goes_from_the_report_to_the_cordon_and_its_message(
    sim: SimWorld, collector: Collector, django_capture_on_commit_callbacks: Any
) -> None:
    node = heal(sim, django_capture_on_commit_callbacks)
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"report", "decide", "step cordon", "GET nodes/{name}", "PATCH nodes/{name}", "notify"}
    assert len({span.trace_id for span in spans.values()}) == 1
    report, step = spans["report"].span_id, spans["step cordon"].span_id
    assert {name: span.parent_span_id for name, span in spans.items()} == {
        "report": b"",
        **dict.fromkeys(("decide", "step cordon", "notify"), report),
        **dict.fromkeys(("GET nodes/{name}", "PATCH nodes/{name}"), step),
    }
    rescue = Rescue.objects.get()
    assert attributes(spans["step cordon"]) == {
        "kcover.incident": Incident.objects.get().pk,
        "kcover.rescue": rescue.pk,
        "kcover.step": 0,
        "kcover.attempt": 1,
        "kcover.outcome": "Done",
        "k8s.cluster.name": "c1",
        "k8s.node.name": node.name,
    }
    assert attributes(spans["report"])["kcover.fault"] == "xid 62"
    assert (set(collector.paths), collector.headers[0]["authorization"]) == ({"/v1/traces"}, "Bearer hush")
    assert not any(secret in b"".join(collector.bodies) for secret in (KEY.encode(), over_http.PORTAL.encode()))


def test_a_persons_request_is_a_trace_of_its_own(
    sim: SimWorld, collector: Collector, django_capture_on_commit_callbacks: Any
) -> None:
    node = Node.objects.get(cluster=sim.cluster, labels__has_key="nvidia.com/gpu.count")
    with django_capture_on_commit_callbacks(execute=True):
        rescues.request(node, "cordon", actor="user:anna", reason="her own words", now=sim.now)
        World.work(sim)
    tracing.stop()
    request, step, *calls = collector.spans()
    assert (request.name, step.name) == ("request", "step cordon")
    assert {span.trace_id for span in (step, *calls)} == {request.trace_id}
    assert attributes(request)["kcover.rescue"] == Rescue.objects.get().pk
    assert not any(text in b"".join(collector.bodies) for text in (b"anna", b"words"))


def test_an_error_is_shown_by_its_type_alone(collector: Collector) -> None:
    with pytest.raises(ValueError, match="hush"), tracing.span(tracing.incident(1), "step reboot"):
        raise ValueError("hush")
    with tracing.call("GET", "/api/v1/nodes"):  # what no step asks for is in no trace
        pass
    tracing.stop()
    (span,) = collector.spans()
    assert (attributes(span)["error.type"], span.status.code, span.status.message) == ("ValueError", 2, "")
    assert not span.events


def test_a_share_of_the_incidents_is_traced_each_as_a_whole(collector: Collector, settings: Any) -> None:
    settings.KCOVER_TRACES = telemetry_settings.Traces(url=settings.KCOVER_TRACES.url, percent=50)
    now = timezone.now()
    for pk in range(40):
        tracing.record(tracing.incident(pk), "report", began=now, first=True)
        with tracing.span(tracing.incident(pk), "step cordon"):
            pass
    tracing.stop()
    seen = Counter(span.trace_id for span in collector.spans())
    assert set(seen.values()) == {2}
    assert 5 < len(seen) < 35  # by this key always the same


def test_a_collector_that_refuses_costs_one_log_line(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 400
    for _ in range(3):
        with tracing.span(tracing.incident(1), "step cordon"):
            pass
        tracing.stop()
    assert len(collector.bodies) == 3
    assert len([line for line in caplog.records if line.name.startswith("opentelemetry")]) == 1


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/api/v1/nodes", "/nodes"),
        ("/api/v1/nodes/gpu-1", "/nodes/{name}"),
        ("/api/v1/namespaces/anna", "/namespaces/{name}"),
        ("/api/v1/namespaces/anna/pods", "/pods"),
        ("/api/v1/namespaces/anna/pods/her-job-0/eviction", "/pods/{name}/eviction"),
        ("/apis/kubeflow.org/v1/namespaces/anna/pytorchjobs/her-job", "/pytorchjobs/{name}"),
        ("/apis/coordination.k8s.io/v1/namespaces/kcover-system/leases/kcover", "/leases/{name}"),
        ("/version", "/other"),
    ],
)
def test_no_name_of_an_object_is_in_a_span(path: str, template: str) -> None:
    assert tracing.template_of(path) == template


def test_without_the_settings_nothing_is_imported() -> None:
    look = """
import sys, django
django.setup()
from kcover_portal import asgi, celery
from kcover_portal.asgi import web
celery.app.loader.import_default_modules()
print([name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "sentry_sdk", "google")])
"""
    ended = run("-c", look)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_setting_whose_packages_are_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    values = env.read({"KCOVER_TRACES": "http://otel:4318", "KCOVER_SENTRY_DSN": "https://key@sentry.example.com/1"})
    found = telemetry_settings.traces(values)
    assert found is not None
    assert found.url == "http://otel:4318/v1/traces"
    for package, read, extra in (
        ("opentelemetry", telemetry_settings.traces, "kcover-portal[otel]"),
        ("sentry_sdk", telemetry_settings.sentry, "kcover-portal[sentry]"),
    ):
        for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(telemetry_settings.TelemetryUnavailable, match=re.escape(extra)):
            read(values)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KCOVER_TRACES", "otel:4318"),
        ("KCOVER_TRACES_HEADERS", "authorization"),
        ("KCOVER_TRACES_HEADERS", "a b=c"),
        ("KCOVER_TRACES_PERCENT", "0"),
        ("KCOVER_SENTRY_DSN", "https://sentry.example.com/1"),
        ("KCOVER_SENTRY_DSN", "https://key@sentry.example.com/"),
        ("KCOVER_SENTRY_ENVIRONMENT", "a b"),
    ],
)
def test_a_wrong_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(env.SettingsInvalid, match=f"^{name} is invalid"):
        env.read({name: text})


def test_headers_are_read_as_pairs() -> None:
    values = env.read({"KCOVER_TRACES_HEADERS": "authorization=Basic a2V5=, x-scope=team 1"})
    assert values["KCOVER_TRACES_HEADERS"] == {"authorization": "Basic a2V5=", "x-scope": "team 1"}
