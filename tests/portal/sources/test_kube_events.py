"""Kubernetes Events, from the watch to incidents, preflight runs and orders about jobs."""

import itertools
import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port
from kcover_portal.operate import kube_event_watch
from kcover_portal.preflight.models import PreflightRun
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests.portal.jobs.job_world import JobWorld
from tests.portal.preflight.test_runs import raw
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db

CHINESE = "当前实例发生GPU Xid错误,pci:0000:03:00,xid:62,日志: Channel 00000001"
ENGLISH = "GPU Xid error, pci:0000:03:00, xid:62, log: Channel 00000001"
ORDER = {"kcover.io/need-recovery": "true"}


class Events:
    """A cluster whose watch of Events is followed by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kube_event_watch, "STREAM_SECONDS", 0)
        self.world = JobWorld(policy="", nodes=4, fake=WithOperators)
        for name in ("team-a", "monitoring", "kce-rescue-system"):
            self.world.kube.add_namespace(name)
        services.make_watched_sources(self.world.now)
        self._names = (f"event-{number}" for number in itertools.count())
        self.again()

    def again(self) -> None:
        """The process starts again, and knows nothing."""
        clock, stop = self.world.clock, threading.Event()
        self._watch, self._version = kube_event_watch.KubeEventWatch(self.world.cluster, clock=clock, stop=stop), ""

    def add(
        self,
        reason: str = "XidError",
        message: str = ENGLISH,
        *,
        kind: str = "Node",
        node: str = "gpu-1",
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
        at: datetime | None = None,
        component: str = "monitor",
        count: int = 1,
    ) -> str:
        """Writes an Event, and returns its name."""
        name = next(self._names)
        stamp = (at or self.world.now).isoformat().replace("+00:00", "Z")
        self.world.kube.create(
            {
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
                "involvedObject": {"kind": kind, "name": node, "namespace": namespace},
                "reason": reason,
                "message": message,
                "type": "Warning",
                "count": count,
                "lastTimestamp": stamp,
                "source": {"component": component},
            }
        )
        return name

    def look(self) -> Source:
        """Follows the Events once."""
        self._version = self._watch.stream(self._version or self._watch.list())
        return Source.objects.get(kind="events")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    made = Events(monkeypatch)
    yield made
    made.world.uninstall()


def seen() -> list[tuple[str, str, str, int]]:
    return [(row.kind, row.code, row.device, row.count) for row in Incident.objects.order_by("pk")]


@pytest.mark.parametrize("message", [CHINESE, ENGLISH, "GPU Xid error, pci:0000:03:00, xid:62"])
def test_an_xid_error_in_both_languages(events: Events, message: str) -> None:
    events.add(message=message)
    row = events.look()
    assert (row.error, seen()) == ({}, [("xid", "62", "0000:03:00", 1)])


def test_a_cause_and_a_severity_in_the_log_are_understood(events: Events) -> None:
    events.add(message="x,pci:0000:03:00,xid:45,log: Ch 00000010, caused by previous Xid 149")
    unit = "RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000 0x00000000)"
    events.add(message=f"x,pci:0000:03:00,xid:145,log: {unit}")
    events.look()
    assert {row.code: (row.is_user_fault, row.cause) for row in Incident.objects.all()} == {
        "45": (True, 149),
        "145": (True, None),
    }


def test_a_repetition_counts_and_a_second_read_does_not(events: Events) -> None:
    name = events.add()
    events.look()
    events.again()
    events.look()
    assert seen()[0][3] == 1
    events.world.kube.objects.merge("Event", "default", name, {"count": 2})
    events.look()
    assert seen()[0][3] == 2


def test_a_repetition_that_a_client_of_the_new_api_counts(events: Events) -> None:
    """It counts in ``series``, and its other times stay as they were."""
    began, later = (
        (events.world.now - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z") for seconds in (60, 1)
    )
    name = events.add()
    new = {"eventTime": began, "lastTimestamp": None, "count": None}
    events.world.kube.objects.merge("Event", "default", name, new)
    events.look()
    series = {"count": 2, "lastObservedTime": later}
    events.world.kube.objects.merge("Event", "default", name, {"series": series})
    events.look()
    assert seen()[0][3] == 2
    assert Incident.objects.get().last_at > datetime.fromisoformat(began)


UUID = "GPU-5a5f3f6e-1c1e-4f0e-9c1f-0123456789ab"


@pytest.mark.parametrize(
    ("message", "code", "unit"),
    [
        ("Caught XID error, XID=79", "79", ""),
        (f"Caught XID error, XID=48, GPU UUID={UUID}, Device ID=nvidia0", "48", UUID),
        (f"(combined from similar events): Caught XID error, XID=62, GPU UUID={UUID}", "62", UUID),
    ],
)
def test_an_xid_that_gkes_device_plugin_caught(events: Events, message: str, code: str, unit: str) -> None:
    events.add("XIDError", message, component="nvidia-gpu-device-plugin")
    events.add("XIDError", message, namespace="team-a", node="gpu-2")  # anybody may have written it
    row = events.look()
    assert [(kind, told, count) for kind, told, _, count in seen()] == [("xid", code, 1)]
    assert Incident.objects.get().gpu_uuid == unit
    assert (row.rejected, row.error["code"]) == (1, "event_namespace")


def test_a_gke_reason_with_another_text_is_no_xid(events: Events) -> None:
    events.add("XIDError", "Node condition XIDError is now: True")
    events.add("XIDError", "Node condition XIDError is now: True", namespace="team-a")
    events.add("XIDError", "Caught XID error, XID=99999999999", node="gpu-2")
    events.add("XIDError", "Caught XID error, XID=9999999999", node="gpu-2")
    row = events.look()
    assert (seen(), row.rejected, row.error["code"]) == ([], 1, "event_xid")


def test_a_reason_that_the_settings_name_stays_an_event(events: Events) -> None:
    source = Source.objects.get(kind="events")
    services.SOURCES.change(source, {"settings": {"reasons": "XIDError"}}, actor="t", reason="", now=events.world.now)
    events.add("XIDError", "Caught XID error, XID=79")
    events.look()
    assert seen() == [("event", "XIDError", "", 1)]


def test_the_same_event_of_two_monitors_counts_once(events: Events) -> None:
    names = [events.add(component=component) for component in ("monitor-a", "monitor-b")]
    events.add(message=ENGLISH.replace("00000001", "00000002"))
    events.add(node="gpu-2")
    assert events.look().duplicates == 1
    assert seen() == [("xid", "62", "0000:03:00", 2), ("xid", "62", "0000:03:00", 1)]
    later = (events.world.now + timedelta(seconds=9)).isoformat().replace("+00:00", "Z")
    for name in names:
        events.world.kube.objects.merge("Event", "default", name, {"count": 2, "lastTimestamp": later})
    events.look()
    assert [one[3] for one in seen()] == [3, 1]


def test_the_portals_own_events_are_never_input(events: Events) -> None:
    events.add(component="kcover-portal")
    draft = port.EventDraft(
        name="own",
        namespace="kce-rescue-system",
        reason="XidError",
        message=ENGLISH,
        type="Warning",
        involved_kind="Node",
        involved_name="gpu-1",
        involved_uid="u",
        at=events.world.now,
    )
    events.world.kube.emit(draft)
    assert events.look().accepted == 0
    assert seen() == []


def test_kcovers_agent_asks_for_a_node(events: Events) -> None:
    events.add("Error", "GPU count is 7", annotations=ORDER, component="kcover")
    events.add("Day2CheckFailed", "temperature 91", annotations=ORDER, node="gpu-2")
    events.add("Error", "too old", annotations=ORDER, node="gpu-3", at=events.world.now - timedelta(seconds=190))
    events.add("Error", "not asked", annotations={"kcover.io/need-recovery": "false"}, node="gpu-4")
    events.look()
    assert seen() == [("event", "Error", "", 1), ("event", "Day2CheckFailed", "", 1)]


def test_an_event_about_a_pod_restarts_its_job_once(events: Events) -> None:
    add_job(events.world, "llm", "gpu-1", "gpu-2")
    events.add("Error", "NCCL error", kind="Pod", node="llm-0", namespace="train", annotations=ORDER)
    events.look()
    order = JobOrder.objects.get()
    assert (order.cause, order.name, order.requested_because["code"]) == ("event", "llm", "job_event_asks")
    events.world.until_settled(order)
    events.world.pass_time(60)
    events.again()
    events.look()
    assert JobOrder.objects.count() == 1


def test_a_compacted_preflight_report(events: Events) -> None:
    for number in (1, 2, 3, 4):
        failed = {(slot, peer) for slot, peer in ((0, 2), (1, 3), (2, 4))} if number == 1 else set()
        identity = f"ml/job/gpu-{number}/{number}/abcdef"
        marks = {"kcover.io/preflight-workload": "job", "kcover.io/preflight-report": identity}
        body = json.dumps(raw(number, failed=failed))
        events.add("Error", body, node=f"gpu-{number}", annotations=marks, component="kcover")
        runs_job(events, f"gpu-{number}", "ml", "job")
    row = events.look()
    run = PreflightRun.objects.get()
    assert row.error == {}
    assert (run.namespace, run.workload, run.state, run.slow) == ("ml", "job", "complete", ["gpu-1"])


def test_a_kubelet_reports_no_preflight_of_nodes_that_run_nothing_of_the_job(events: Events) -> None:
    """A kubelet may write any Event, in any namespace, and mirror pods with any label on its own node."""
    for number in (1, 2, 3, 4):
        failed = {(slot, peer) for slot, peer in ((0, 2), (1, 3), (2, 4))} if number == 1 else set()
        marks = {"kcover.io/preflight-workload": "job", "kcover.io/preflight-report": f"ml/job/gpu-{number}/0/abcdef"}
        events.add("Error", json.dumps(raw(number, failed=failed)), node=f"gpu-{number}", annotations=marks)
    events.world.kube.add_pod(
        "ml", "static", node="gpu-4", mirror=True, labels={"training.kubeflow.org/job-name": "job"}
    )
    row = events.look()
    assert (row.rejected, row.error["code"]) == (4, "preflight_no_pod")
    assert PreflightRun.objects.count() == 0


def test_a_preflight_report_waits_for_an_api_server_that_does_not_answer(events: Events) -> None:
    marks = {"kcover.io/preflight-workload": "job", "kcover.io/preflight-report": "ml/job/gpu-1/1/abcdef"}
    runs_job(events, "gpu-1", "ml", "job")
    events.add("Error", json.dumps(raw(1)), node="gpu-1", annotations=marks)
    events.world.kube.fail("list_pods", port.Unavailable("down"), times=2)
    assert (events.look().rejected, PreflightRun.objects.count()) == (0, 0)
    assert (events.look().rejected, PreflightRun.objects.count()) == (0, 1)
    events.again()
    assert (events.look().rejected, PreflightRun.objects.get().received) == (0, 1)


def runs_job(events: Events, node: str, namespace: str, job: str) -> None:
    """The node has a pod of the training job."""
    labels = {"training.kubeflow.org/job-name": job}
    events.world.kube.add_pod(
        namespace, f"{job}-{node}", node=node, labels=labels, owner_kind="PyTorchJob", owner_name=job
    )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"message": "no numbers"}, "event_xid"),
        ({"message": "pci:0000:03:00, xid:99999999999, log: x"}, "event_xid"),
        ({"message": "x" * 10_000_000}, "event_xid"),
        ({"message": "pci:0000:03:00,xid:62,log: \0"}, "source_not_storable"),
        ({"node": "gpu-99"}, "source_node_unknown"),
        ({"node": "../x"}, "source_node_invalid"),
        ({"namespace": "team-a"}, "event_namespace"),
        ({"annotations": {"kcover.io/preflight-workload": "j"}, "reason": "E", "message": "{"}, "event_preflight"),
        (
            {"annotations": {"kcover.io/preflight-workload": "j"}, "reason": "E", "message": "{}"},
            "event_preflight_node",
        ),
        (
            {
                "annotations": {"kcover.io/preflight-workload": "j"},
                "reason": "E",
                "message": '{"node_name": "gpu-1"}',
            },
            "preflight_size_invalid",
        ),
        ({"annotations": {**ORDER}, "reason": "a;b"}, "source_code_invalid"),
    ],
)
def test_bad_events_are_counted(events: Events, given: dict[str, Any], code: str) -> None:
    runs_job(events, "gpu-1", "default", "j")
    events.add(**given)
    row = events.look()
    assert (row.rejected, seen()) == (1, [])
    assert row.error["code"] == code


@pytest.mark.parametrize("namespace", ["kcover", "kcover-system"])
def test_a_namespace_that_a_user_may_have_made_is_not_trusted(events: Events, namespace: str) -> None:
    events.world.kube.add_namespace(namespace)
    events.add(namespace=namespace)
    row = events.look()
    assert (seen(), row.error["code"]) == ([], "event_namespace")
    services.SOURCES.change(row, {"settings": {"namespaces": namespace}}, actor="t", reason="", now=events.world.now)
    events.again()
    events.add(namespace=namespace)
    events.look()
    assert [one[:3] for one in seen()] == [("xid", "62", "0000:03:00")]


@pytest.mark.parametrize(
    ("own", "namespace", "counts"),
    [
        ("kce-rescue-system", "kce-rescue-system", True),
        ("kce-rescue-system", "kce-rescuepolicy", True),
        ("ops", "kce-rescuepolicy", False),
        ("ops", "ops", True),
    ],
)
def test_both_namespaces_of_kce_count_where_one_is_the_clusters_own(
    events: Events, own: str, namespace: str, counts: bool
) -> None:
    events.world.cluster.event_namespace = own
    events.again()
    events.world.kube.add_namespace(namespace)
    events.add(namespace=namespace)
    events.look()
    assert len(seen()) == counts


def test_clocks_a_day_off(events: Events) -> None:
    events.add(at=events.world.now + timedelta(days=1))
    assert events.look().error["code"] == "source_clock_ahead"
    events.add(at=events.world.now - timedelta(days=1))
    assert events.look().accepted == 0
    assert seen() == []


def test_settings_trust_namespaces_and_name_reasons(events: Events) -> None:
    source = Source.objects.get(kind="events")
    given = {"settings": {"namespaces": "monitoring", "reasons": "KernelOops"}}
    services.SOURCES.change(source, given, actor="test", reason="", now=events.world.now)
    events.add(namespace="monitoring")
    events.add("KernelOops", "BUG: unable to handle", namespace="monitoring", node="gpu-2")
    events.add(namespace="default", node="gpu-3")
    row = events.look()
    assert {(kind, code) for kind, code, _, _ in seen()} == {("xid", "62"), ("event", "KernelOops")}
    assert row.rejected == 1


def test_a_disabled_source_ignores_events(events: Events) -> None:
    Source.objects.filter(kind="events").update(enabled=False)
    events.add()
    events.look()
    assert seen() == []


def test_a_flood_without_consequence_costs_no_query(events: Events, django_assert_num_queries: Any) -> None:
    feed = services.EventFeed(events.world.cluster, kube_event_watch.take_preflight)
    assert feed.is_on(now=events.world.now)
    for reason in ("Pulled", "BackOff", "Scheduled", "NodeHasSufficientMemory"):
        events.add(reason, "text", annotations={"a": "b"})
    listed = events.world.kube.list_events().items
    with django_assert_num_queries(0):
        assert not any(feed.is_of_consequence(one) for one in listed)
        feed.feed([], now=events.world.now)


def test_an_order_waits_for_the_api_server(events: Events) -> None:
    add_job(events.world, "llm", "gpu-1")
    events.add("Error", "x", kind="Pod", node="llm-0", namespace="train", annotations=ORDER)
    events.world.kube.fail("list_pods", port.Unavailable("503"), times=2)
    assert events.look().error["code"] == "cluster_unavailable"
    assert not JobOrder.objects.exists()
    events.look()
    assert JobOrder.objects.exists()
