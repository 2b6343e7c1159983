"""GET /status: parameters, rights, streamed text and JSON, and a run that continues without its caller."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover.faults.fault import CommandResult
from kcover_portal.api.v1.status import responses
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun
from kcover_portal.checks.services import pvc_check
from kcover_portal.fleet import queries, services as fleet
from kcover_portal.fleet.models import Agent, CheckResult, Cluster, Command, Node
from tests.kube_fake import FakeCluster
from tests.portal.api.conftest import Api, add_node, caller, fields, person, problem

pytestmark = pytest.mark.django_db


@pytest.fixture
def nodes(east: Cluster, node: Node, now: datetime) -> list[Node]:
    """Three nodes whose agents reported just now."""
    found = [node, *(add_node(east, f"gpu-{number}", now, address=f"10.0.0.{number}") for number in (2, 3))]
    Agent.objects.update(seen_at=timezone.now())
    return found


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Agents that answer while somebody listens: ``answered({"gpu-1": "pass"})``; others stay silent."""
    wanted: dict[str, str] = {}

    def look(_seconds: float) -> None:
        for command in Command.objects.filter(state="offered").select_related("node"):
            if status := wanted.get(command.node.name):
                results = [
                    {"name": name, "device": device, "status": status, "value": 24.5, "unit": "GB/s", "message": ""}
                    for name in command.args["checks"]
                    for device in (command.args["hosts"] if name == "iperf" else ["GPU-0"])
                ]
                result = CommandResult(id=str(command.pk), status="done", output={"checks": results})
                fleet.settle_command(command.node, result, now=timezone.now())
        for run in CheckRun.objects.filter(state="running"):
            check_runs.advance(run.pk, now=timezone.now())

    monkeypatch.setattr(responses, "pause", look)
    return wanted.update


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content).decode()


def test_the_text_has_each_node_and_then_the_summary(nodes: list[Node], operator: Api, answered: Any) -> None:
    answered({"gpu-1": "pass", "gpu-2": "fail", "gpu-3": "pass"})
    response = operator.get("status?cluster=east&check=pciebw&batch=2&r=1")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    text = text_of(response)
    run = CheckRun.objects.get()
    assert text.startswith("Checking status on all nodes\nRun ")
    assert f"http://testserver/api/v1/check-runs/{run.pk}" in text
    assert [line for line in text.splitlines() if line.startswith("Node: ")] == [
        "Node: gpu-1",
        "Node: gpu-2",
        "Node: gpu-3",
    ]
    assert "url(s): http://testserver/api/v1/status?host=gpu-2&cluster=east&check=pciebw\n" in text
    assert "Autopilot Endpoint: 10.0.0.2\n" in text
    assert "[[ PCIEBW ]] FAIL\nHost  gpu-2\n24.5\n" in text
    assert "Node Status: PCIE Failed\n-------------------------------------\n\n\nAutopilot Endpoint: " in text
    assert text.count("-----\n\n\n") == 2
    summary = "{'gpu-1': ['Ok'],\n 'gpu-2': ['PCIE Failed'],\n 'gpu-3': ['Ok']}"
    assert f"-----\n\nNode Summary:\n\n{summary}\n\nruntime: " in text
    assert (run.state, run.batch, run.done, run.wrong) == ("finished", 2, 3, 1)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("http://autopilot-healthchecks.autopilot.svc:3333/status", True),
        ("http://[::1]:3333/status", True),
        ("http://a/status?x=1", False),
        ("javascript:x/status", False),
        ("http://a\nb/status", False),
    ],
)
def test_the_answer_names_the_port_that_was_asked(
    nodes: list[Node], operator: Api, answered: Any, told: str, *, shown: bool
) -> None:
    answered({"gpu-2": "pass"})
    response = operator.get("status?cluster=east&check=dcgm&host=gpu-2&r=2", **{"X-Status-Address": told})
    own = "http://testserver/api/v1/status?host=gpu-2&cluster=east"
    assert f"url(s): {f'{told}?host=gpu-2' if shown else own}&check=dcgm&r=2\n" in text_of(response)


def test_json_for_programs(nodes: list[Node], operator: Api, answered: Any) -> None:
    answered({"gpu-2": "pass"})
    response = operator.get("status?cluster=east&check=pciebw,dcgm&host=gpu-2&r=2", Accept="application/json")
    body = json.loads(text_of(response))
    assert (body["state"], body["checks"], body["r"], body["total"]) == ("finished", ["pciebw", "dcgm"], 2, 1)
    assert body["summary"] == {"gpu-2": ["Ok"]}
    [reports] = body["nodes"]
    assert (reports["node"], reports["address"], reports["status"]) == ("gpu-2", "10.0.0.2", ["Ok"])
    assert [one["name"] for one in reports["checks"]] == ["pciebw", "dcgm"]
    assert body["runtime"] >= 0
    again = operator.get(f"check-runs/{body['run']}").json()
    assert {key: again[key] for key in again} == {key: body[key] for key in again}


@pytest.fixture
def kube(east: Cluster) -> FakeCluster:
    """The cluster itself; no pod there holds GPUs."""
    made = queries.connect(east)
    assert isinstance(made, FakeCluster)
    made.add_namespace("kcover-jobs")
    return made


def test_the_ring_of_iperf_is_rendered_as_a_table(
    nodes: list[Node], kube: FakeCluster, operator: Api, answered: Any
) -> None:
    Node.objects.filter(name="gpu-1").update(address="10.0.0.1")
    answered({"gpu-1": "pass", "gpu-2": "pass", "gpu-3": "pass"})
    query = "cluster=east&check=iperf&workload=ring&pclients=4&startport=6000&cleanup"
    text = text_of(operator.get(f"status?{query}"))
    run = CheckRun.objects.get()
    assert (run.state, run.ring["clients"], run.ring["port"]) == ("finished", 4, 6000)
    assert "[[ IPERF ]] SUCCESS\nHost  gpu-2\n24.5 24.5\n" in text
    table = text[text.index("Average Bandwidth") : text.index("Node Summary")].splitlines()
    assert [line.split() for line in table if line] == [
        ["Average", "Bandwidth", "Gb/s:", "24.50"],
        ["Network", "Throughput:"],
        ["src/dst", "gpu-1", "gpu-2", "gpu-3"],
        ["gpu-1", "N/A", "24.5", "24.5"],
        ["gpu-2", "24.5", "N/A", "24.5"],
        ["gpu-3", "24.5", "24.5", "N/A"],
    ]
    shown = operator.get(f"check-runs/{run.pk}").json()
    traffic = {"workload": "ring", "plane": "mgmt", "pclients": 4, "clientsperiface": 1, "startport": 6000}
    assert shown["ring"] == {**traffic, "step": 0, "steps": 0}
    assert [one["device"] for one in shown["nodes"][0]["checks"]] == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    ("query", "traffic"),
    [
        ("", ("mgmt", 8, 1)),
        ("plane=mgmt", ("mgmt", 1, 1)),
        ("plane=data", ("data", 8, 1)),
        ("serverspernode=4&clientsperiface=2", ("data", 4, 2)),
        ("plane=data&pclients=6", ("data", 6, 1)),
    ],
)
def test_iperfs_planes(nodes: list[Node], operator: Api, query: str, traffic: tuple[str, int, int]) -> None:
    text_of(operator.get(f"status?cluster=east&check=iperf&wait=0&{query}"))
    ring = CheckRun.objects.get().ring
    assert (ring["plane"], ring["clients"], ring["streams"]) == traffic


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("plane=control", "plane_unknown"),
        ("plane=mgmt&serverspernode=2", "plane_of_data_only"),
        ("serverspernode=2&pclients=2", "one_of_parameters"),
        ("serverspernode=0", "number_out_of_range"),
    ],
)
def test_wrong_planes_are_refused_by_name(nodes: list[Node], operator: Api, query: str, code: str) -> None:
    body = problem(operator.get(f"status?cluster=east&check=iperf&{query}"), 400)
    assert body["errors"][0]["code"] == code
    assert not CheckRun.objects.exists()


def test_a_ring_has_a_size(nodes: list[Node], kube: FakeCluster, operator: Api, monkeypatch: Any) -> None:
    monkeypatch.setattr(check_runs, "MAX_RING_NODES", 2)
    assert "at most 2 nodes" in fields(operator.get("status?cluster=east&check=iperf&batch=3"))["batch"]
    text_of(operator.get("status?cluster=east&check=iperf&host=gpu-2,gpu-3&batch=9&wait=0"))


def test_a_storage_class_of_ones_own(nodes: list[Node], kube: FakeCluster, operator: Api) -> None:
    for parameter, wanted in (("", "team.standard"), ("&storageclass=fast", "fast")):
        operator.call("patch", "clusters/east", {"storage_class": "team.standard"})
        text_of(operator.get(f"status?cluster=east&check=pvc&wait=0{parameter}"))
        run = CheckRun.objects.latest("pk")
        check_runs.advance(run.pk, now=timezone.now())
        claim = kube.objects.get("PersistentVolumeClaim", "kcover-jobs", pvc_check.name_of(run))
        assert claim["spec"]["storageClassName"] == wanted
    refused = fields(operator.call("patch", "clusters/east", {"storage_class": "no such name"}))
    assert "name of a storage class" in refused["storage_class"]
    assert operator.call("patch", "clusters/east", {"storage_class": ""}).json()["storage_class"] == ""


def test_a_run_continues_without_a_listener(nodes: list[Node], operator: Api) -> None:
    text = text_of(operator.get("status?cluster=east&check=remapped&wait=0"))
    run = CheckRun.objects.get()
    assert f"0 of 3 nodes have answered; the run continues: http://testserver/api/v1/check-runs/{run.pk}" in text
    check_runs.advance(run.pk, now=timezone.now())
    shown = operator.get(f"check-runs/{run.pk}").json()
    assert (shown["state"], [one["state"] for one in shown["nodes"]]) == ("running", ["requested"] * 3)
    assert operator.get("check-runs?state=running&node=gpu-2").json()["results"][0]["total"] == 3
    assert operator.get("check-runs?node=gpu-9").json()["results"] == []


def hang_up(response: Any) -> None:
    """What the server does then, but for the database connection, which is the test's own."""
    for close in response._resource_closers:
        close()


def test_a_caller_that_hangs_up_ends_the_response_and_not_the_run(
    nodes: list[Node], operator: Api, answered: Any
) -> None:
    response = operator.get("status?cluster=east&check=remapped")
    pieces = iter(response.streaming_content)
    assert next(pieces).startswith(b"Checking status on all nodes")
    hang_up(response)
    assert CheckRun.objects.get().state == "running"
    for _ in range(responses.MAX_LISTENERS + 1):  # its place is free again
        check_runs.prune(now=timezone.now())
        hang_up(operator.get("status?cluster=east&check=remapped"))


def test_listeners_are_bounded_and_no_check_is_started_beyond_the_limit(nodes: list[Node], operator: Api) -> None:
    held = [responses.ListenerSlot() for _ in range(responses.MAX_LISTENERS)]
    try:
        refused = operator.get("status?cluster=east")
        assert "No check was started" in problem(refused, 429)["detail"]
        assert refused.headers["Retry-After"] == "5"
        assert not CheckRun.objects.exists()
        assert operator.get("status?cluster=east&wait=0").status_code == 200
    finally:
        for place in held:
            place.give_back()
    for place in held:
        place.give_back()  # twice is once
    free = [responses.ListenerSlot() for _ in range(responses.MAX_LISTENERS)]
    with pytest.raises(responses.ListenersFull):
        responses.ListenerSlot()
    for place in free:
        place.give_back()


def test_the_wait_is_bounded(nodes: list[Node], operator: Api, monkeypatch: Any) -> None:
    moments = iter(range(0, 1000, 5))
    monkeypatch.setattr(responses, "clock", lambda: float(next(moments)))
    monkeypatch.setattr(responses, "pause", lambda seconds: None)
    text = text_of(operator.get("status?cluster=east&check=remapped&wait=60"))
    assert "0 of 3 nodes have answered" in text
    assert "\n\n\n" in text  # a long silence is broken
    assert CheckRun.objects.get().state == "running"


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("check=pciebw,nope", "check", "check not supported: nope; supported: all, pciebw"),
        ("check=", "check", "Must name at least one"),
        ("check=iperf&workload=star", "workload", "Unknown workload 'star'"),
        ("check=iperf&pclients=0", "pclients", "whole number from 1 to 64"),
        ("check=iperf&startport=80", "startport", "whole number from 1024 to 65000"),
        ("check=ping&pclients=4", "pclients", "Requires check=iperf"),
        ("check=pvc&storageclass=Fast", "storageclass", "name of a storage class"),
        ("check=pvc&storageclass=", "storageclass", "name of a storage class"),
        ("check=ping&storageclass=fast", "storageclass", "Requires check=pvc"),
        ("host=gpu-1,gpu-77", "host", "Cluster east has no node gpu-77"),
        ("host=%00", "host", "Must not contain NUL characters."),
        ("batch=-1", "batch", "whole number from 0"),
        ("batch=x", "batch", "whole number"),
        ("r=5", "r", "whole number from 1 to 4"),
        ("r=%EF%BC%91", "r", "whole number"),
        ("wait=601", "wait", "whole number from 0 to 600"),
        ("job=ml", "job", "Must be namespace:key=value"),
        ("job=ml:a=b", "job", "No scheduled pod in ml"),
        ("nodelabel=rack", "nodelabel", "Must be key=value"),
        ("nodelabel=rack=1", "nodelabel", "No node has the label rack=1."),
        ("pingnodes=gpu-88", "pingnodes", "has no node gpu-88"),
        ("hosts=gpu-1", "hosts", "Did you mean host?"),
    ],
)
def test_invalid_parameters_are_refused_by_name(
    nodes: list[Node], operator: Api, query: str, field: str, words: str
) -> None:
    for accept in ("*/*", "application/json", "text/plain"):
        found = fields(operator.get(f"status?cluster=east&{query}", Accept=accept))
        assert words in found[field], found
    assert not CheckRun.objects.exists()


def test_the_cluster_is_the_tokens_or_named(nodes: list[Node], west: Cluster, operator: Api, now: datetime) -> None:
    assert fields(operator.get("status"))["cluster"] == "Required: you have access to several clusters."
    assert fields(operator.get("status?cluster=north"))["cluster"] == "Unknown cluster north."
    assert fields(operator.get("status?cluster=west"))["cluster"] == "Cluster west has no GPU nodes."
    bound = caller("operator", now, cluster=Cluster.objects.get(name="east"))
    assert "in cluster east: pciebw, remapped, dcgm, ping, gpupower" in text_of(bound.get("status?wait=0"))
    assert fields(bound.get("status?cluster=west"))["cluster"] == "Unknown cluster west."


def test_the_endpoint_requires_an_operator_token(nodes: list[Node], viewer: Api, now: datetime) -> None:
    assert "role operator" in problem(viewer.get("status?cluster=east"), 403)["detail"]
    assert "Requires a token" in problem(person("ann", "admin", now).get("status?cluster=east"), 403)["detail"]
    problem(Api().get("status?cluster=east"), 401)
    assert not CheckRun.objects.exists()


def test_a_cluster_that_does_not_answer_gets_a_retryable_error(nodes: list[Node], west: Cluster, operator: Api) -> None:
    add_node(west, "w-1", timezone.now())
    silent = operator.get("status?cluster=west&job=ml:a=b")
    assert silent.status_code in (400, 503)
    assert "west" in problem(silent, silent.status_code)["detail"]


def test_a_run_is_stopped_by_an_operator(nodes: list[Node], operator: Api, viewer: Api) -> None:
    text_of(operator.get("status?cluster=east&wait=0"))
    run = CheckRun.objects.get()
    problem(viewer.post(f"check-runs/{run.pk}/stop", {"reason": "no"}), 403)
    assert operator.post(f"check-runs/{run.pk}/stop", {"reason": "no"}).json()["state"] == "stopped"
    assert "has ended" in problem(operator.post(f"check-runs/{run.pk}/stop", {"reason": "no"}), 409)["detail"]
    problem(operator.post("check-runs/999/stop", {"reason": "no"}), 404)


def test_the_latest_results_are_a_list(nodes: list[Node], viewer: Api, now: datetime) -> None:
    for status, device in (("pass", "GPU-0"), ("fail", "GPU-1")):
        CheckResult.objects.create(
            node=nodes[0], name="pciebw", device=device, status=status, value=3.5, seen_at=now, changed_at=now
        )
    [row] = viewer.get("checks?status=fail&check=pciebw&cluster=east&node=gpu-1").json()["results"]
    assert (row["check"], row["device"], row["status"], row["value"]) == ("pciebw", "GPU-1", "fail", 3.5)
    assert fields(viewer.get("checks?status=green"))["status"]
    assert len(viewer.get("checks").json()["results"]) == 2


def test_runs_of_other_clusters_are_not_seen(nodes: list[Node], west: Cluster, operator: Api, now: datetime) -> None:
    text_of(operator.get("status?cluster=east&wait=0"))
    elsewhere = caller("viewer", now, cluster=west)
    assert elsewhere.get("check-runs").json()["results"] == []
    problem(elsewhere.get(f"check-runs/{CheckRun.objects.get().pk}"), 404)
    assert timedelta(0) <= timezone.now() - CheckRun.objects.get().requested_at < timedelta(minutes=1)
