"""The simulator as others run it: the command, its kubeconfig, its switches over HTTP, its end."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from simulator import __main__ as command


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """A simulator in a process of its own: its URL and its kubeconfig."""
    kubeconfig = tmp_path_factory.mktemp("simulator") / "kubeconfig"
    arguments = [
        "serve",
        "--port",
        "0",
        "--nodes",
        "12",
        "--gpus",
        "4",
        "--boot-seconds",
        "0.4",
        "--grace-seconds",
        "0",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "simulator", *arguments, "--kubeconfig-out", str(kubeconfig)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:")
        yield line.split()[-1], kubeconfig
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def ask(url: str, path: str, body: object = None, *, method: str | None = None) -> tuple[int, dict]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_official_client_works_with_the_kubeconfig(served):
    _, kubeconfig = served
    api = config.new_client_from_config(str(kubeconfig))
    with api:
        found = client.CoreV1Api(api).list_node(label_selector="pool")
    assert [node.metadata.name for node in found.items if node.status.capacity.get("nvidia.com/gpu") == "4"] == [
        f"gpu-{number:04d}" for number in range(1, 13)
    ]


def test_a_node_reboots_on_request(served):
    url, kubeconfig = served
    before = ask(url, "/sim/nodes/gpu-0005")[1]["boot_id"]
    assert ask(url, "/sim/nodes/gpu-0005/reboot", method="POST")[0] == 202
    assert ask(url, "/sim/nodes/gpu-0005/reboot", method="POST")[0] == 409
    api = config.new_client_from_config(str(kubeconfig))
    seen = []
    with api:
        core = client.CoreV1Api(api)
        while True:
            node = core.read_node("gpu-0005")
            status = next(entry.status for entry in node.status.conditions if entry.type == "Ready")
            seen.append(status)
            if status == "True" and node.status.node_info.boot_id != before:
                break
    assert "Unknown" in seen
    assert [boot["cause"] for boot in ask(url, "/sim/nodes/gpu-0005")[1]["boots"]] == ["power on", "requested"]


def test_faults_are_injected_from_the_command_line(served, capsys):
    url, _ = served
    assert command.main(["inject", "--node", "gpu-0002", "--xid", "62", "--gpu", "1", "--url", url]) == 0
    assert capsys.readouterr().out.startswith("NVRM: Xid (PCI:0000:2a:00): 62, ")
    assert command.main(["inject", "--node", "gpu-0002", "--sxid", "12028", "--drill", "--url", url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    faults = ask(url, "/sim/nodes/gpu-0002")[1]["faults"]
    assert [(fault["kind"], fault["code"], fault["gpu"], fault["drill"]) for fault in faults] == [
        ("xid", 62, 1, False),
        ("sxid", 12028, None, True),
    ]
    assert ask(url, "/sim/nodes/gpu-0002/cure", method="POST")[1] == {"node": "gpu-0002", "cured": 2, "power": "up"}


def test_an_impossible_injection_is_explained(served, capsys):
    url, _ = served
    assert command.main(["inject", "--node", "gpu-0001", "--xid", "79", "--gpu", "4", "--url", url]) == 1
    assert "gpu: gpu-0001 has GPUs 0 to 3" in capsys.readouterr().err
    assert command.main(["inject", "--node", "gpu-1", "--xid", "79", "--url", url]) == 1
    assert "no such node: gpu-1 (known: " in capsys.readouterr().err
    assert command.main(["inject", "--node", "gpu-0001", "--xid", "79", "--url", "http://127.0.0.1:9"]) == 1
    assert "no response from http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        ([], "body"),
        ({}, "node"),
        ({"node": "gpu-0001"}, "code"),
        ({"node": "gpu-0001", "code": "79"}, "code"),
        ({"node": "gpu-0001", "code": 2**31}, "code"),
        ({"node": "gpu-0001", "code": 79, "kind": "flood"}, "kind"),
        ({"node": "gpu-0001", "code": 79, "gpu": -1}, "gpu"),
        ({"node": "gpu-0001", "code": 79, "gpu": 4}, "gpu"),
        ({"node": "cpu-01", "code": 79}, "gpu"),
        ({"node": "gpu-0001", "code": 79, "count": 0}, "count"),
        ({"node": "gpu-0001", "code": 79, "cure": "prayer"}, "cure"),
        ({"node": "gpu-0001", "code": 79, "drill": "yes"}, "drill"),
        ({"node": "gpu-0001", "code": 79, "line": "a\nb"}, "line"),
        ({"node": "gpu-0001", "code": 79, "xid": 3}, "xid"),
    ],
)
def test_a_bad_order_names_field_and_reason(served, body: object, field: str):
    status, answer = ask(served[0], "/sim/faults", body)
    assert (status, answer["field"]) == (400, field)
    assert answer["reason"]


@pytest.mark.parametrize("kind", ["xid", "sxid", "hang"])
@pytest.mark.parametrize("gpu", [4, 8, 64, 10**6, -1])
def test_a_gpu_that_the_node_does_not_have_is_refused_with_those_it_has(served, kind: str, gpu: int):
    order = {"node": "gpu-0001", "kind": kind, "code": 79, "gpu": gpu}
    status, answer = ask(served[0], "/sim/faults", order)
    assert (status, answer) == (400, {"field": "gpu", "reason": f"gpu-0001 has GPUs 0 to 3, not {gpu}"})
    assert ask(served[0], "/sim/nodes/gpu-0001")[1]["power"] == "up"
    assert ask(served[0], "/sim/faults", {**order, "node": "cpu-01"})[1]["reason"] == f"cpu-01 has no GPUs, not {gpu}"


def test_an_unknown_node_is_refused_with_the_known_nodes(served):
    for path, body in (("/sim/faults", {"node": "gpu-0099", "code": 79}), ("/sim/nodes/gpu-0099/reboot", {})):
        status, answer = ask(served[0], path, body)
        assert status == 404
        assert answer["error"] == "no such node: gpu-0099"
        assert answer["count"] == 13
        assert answer["nodes"][0] == "gpu-0001"


def test_calls_are_counted_and_api_faults_happen(served):
    url, kubeconfig = served
    assert ask(url, "/sim/calls", method="DELETE")[0] == 200
    api = config.new_client_from_config(str(kubeconfig))
    with api:
        core = client.CoreV1Api(api)
        assert (
            ask(url, "/sim/api-faults", {"status": 500, "match": "PATCH /api/v1/nodes/gpu-0007", "count": 1})[0] == 201
        )
        with pytest.raises(client.ApiException) as refused:
            core.patch_node("gpu-0007", {"spec": {"unschedulable": True}})
        assert refused.value.status == 500
        core.patch_node("gpu-0007", {"spec": {"unschedulable": True}})
    counted = ask(url, "/sim/calls?verb=PATCH&node=gpu-0007")[1]
    assert (counted["total"], counted["destructive"]) == (2, 2)
    assert sorted(row["status"] for row in counted["calls"]) == [200, 500]
    assert ask(url, "/sim/api-faults", {"status": 418})[1]["field"] == "status"
    assert ask(url, "/sim/api-faults")[1] == {"pending": [], "hanging": []}


def test_the_state_matches_the_simulation(served):
    url, _ = served
    state = ask(url, "/sim/state")[1]
    assert len(state["nodes"]) == 13
    assert state["weather"] is None
    assert state["agents"] == {"running": 0, "reports": 0}
    assert ask(url, "/sim/nodes/gpu-0001/agent", {"running": False})[0] == 409
    assert len(ask(url, "/sim/nodes")[1]["nodes"]) == 13


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["serve", "--nodes", "0"], "--nodes: must be a whole number from 1 to 20000, not '0'"),
        (["serve", "--port", "70000"], "--port: must be a whole number from 0 to 65535, not '70000'"),
        (["serve", "--boot-seconds", "nan"], "--boot-seconds: must be a number from 0 to 86400, not 'nan'"),
        (["serve", "--portal", "http://localhost:1"], "--portal and --enrol-token-file: set both"),
        (["serve", "--portal", "localhost"], "not 'localhost'"),
        (["inject", "--node", "a"], "one of the arguments --xid --sxid --hang is required"),
        (["inject", "--node", "a", "--xid", "x"], "--xid: must be a whole number"),
        ([], "the following arguments are required: command"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments: list[str], complaint: str, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error(served):
    port = served[0].rpartition(":")[2]
    arguments = [sys.executable, "-m", "simulator", "serve", "--port", port, "--nodes", "1"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_other_systems_receive_a_fault(served):
    url, _ = served
    line = ask(url, "/sim/faults", {"node": "gpu-0012", "kind": "xid", "code": 48})[1]["lines"][0]
    query = urllib.parse.quote('{k8s_daemonset_name="dmesg"} |~ "(?i)nvrm: xid"')
    logs = ask(url, f"/loki/api/v1/query_range?query={query}&start=0&end={2**62}")[1]["data"]["result"]
    heard = {stream["stream"]["k8s_node_name"]: stream["values"][-1][1] for stream in logs}
    assert heard["gpu-0012"] == line
    states = ask(url, "/gpud/gpu-0012/v1/states")[1]
    assert [one["states"][0]["health"] for one in states][:2] == ["Unhealthy", "Healthy"]
    assert ask(url, "/gpud/gpu-0012/v1/events")[1][0]["events"][0]["type"] == "Fatal"
    series = ask(url, "/prometheus/api/v1/query?query=DCGM_FI_DEV_XID_ERRORS")[1]["data"]["result"]
    assert [one["value"][1] for one in series if one["metric"]["Hostname"] == "gpu-0012"] == ["48", "0", "0", "0"]
    assert ask(url, "/sim/exporter", {"url": "ftp://x", "token": ""})[0] == 400


def test_a_pod_prints_the_requested_line(served):
    url, _ = served
    pod = ask(url, "/api/v1/namespaces/monitoring/pods")[1]["items"][0]
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    printed = f"/sim/pods/{namespace}/{name}/log"
    assert ask(url, printed, {"line": "CUDA error: invalid device ordinal"})[0] == 201
    assert [ask(url, printed, {"line": line})[0] for line in ("", 3, "a\nb")] == [400, 400, 400]
    assert ask(url, f"/sim/pods/{namespace}/none/log", {"line": "x"})[0] == 404
    log = f"{url}/api/v1/namespaces/{namespace}/pods/{name}/log?timestamps=true"
    with urllib.request.urlopen(log) as answer:
        stamp, _, line = answer.read().decode().partition(" ")
    assert (len(stamp), line) == (30, "CUDA error: invalid device ordinal\n")
    with urllib.request.urlopen(f"{log}&limitBytes=10&sinceTime={stamp[:19]}Z") as answer:
        assert answer.read().decode() == stamp[:10]


def test_a_slow_node_slows_the_steps_of_its_job(served):
    url, _ = served

    def steps(metric: str) -> dict[str, float]:
        _, body = ask(url, f"/prometheus/api/v1/query?query={metric}")
        found = [one for one in body["data"]["result"] if one["metric"]["training_job"] == job]
        return {one["metric"]["pod"]: float(one["value"][1]) for one in found}

    _, body = ask(url, "/prometheus/api/v1/query?query=training_step_seconds")
    names = [one["metric"]["training_job"] for one in body["data"]["result"]]
    job = max(names, key=names.count)
    one = next(found["metric"] for found in body["data"]["result"] if found["metric"]["training_job"] == job)
    _, pod = ask(url, f"/api/v1/namespaces/{one['namespace']}/pods/{one['pod']}")
    node = pod["spec"]["nodeName"]
    assert ask(url, f"/sim/nodes/{node}/speed", {"speed": 0.5})[0] == 200
    assert set(steps("training_step_seconds").values()) == {2.0}
    assert sorted(steps("training_compute_seconds").values())[-2:] == [1.0, 2.0]
    assert ask(url, f"/sim/nodes/{node}/speed", {"speed": 1})[0] == 200
