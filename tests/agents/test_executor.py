"""Execution of commands: checks with their results, and a GPU reset only if no process uses the GPU."""

import contextlib
import dataclasses
import json
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents.checks.check_runner import CheckRunner
from agents.commands import executor
from agents.host import deadline
from agents.probes.gpu import gpu_users, nvml
from agents.probes.gpu.device import Device
from agents.probes.gpu.gpu_users import GpuUsers
from kcover.faults.fault import Check
from tests import waiting

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
RESET = {"gpu_uuid": "GPU-12345678"}


class Fixed:
    failure_is_node_fault = True

    def __init__(self, name, *results):
        self.name, self.results, self.args = name, list(results), None

    def invasive(self, args):
        return False

    def run(self, args):
        self.args = args
        return self.results


def host(*checks, users=(), **more):
    runner = CheckRunner(checks, gpu_users=lambda: users)
    return executor.HostExecutor(
        reboot_command=("true",), checks=runner, gpu_users=lambda: users, clock=lambda: NOW, **more
    )


# ---------------------------------------------------------------------------------------------------------- run_check


def test_a_check_is_run_with_its_arguments_and_answers_in_both_ways():
    good = Check(name="remapped", status="pass", device="GPU-a", value=0.0, unit="rows")
    bad = Check(name="remapped", status="fail", device="GPU-b", value=1.0, unit="rows", message="a row waits")
    check = Fixed("remapped", good, bad)
    outcome = host(check).run_check({"check": "remapped", "r": "2"})
    assert (outcome.status, outcome.message) == ("done", "fail")
    assert check.args["r"] == "2"
    assert [one["device"] for one in outcome.output["checks"]] == ["GPU-b", "GPU-a"]  # what matters first
    assert outcome.output["seconds"] >= 0
    assert outcome.checks == (good, bad)
    assert [(fault.kind, fault.code, fault.gpu_uuid) for fault in outcome.faults] == [("check", "remapped", "GPU-b")]


@pytest.mark.parametrize(
    "args", [{"check": "a,b"}, {"name": "a, b"}, {"checks": ["a", "b"]}, {"checks": ["a", "b", "a"]}]
)
def test_several_checks_at_once_whatever_the_key(args):
    outcome = host(Fixed("a", Check(name="a", status="pass")), Fixed("b", Check(name="b", status="pass"))).run_check(
        args
    )
    assert [one["name"] for one in outcome.output["checks"]] == ["a", "b"]
    assert outcome.message == "ok"


def test_a_known_check_is_run_beside_an_unknown_one():
    outcome = host(Fixed("a", Check(name="a", status="pass"))).run_check({"check": "a,pvc"})
    assert (outcome.status, outcome.message) == ("done", "error")
    assert {one["name"]: one["status"] for one in outcome.output["checks"]} == {"a": "pass", "pvc": "error"}


@pytest.mark.parametrize("args", [{}, {"check": ""}, {"check": "pvc"}, {"checks": 3}])
def test_an_empty_check_command_is_refused(args):
    assert host().run_check(args).status == "refused"


def test_the_output_of_a_command_stays_below_the_limit_of_the_wire():
    many = [Check(name="a", status="fail", device=f"GPU-{n:032}", message="x" * 5000) for n in range(500)]
    outcome = host(Fixed("a", *many)).run_check({"check": "a"})
    assert len(json.dumps(dict(outcome.output))) < 64 << 10
    assert len(outcome.checks) == 500


def test_a_command_that_expired_while_it_waited_is_not_begun():
    hold, began = threading.Event(), threading.Event()

    class Slow(Fixed):
        def run(self, args):
            began.set()
            hold.wait(60)
            return self.results

    slow, quick = Slow("slow"), Fixed("quick", Check(name="quick", status="pass"))
    runner = CheckRunner((slow, quick), gpu_users=list)
    made = executor.HostExecutor(reboot_command=("true",), checks=runner)
    timer = threading.Thread(target=runner.run, args=(["slow"], {}))
    timer.start()
    assert began.wait(60)
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    outcome = made.run_check({"check": "quick"}, expires_at=soon)  # does not wait for the slow one either
    assert (outcome.status, quick.args) == ("expired", None)
    hold.set()
    timer.join()
    assert made.run_check({"check": "quick"}, expires_at=soon).status == "expired"
    later = datetime.now(UTC) + timedelta(minutes=5)
    assert made.run_check({"check": "quick"}, expires_at=later).status == "done"


# ---------------------------------------------------------------------------------------------------------- reset_gpu


def test_a_gpu_in_use_is_not_reset(tools):
    tools.add("nvidia-smi", "echo reset > /tmp/never; exit 0")
    outcome = host(users=["process 4711 on GPU-12345678"]).reset_gpu(RESET)
    assert (outcome.status, outcome.message) == ("refused", "the GPUs are in use: process 4711 on GPU-12345678")


def test_a_gpu_is_not_reset_without_proof_that_it_is_idle(tools):
    tools.add("nvidia-smi", "exit 0")

    def nobody_knows():
        raise nvml.DriverError("version mismatch", code=18)

    made = executor.HostExecutor(reboot_command=("true",), gpu_users=nobody_knows)
    outcome = made.reset_gpu(RESET)
    assert outcome.status == "refused"
    assert "cannot determine who uses the GPUs" in outcome.message


@pytest.mark.parametrize("error", [AttributeError("'list' has no 'get'"), deadline.DeadlineExceeded("did not answer")])
def test_an_error_in_the_search_for_users_refuses_the_reset(tools, error):
    tools.add("nvidia-smi", "exit 0")

    def broken():
        raise error

    assert executor.HostExecutor(reboot_command=("true",), gpu_users=broken).reset_gpu(RESET).status == "refused"


def test_a_gpu_whose_driver_is_not_released_is_not_reset(tools, tmp_path):
    tools.add("nvidia-smi", f"touch {tmp_path}/reset")

    @contextlib.contextmanager
    def hung():
        raise deadline.DeadlineExceeded("the driver's events did not come back within 30 s")
        yield

    outcome = host(release_gpus=hung).reset_gpu(RESET)
    assert outcome.status == "refused"
    assert "did not come back" in outcome.message
    assert not (tmp_path / "reset").exists()


def test_a_gpu_is_not_reset_while_a_driver_call_hangs(tools, tmp_path):
    tools.add("nvidia-smi", f"touch {tmp_path}/reset")
    with nvml.driver_lock.shared(timeout=0):
        outcome = host(driver_timeout=0.05).reset_gpu(RESET)
    assert outcome.status == "refused"
    assert "did not return" in outcome.message
    assert not (tmp_path / "reset").exists()
    assert host(driver_timeout=0.05).reset_gpu(RESET).status == "done"


def test_the_driver_is_not_queried_while_a_gpu_is_reset(tools, tmp_path):
    """What a question in mid-reset hears is that the GPU is lost."""
    began, go_on = tmp_path / "began", tmp_path / "go on"
    tools.add("nvidia-smi", f"touch '{began}'; until [ -e '{go_on}' ]; do sleep 0.02; done")
    reset = threading.Thread(target=host().reset_gpu, args=(RESET,))
    reset.start()
    waiting.until(began.exists, "the reset to begin")
    with pytest.raises(TimeoutError), nvml.driver_lock.shared(timeout=0.05):
        pass
    waited = threading.Event()

    def ask():
        with nvml.driver_lock.shared(timeout=60):
            waited.set()

    asking = threading.Thread(target=ask)
    asking.start()
    go_on.touch()
    assert waited.wait(60)
    asking.join()
    reset.join()


def test_the_agent_releases_the_driver_while_it_resets(tools, tmp_path):
    log = tmp_path / "log"
    tools.add("nvidia-smi", f"echo reset $* >> {log}")

    @contextlib.contextmanager
    def release_gpus():
        log.write_text("off\n")
        yield
        with log.open("a") as file:
            file.write("on\n")

    assert host(release_gpus=release_gpus).reset_gpu(RESET).status == "done"
    assert log.read_text().splitlines() == ["off", "reset --gpu-reset -i GPU-12345678", "on"]


# ---------------------------------------------------------------------------------------------------------- gpu users


@pytest.fixture
def node(tmp_path):
    """Folders as the kubelet and the kernel keep them."""
    (tmp_path / "kubelet/device-plugins").mkdir(parents=True)
    (tmp_path / "kubelet/pods/uid-1").mkdir(parents=True)
    (tmp_path / "proc").mkdir()

    class Node:
        devices: tuple = ()
        users = GpuUsers(kubelet=tmp_path / "kubelet", proc=tmp_path / "proc", query=lambda: Node.devices)

        def pods(self, *entries):
            given = [{"PodUID": uid, "ResourceName": name, "DeviceIDs": {"0": ["GPU-a"]}} for uid, name in entries]
            content = {"Data": {"PodDeviceEntries": given}, "Checksum": 1}
            (tmp_path / "kubelet" / gpu_users.KUBELET_CHECKPOINT).write_text(json.dumps(content))

        def process(self, pid, name, *files, cmdline=("x",)):
            folder = tmp_path / "proc" / str(pid)
            (folder / "fd").mkdir(parents=True)
            (folder / "comm").write_text(f"{name}\n")
            (folder / "cmdline").write_text("".join(f"{word}\0" for word in cmdline))
            for number, file in enumerate(files):
                os.symlink(file, folder / "fd" / str(number))

    return Node()


def test_processes_without_gpu_work_are_not_users_of_the_gpus(node):
    node.pods(("uid-1", "cpu-plugin.io/core"))
    node.process(1, "init", "/dev/null", "/dev/nvidiactl")
    node.process(2, "nvidia-persiste", "/dev/nvidia0")
    node.process(os.getpid(), "python", "/dev/nvidia0")
    assert node.users() == []


def test_checks_run_beside_monitoring_processes_and_a_reset_does_not(node):
    """DCGM's diagnosis is done by such a process, and monitors hold the devices on every usual GPU node."""
    node.process(1, "nv-hostengine", "/dev/nvidia0")
    node.process(2, "nvidia-device-plugin"[:15], "/dev/nvidia0")
    node.process(3, "dcgm-exporter", "/dev/nvidia0")
    node.process(4, "python3", "/dev/nvidia0", cmdline=("/usr/bin/python3", "/usr/lib/kcover/kcover-agent.pyz"))
    beside = dataclasses.replace(node.users, ignore_monitoring=True)
    assert beside() == []
    assert len(node.users()) == 4
    node.process(
        5, "python3", "/dev/nvidia1", cmdline=("python3", "/home/me/train.py", "/usr/lib/kcover/kcover-agent.pyz")
    )
    assert beside() == ["process 5 (python3) has /dev/nvidia1 open"]


def test_a_driver_call_that_never_returns_is_late(node):
    hung = threading.Event()
    asked = dataclasses.replace(node.users, query=lambda: hung.wait(60), timeout=0.05)
    with pytest.raises(deadline.DeadlineExceeded):
        asked()
    check = Fixed("gpumem")
    check.invasive = lambda args: True
    (found,) = CheckRunner([check], gpu_users=asked).run(["gpumem"], {})
    assert (found.status, check.args) == ("error", None)
    hung.set()


def test_users_of_gpus_are_found_by_driver_kubelet_and_processes(node):
    type(node).devices = (Device(index=0, uuid="GPU-a", processes=(4711,)), Device(index=1, uuid="GPU-b"))
    assert node.users() == ["process 4711 on GPU-a"]
    type(node).devices = ()
    node.pods(("uid-1", "nvidia.com/gpu"), ("uid-gone", "nvidia.com/gpu"), ("uid-1", "nvidia.com/mig-1g.10gb"))
    assert node.users() == ["pod uid-1 was given nvidia.com/gpu", "pod uid-1 was given nvidia.com/mig-1g.10gb"]
    node.pods()
    node.process(77, "python3", "/dev/nvidia3", "/dev/nvidia1", "/dev/nvidiactl", "/tmp/x")
    assert node.users() == ["process 77 (python3) has /dev/nvidia1, /dev/nvidia3 open"]


def test_a_driver_error_is_no_proof_that_a_gpu_is_idle(node):
    def broken():
        raise nvml.DriverError("version mismatch", code=18)

    with pytest.raises(nvml.DriverError):
        GpuUsers(kubelet=node.users.kubelet, proc=node.users.proc, query=broken)()

    def hanging():
        return (Device(index=0, uuid="GPU-a", lost="EccMode has not returned for 5 s", hung_seconds=5.0),)

    with pytest.raises(deadline.DeadlineExceeded, match="GPU-a: EccMode"):
        GpuUsers(kubelet=node.users.kubelet, proc=node.users.proc, query=hanging)()

    def absent():
        raise nvml.DriverError("not loaded", code=nvml.DRIVER_NOT_LOADED)

    assert GpuUsers(kubelet=node.users.kubelet, proc=node.users.proc, query=absent)() == []
