"""The agent as a process on a node with two GPUs (the shim's), from the driver all the way to the portal."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from kcover.faults.fault import Command
from tests import waiting
from tests.agents.shim import UUIDS

pytestmark = pytest.mark.slow


class Node:
    def __init__(self, folder, portal, driver):
        self.folder, self.portal, self.driver = folder, portal, driver
        self.log = folder / "kern.log"
        self.log.touch()
        (folder / "boot_id").write_text("boot-1\n")
        self.processes = []

    def start(self, **environ):
        settings = {
            "NODE_NAME": "gpu-1",
            "KCOVER_AGENT_URL": self.portal.url,
            "KCOVER_AGENT_TOKEN": "kca_x",
            "KCOVER_AGENT_KMSG": str(self.log),
            "KCOVER_AGENT_BOOT_ID": str(self.folder / "boot_id"),
            "KCOVER_AGENT_SPOOL": str(self.folder / "spool"),
            "KCOVER_AGENT_INTERVAL": "0.5",
            "KCOVER_AGENT_GPUS": "2",
            "KCOVER_AGENT_LISTEN": "127.0.0.1:0",
        }
        with (self.folder / "stderr").open("a") as errors:
            environ = os.environ | self.driver.environ | settings | environ
            process = subprocess.Popen((sys.executable, "-m", "agents"), env=environ, stderr=errors)
        self.processes.append(process)
        return process

    def ask(self, kind, *, id="c1", **args):
        now = datetime.now(UTC)
        self.portal.commands = [
            Command(id=id, kind=kind, args=args, created_at=now, expires_at=now + timedelta(minutes=5))
        ]

    @property
    def checks(self):
        """The latest status by check and device."""
        return {
            (check.name, check.device): check.status for report in list(self.portal.reports) for check in report.checks
        }

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def get(process, path):
    """What the agent says on its local address."""
    listening = [one.laddr.port for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
    (port,) = listening
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


@pytest.fixture
def node(tmp_path, portal, driver):
    node = Node(tmp_path, portal, driver)
    yield node
    node.close()


def test_gpus_are_probed_from_the_start(node, portal, driver):
    driver.set(gpu1__field230__0=2)
    node.start()
    portal.wait_for(lambda: ("recovery_action", UUIDS[1]) in node.checks)
    assert node.checks["recovery_action", UUIDS[0]] == "pass"
    assert node.checks["recovery_action", UUIDS[1]] == "fail"
    assert node.checks["gpu_count", ""] == "pass"
    portal.wait_for(lambda: portal.faults)
    (fault,) = portal.faults
    assert (fault.kind, fault.code, fault.gpu_uuid, fault.pci) == ("check", "recovery_action", UUIDS[1], "0000:5e:00")


def test_a_driver_that_hangs_delays_nothing_else(node, portal, driver, tmp_path):
    """Heartbeats, faults, the other GPU, the other probes, a check that asks no driver, the local addresses, and the
    agent's end."""
    ping = tmp_path / "bin" / "ping"
    ping.parent.mkdir()
    ping.write_text("#!/bin/sh\necho '10 packets transmitted, 10 received, 0% packet loss, time 1ms'\n")
    ping.chmod(0o755)
    driver.set(gpu0__ecc="hang")
    node.ask("run_check", check="ping", hosts="10.0.0.2")
    process = node.start(PATH=f"{ping.parent}:{os.environ['PATH']}")
    portal.wait_for(lambda: len(portal.reports) > 3)
    with node.log.open("a") as log:
        log.write("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n")
    portal.wait_for(lambda: any(fault.code == 79 for fault in portal.faults))
    portal.wait_for(lambda: portal.results)
    (reported,) = portal.results[0].output["checks"]
    assert (reported["name"], reported["device"], reported["status"]) == ("ping", "10.0.0.2", "pass")
    portal.wait_for(lambda: "disk" in {name for name, _ in node.checks})
    assert json.loads(get(process, "/healthz"))["node"] == "gpu-1"
    assert 'kcover_agent_check{check="ping",device="10.0.0.2",status="pass"} 1' in get(process, "/metrics")
    portal.wait_for(lambda: node.checks.get(("gpu", UUIDS[0])) == "warn")
    assert node.checks["gpu", UUIDS[1]] == node.checks["ecc", UUIDS[1]] == "pass"
    (words,) = [
        check.message
        for report in list(portal.reports)
        for check in report.checks
        if (check.name, check.device) == ("gpu", UUIDS[0])
    ]
    assert words.startswith("the GPU does not answer: nvmlDeviceGetEccMode has not returned for")
    process.terminate()
    assert process.wait(timeout=60) == 0


def test_a_driver_that_hangs_delays_no_reboot(node, portal, driver, tmp_path):
    tools, rebooted = tmp_path / "bin", tmp_path / "rebooted"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n")
    (tools / "nvidia-smi").chmod(0o755)
    driver.set(gpu0__ecc="hang")
    node.ask("reset_gpu", gpu_uuid=UUIDS[0])
    (reset,) = portal.commands
    node.start(PATH=f"{tools}:{os.environ['PATH']}", KCOVER_AGENT_REBOOT_COMMAND=f"touch {rebooted}")
    begun = node.folder / "spool/commands"
    portal.wait_for(lambda: list(begun.glob("*.json")))
    node.ask("reboot", id="c2", boot_id="boot-1")
    portal.commands = [reset, *portal.commands]
    portal.wait_for(rebooted.exists)


def test_a_check_on_command_answers_and_reports(node, portal, driver):
    driver.set(gpu0__rows_pending=1, gpu0__rows_uncorrected=3)
    node.ask("run_check", check="remapped,gpupower")
    node.start()
    portal.wait_for(lambda: portal.results)
    (result,) = {result.id: result for result in portal.results}.values()
    assert (result.status, result.message) == ("done", "fail")
    reported = [(one["name"], one["device"], one["status"], one["value"]) for one in result.output["checks"]]
    assert reported[0] == ("remapped", UUIDS[0], "fail", 3.0)
    assert {status for _, _, status, _ in reported[1:]} == {"pass"}
    portal.wait_for(lambda: ("gpupower", UUIDS[1]) in node.checks)
    assert [fault.code for fault in portal.faults].count("remapped") == 1


def test_bandwidth_is_measured_by_a_child_over_the_shim(node, portal):
    node.ask("run_check", check="pciebw", threshold=10)
    node.start(CUDA_SHIM_MS="20", CUDA_SHIM_MS_1="200")
    portal.wait_for(lambda: portal.results)
    reported = {one["device"]: (one["status"], one["value"]) for one in portal.results[0].output["checks"]}
    assert reported == {UUIDS[0]: ("pass", 33.55), UUIDS[1]: ("fail", 3.36)}


def test_a_check_is_executed_at_most_once_across_restarts(node, portal, tmp_path):
    runs = tmp_path / "runs"
    tool = tmp_path / "bin" / "dcgmi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho run >> {runs}\nsleep 60\n")
    tool.chmod(0o755)
    node.ask("run_check", check="dcgm")
    path = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
    first = node.start(**path)
    portal.wait_for(runs.exists)
    for child in psutil.Process(first.pid).children(recursive=True):
        child.kill()
    first.kill()
    first.wait()
    node.start(**path)
    portal.wait_for(lambda: portal.results)
    assert portal.results[0].status == "failed"
    assert "interrupted" in portal.results[0].message
    assert runs.read_text() == "run\n"


def test_a_long_check_delays_no_reset(node, portal, tmp_path, driver):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in (("dcgmi", "sleep 60"), ("nvidia-smi", "echo GPU was reset")):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    driver.set(gpu0__process=4711)
    node.ask("run_check", check="dcgm")
    process = node.start(PATH=f"{tools}:{os.environ['PATH']}")
    portal.wait_for(
        lambda: any("dcgmi" in " ".join(child.cmdline()) for child in psutil.Process(process.pid).children())
    )
    node.ask("reset_gpu", id="c2", gpu_uuid=UUIDS[0])
    portal.wait_for(lambda: portal.results)
    (result,) = {result.id: result for result in portal.results}.values()
    assert (result.id, result.status) == ("c2", "refused")
    assert f"process 4711 on {UUIDS[0]}" in result.message
    driver.set(gpu0__process=0)
    node.ask("reset_gpu", id="c3", gpu_uuid=UUIDS[0])
    portal.wait_for(lambda: any(result.id == "c3" for result in portal.results))
    (result,) = {result.id: result for result in portal.results if result.id == "c3"}.values()
    assert (result.status, result.message) == ("done", "GPU was reset")
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()


def test_an_xid_event_of_the_driver_is_reported(node, portal, driver):
    node.start()
    portal.wait_for(lambda: ("gpu", UUIDS[0]) in node.checks)
    driver.set(xid="1 119")
    portal.wait_for(lambda: portal.faults)
    (fault,) = portal.faults
    assert (fault.kind, fault.code, fault.pci, fault.source, fault.gpu_uuid) == (
        "xid",
        119,
        "0000:5e:00",
        "nvml",
        UUIDS[1],
    )


def test_metrics_and_healthz(node, portal, driver):
    node.ask("run_check", check="remapped")
    driver.set(gpu1__rows_pending=1)
    process = node.start()
    portal.wait_for(lambda: portal.results)
    health = json.loads(get(process, "/healthz"))
    assert (health["status"], health["node"], health["late_probes"]) == ("ok", "gpu-1", [])
    text = get(process, "/metrics")
    assert "kcover_agent_info{" in text
    assert f'kcover_agent_check{{check="remapped",device="{UUIDS[1]}",status="fail"}} 1' in text
    gauges = re.findall(r'autopilot_health_checks\{health="remapped",node="gpu-1",cpumodel="[^"]*",(.*)\} (\S+)', text)
    assert gauges == [
        ('gpumodel="NVIDIA H100 80GB HBM3",deviceid="0"', "0"),
        ('gpumodel="NVIDIA H100 80GB HBM3",deviceid="1"', "1"),
    ]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(process, "/")


def test_checks_before_a_job(driver):
    """``python -m agents check`` for an init container: results as lines, the verdict as exit status."""

    def check(*arguments):
        ended = subprocess.run(
            (sys.executable, "-m", "agents", "check", *arguments),
            env=os.environ | driver.environ | {"NODE_NAME": "gpu-1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, [json.loads(line)["status"] for line in ended.stdout.splitlines()]

    assert check("remapped,gpupower") == (0, ["pass"] * 4)
    assert check("pciebw", "threshold=1000") == (1, ["fail"] * 2)
    assert check("pvc") == (3, ["error"])
    assert check("remapped", "r")[0] == 2


def test_small(node, portal):
    """24 MiB of resident memory (20.8 where this was written), 17 of them its own. Some 7 MiB are pages of Python that
    all programs of the machine share: which of them count as resident is the kernel's affair, so that the agent's own
    are bounded, too. TLS takes another 6 MiB.

    With its byte code, as it is packaged: a start that compiles all sources keeps 1 MiB of what that took."""
    writing = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run((sys.executable, "-c", "import agents.run, agents.check, pynvml"), env=writing, check=True)
    process = psutil.Process(node.start(KCOVER_AGENT_INTERVAL="30").pid)
    portal.wait_for(lambda: ("nvlink", UUIDS[1]) in node.checks)
    memory = process.memory_full_info()
    assert memory.rss <= 24 << 20, memory
    assert memory.uss <= 17 << 20, memory


# Python runs it at the start of a process. It counts what is called and what returns, in every thread.
COUNTS_CALLS = """
import mmap, os, sys, threading

count = memoryview(mmap.mmap(os.open(os.environ["COUNT_CALLS"], os.O_RDWR), 8)).cast("Q")

def profile(*_):
    count[0] += 1

threading.setprofile(profile)
sys.setprofile(profile)
"""


def test_next_to_nothing_is_done_while_nothing_happens(node, portal, tmp_path):
    """Some 550 calls a second, most of them to look at a log that is a file; its start alone makes 150,000."""
    (tmp_path / "sitecustomize.py").write_text(COUNTS_CALLS)
    count = tmp_path / "count"
    count.write_bytes(bytes(8))
    node.start(KCOVER_AGENT_INTERVAL="30", PYTHONPATH=str(tmp_path), COUNT_CALLS=str(count))
    portal.wait_for(lambda: ("nvlink", UUIDS[1]) in node.checks)

    def counted():
        return time.monotonic(), int.from_bytes(count.read_bytes(), sys.byteorder)

    def idle():
        """Returns whether the agent is idle for two seconds: one that waits for anything in a loop never is."""
        began, before = counted()
        time.sleep(2)
        ended, after = counted()
        return 0 < after - before < 2_500 * (ended - began)

    waiting.until(idle, "the agent to be idle")
