"""Checks: limits, broken checks, missing tools, GPUs in use."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import psutil
import pytest

from agents.checks import bandwidth, dcgm, gpu_state, health_check, host_lock, iperf, ping
from agents.checks.check_runner import CheckRunner
from agents.checks.host_lock import HostLock
from agents.host import interfaces, programs
from agents.probes.gpu import nvml
from agents.probes.gpu.device import Device, RowRemapping
from agents.uplink.protocol import UplinkError
from kcover.faults.fault import Check
from tests import waiting
from tests.agents.shim import UUIDS

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
GPU = Device(index=0, uuid="GPU-aaaaaaaa", model="NVIDIA H100 80GB HBM3", processes=(), clock_reasons=0x4)
ROWS = RowRemapping(corrected=1, uncorrected=2, pending=False, failed=False)


def results(found):
    return [(check.device, check.status, check.value) for check in found]


# ------------------------------------------------------------------------------------------------------------- runner


class Fixed:
    name = "fixed"
    failure_is_node_fault = True

    def __init__(self, outcome=None, *, invasive=False, failure_is_node_fault=True):
        self.outcome, self._invasive, self.failure_is_node_fault = outcome, invasive, failure_is_node_fault
        self.runs = 0
        self.under_way = 0
        self.most = 0

    def invasive(self, args):
        return self._invasive

    def run(self, args):
        self.runs += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        time.sleep(0.02)
        self.under_way -= 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome or [Check(name="fixed", status="pass")]


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        (None, "pass", ""),
        (RuntimeError("segfault"), "error", "RuntimeError: segfault"),
        (programs.ProgramTimeout("dcgmi did not end within 300 s"), "error", "did not end"),
        (programs.ToolMissing("dcgmi is not installed on this node: install DCGM"), "skipped", "install DCGM"),
        (health_check.CheckSkipped("MIG is on"), "skipped", "MIG is on"),
        (ValueError("r='x'"), "error", "r='x'"),
        (nvml.DriverError("version mismatch", code=18), "error", "version mismatch"),
    ],
)
def test_inv_42_a_check_that_breaks_is_an_error_and_no_bad_node(outcome, status, words):
    runner = CheckRunner([Fixed(outcome)], gpu_users=list)
    (found,) = runner.run(["fixed"], {})
    assert found.status == status
    assert words in found.message
    assert runner.faults([found], now=NOW) == []


def test_a_failure_is_a_fault_only_where_it_speaks_of_this_node():
    failed = [Check(name="fixed", status="fail", device="GPU-aaaaaaaa", message="slow")]
    (fault,) = CheckRunner([Fixed(failed)], gpu_users=list).faults(failed, now=NOW)
    assert (fault.kind, fault.code, fault.gpu_uuid, fault.source) == ("check", "fixed", "GPU-aaaaaaaa", "check")
    assert CheckRunner([Fixed(failed, failure_is_node_fault=False)], gpu_users=list).faults(failed, now=NOW) == []


def test_an_unknown_check_is_refused_with_its_name():
    (found,) = CheckRunner([Fixed()], gpu_users=list).run(["pvc"], {})
    assert (found.status, found.message) == ("error", "check not supported: pvc; this agent has fixed")


def test_a_heavy_check_is_skipped_while_the_gpus_are_in_use():
    check = Fixed(invasive=True)
    (found,) = CheckRunner([check], gpu_users=lambda: ["process 4711 on GPU-aaaaaaaa"]).run(["fixed"], {})
    assert (found.status, check.runs) == ("skipped", 0)
    assert "process 4711" in found.message

    def unknown():
        raise nvml.DriverError("version mismatch", code=18)

    (found,) = CheckRunner([check], gpu_users=unknown).run(["fixed"], {})
    assert (found.status, check.runs) == ("error", 0)
    (found,) = CheckRunner([check], gpu_users=list).run(["fixed"], {})
    assert (found.status, check.runs) == ("pass", 1)


def test_two_callers_never_overlap():
    check = Fixed()
    runner = CheckRunner([check], gpu_users=list)
    threads = [threading.Thread(target=runner.run, args=(["fixed"], {})) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (check.runs, check.most) == (6, 1)


def test_two_processes_never_overlap(tmp_path):
    """The agent's checks and ``python -m agents check``: pciebw beside itself would measure half."""
    lock, began, go_on = HostLock(path=tmp_path / "checks.lock"), threading.Event(), threading.Event()

    class Slow(Fixed):
        def run(self, args):
            began.set()
            go_on.wait(60)
            return super().run(args)

    slow, quick = Slow(), Fixed()
    first = threading.Thread(target=CheckRunner([slow], gpu_users=list, lock=lock).run, args=(["fixed"], {}))
    first.start()
    assert began.wait(60)
    (found,) = CheckRunner([quick], gpu_users=list, lock=lock, lock_timeout=0.05).run(["fixed"], {})
    assert (found.status, found.message, quick.runs) == ("skipped", "another process runs checks on this node", 0)
    go_on.set()
    (found,) = CheckRunner([quick], gpu_users=list, lock=lock, lock_timeout=10).run(["fixed"], {})
    assert (found.status, quick.runs) == ("pass", 1)
    first.join()


def test_a_lock_that_others_agreed_on_must_be_there(tmp_path):
    """A job's container without the folder would check beside the agent, and nobody would see it."""
    elsewhere, check = tmp_path / "no folder" / "checks.lock", Fixed()
    (found,) = CheckRunner([check], gpu_users=list, lock=HostLock(path=elsewhere)).run(["fixed"], {})
    assert (found.status, check.runs) == ("pass", 1)  # no spool: no agent
    (found,) = CheckRunner([check], gpu_users=list, lock=HostLock(path=elsewhere, shared=True)).run(["fixed"], {})
    assert (found.status, check.runs) == ("error", 1)
    assert f"{elsewhere}: No such file or directory" in found.message


@pytest.mark.parametrize("kind", ["link", "pipe", "loop"])
def test_a_pipe_or_link_in_place_of_the_lock_is_neither_followed_nor_waited_for(tmp_path, kind):
    path, target = tmp_path / "checks.lock", tmp_path / "a file of the node"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else path)
    lock, check = HostLock(path=path, shared=True), Fixed()
    lock.create()
    (found,) = CheckRunner([check], gpu_users=list, lock=lock).run(["fixed"], {})
    assert (found.status, check.runs, target.exists()) == ("error", 0, False)
    assert f"{path}: " in found.message


def test_a_process_that_cannot_create_the_lock_file_waits_for_the_agent(tmp_path, monkeypatch):
    lock, tried = HostLock(path=tmp_path / "checks.lock", shared=True), []
    open_it = os.open

    def read_only(path, flags, mode=0o777, **more):
        if path == lock.path and not path.exists():
            tried.append(path)
            if len(tried) == 2:
                os.close(open_it(path, os.O_CREAT))  # the agent has started
            raise OSError(errno.EROFS, "Read-only file system")
        return open_it(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(host_lock, "POLL_SECONDS", 0.01)
    lock.create()
    with lock.acquire(timeout=60) as mine:
        assert (mine, len(tried)) == (True, 2)
    lock.path.unlink()
    with pytest.raises(host_lock.LockUnavailable, match="Read-only file system"), lock.acquire(timeout=0.02):
        pass


# --------------------------------------------------------------------------------------------------- remapped, gpupower


def test_remapped():
    gpus = (
        Device(index=0, uuid="GPU-a", rows=ROWS),
        Device(index=1, uuid="GPU-b", rows=RowRemapping(corrected=0, uncorrected=1, pending=True, failed=False)),
        Device(index=2, uuid="GPU-c", rows=RowRemapping(corrected=0, uncorrected=9, pending=False, failed=True)),
        Device(index=3, uuid="GPU-d"),
        Device(index=4, lost="GPU is lost"),
    )
    found = gpu_state.Remapped(lambda: gpus).run({})
    assert results(found) == [
        ("GPU-a", "pass", 3),
        ("GPU-b", "fail", 1),
        ("GPU-c", "fail", 9),
        ("GPU-d", "skipped", None),
        ("", "fail", None),
    ]
    assert (found[-1].name, found[-1].message) == ("gpu", "GPU 4 does not answer: GPU is lost")


@pytest.mark.parametrize("check", [gpu_state.Remapped, gpu_state.GpuPower])
def test_a_check_has_no_result_for_a_gpu_that_hangs(check):
    """The probe says since when, and when that is a fault."""
    hangs = Device(index=0, uuid="GPU-a", lost="EccMode has not returned for 300 s", hung_seconds=300.0)
    fine = Device(index=1, uuid="GPU-b", rows=ROWS, clock_reasons=0)
    assert [(one.device, one.status) for one in check(lambda: (hangs, fine)).run({})] == [
        ("GPU-a", "error"),
        ("GPU-b", "pass"),
    ]


def test_gpupower():
    gpus = tuple(Device(index=n, uuid=f"GPU-{n}", clock_reasons=bits) for n, bits in enumerate((0x4, 0x8, 0x40, None)))
    found = gpu_state.GpuPower(lambda: gpus).run({})
    assert results(found) == [
        ("GPU-0", "pass", 0),
        ("GPU-1", "fail", 1),
        ("GPU-2", "pass", 0),  # Autopilot looks at bit 3 alone, which is set with the thermal ones by the driver
        ("GPU-3", "skipped", None),
    ]


def test_without_a_driver_there_is_nothing_to_check():
    def absent():
        raise nvml.DriverError("Library Not Found", code=nvml.LIBRARY_NOT_FOUND)

    with pytest.raises(health_check.CheckSkipped, match="install the driver"):
        gpu_state.Remapped(absent).run({})

    def in_reset():
        raise nvml.ResetInProgress("a GPU of this node is being reset", code=nvml.IN_USE)

    with pytest.raises(health_check.CheckSkipped, match="being reset"):
        gpu_state.Remapped(in_reset).run({})
    with pytest.raises(health_check.CheckSkipped, match="lists no GPU"):
        gpu_state.GpuPower(lambda: ()).run({})


# ------------------------------------------------------------------------------------------------------ pciebw, gpumem


class Child:
    """What the measuring program prints for each GPU it is given."""

    def __init__(self, status=0, stderr="", **measured):
        self.status, self.stderr, self.measured = status, stderr, measured
        self.asked = []

    def __call__(self, name, uuids, timeout):
        self.asked = list(uuids)
        lines = [json.dumps({"uuid": uuid, **self.measured}) for uuid in self.asked]
        return programs.ProgramResult(status=self.status, stdout="\n".join(lines), stderr=self.stderr)


@pytest.mark.parametrize(("value", "status"), [(4.0, "pass"), (3.99, "fail"), (24.1, "pass")])
def test_pciebw_fails_under_four_gb_per_second_strictly(value, status):
    (found,) = bandwidth.PcieBandwidth(lambda: (GPU,), Child(gb_per_s=value)).run({})
    assert (found.status, found.value, found.unit, found.device) == (status, value, "GB/s", "GPU-aaaaaaaa")


def test_the_limit_of_pciebw_is_a_setting():
    (found,) = bandwidth.PcieBandwidth(lambda: (GPU,), Child(gb_per_s=24.0), min_gb_per_s=25.0).run({})
    assert found.status == "fail"


def test_pciebw_leaves_gpus_in_use_alone():
    busy = Device(index=1, uuid="GPU-b", processes=(4711,))
    mig = Device(index=2, uuid="GPU-c", mig=True)
    child = Child(gb_per_s=20.0)
    found = bandwidth.PcieBandwidth(lambda: (GPU, busy, mig), child).run({"threshold": "30"})
    assert [check.status for check in found] == ["fail", "skipped", "skipped"]
    assert child.asked == ["GPU-aaaaaaaa"]


@pytest.mark.parametrize(
    ("model", "daxpy", "dgemm", "right", "args", "status"),
    [
        ("NVIDIA H100 80GB HBM3", 1300, 16, True, {}, "pass"),
        ("NVIDIA H100 80GB HBM3", 1299, 50, True, {}, "fail"),
        ("NVIDIA A100-SXM4-80GB", 1700, 15.9, True, {}, "fail"),
        ("NVIDIA A100-SXM4-80GB", 1700, 19, False, {}, "fail"),
        ("NVIDIA L40S", 700, 1.4, True, {}, "pass"),  # nobody published a limit for it
        ("NVIDIA L40S", 700, 1.4, False, {}, "fail"),
        ("NVIDIA L40S", 700, 1.4, True, {"daxpy": 800, "dgemm": 1}, "fail"),
        ("NVIDIA H20", 3000, 1, True, {}, "pass"),
    ],
)
def test_gpumem_has_the_limits_of_the_a100_for_boards_of_its_class(model, daxpy, dgemm, right, args, status):
    gpu = Device(index=0, uuid="GPU-a", model=model)
    child = Child(gb_per_s=daxpy, tflops=dgemm, right=right)
    (found,) = bandwidth.GpuMemory(lambda: (gpu,), child).run(args)
    assert (found.status, found.value) == (status, daxpy)
    assert f"DGEMM {dgemm:g} TFLOPS" in found.message


def test_a_measuring_program_that_breaks():
    check = bandwidth.PcieBandwidth(lambda: (GPU,), Child(status=-11, stderr="Segmentation fault"))
    with pytest.raises(RuntimeError, match="exited with status -11: Segmentation fault"):
        check.run({})
    check = bandwidth.PcieBandwidth(lambda: (GPU,), Child(status=3, stderr="libcuda.so.1: install the driver"))
    with pytest.raises(health_check.CheckSkipped, match="install the driver"):
        check.run({})
    (found,) = bandwidth.PcieBandwidth(lambda: (GPU,), Child(error="CUDA_ERROR_OUT_OF_MEMORY")).run({})
    assert found.status == "error"


@pytest.fixture
def bench(driver):
    """The measuring program itself, over the libraries of the shim."""

    def run(name, **environ):
        ended = subprocess.run(
            (sys.executable, "-m", "agents.checks.gpu_bench", name),
            env=os.environ | driver.environ | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr

    return run


def test_the_bench_measures_each_gpu(bench):
    status, lines, _ = bench("pciebw", CUDA_SHIM_MS="20", CUDA_SHIM_MS_1="200")
    assert status == 0
    assert [line["uuid"] for line in lines] == list(UUIDS)
    assert [round(line["gb_per_s"], 2) for line in lines] == [33.55, 3.36]  # 20 x 32 MiB
    _, lines, _ = bench("pciebw", CUDA_VISIBLE_DEVICES=UUIDS[1])
    assert [line["uuid"] for line in lines] == [UUIDS[1]]


def test_the_bench_computes_and_looks_at_the_result(bench):
    _, (first, second), _ = bench("gpumem", CUDA_SHIM_MS="40", CUDA_SHIM_WRONG="1")
    assert (round(first["gb_per_s"]), round(first["tflops"]), first["right"]) == (1611, 137, True)
    assert second["right"] is False


def test_the_bench_reports_its_errors(bench):
    _, (first, second), _ = bench("gpumem", CUDA_SHIM_FULL="0")
    assert first["error"] == "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert second["right"]
    status, lines, err = bench("pciebw", CUDA_SHIM_BROKEN="1")
    assert (status, lines, err) == (1, [], "cuInit: CUDA_ERROR_UNKNOWN (999)\n")
    status, lines, err = bench("pciebw", LD_LIBRARY_PATH="")
    assert (status, lines) == (3, [])
    assert "install the NVIDIA driver" in err


# --------------------------------------------------------------------------------------------------------------- dcgm


def diagnosis(*results, root="DCGM Diagnostic", test="pcie"):
    tests = [{"name": test, "results": list(results)}]
    return json.dumps({root: {"test_categories": [{"category": "Integration", "tests": tests}]}})


PASSED = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
FAILED = {
    "entity_group": "GPU",
    "entity_id": 1,
    "status": "Fail",
    "warnings": [{"error_severity": 2, "warning": "PCIe replays"}],
}
SETTING = {
    "entity_group": "GPU",
    "entity_id": 1,
    "status": "Fail",
    "warnings": [{"error_severity": 5, "warning": "Persistence mode is off"}],
}
OLD = {"gpu_id": "3", "status": "Fail", "warnings": ["Double-bit error"]}


def test_dcgm_passes(tools):
    tools.say("dcgmi", "some words before\n" + diagnosis(PASSED))
    whole, single = dcgm.Dcgm().run({})
    assert (whole.status, whole.value, whole.message) == ("pass", 0, "level 1")
    assert (single.device, single.status, single.message) == ("gpu0 pcie", "pass", "")


def test_dcgm_names_a_passed_test_as_it_named_the_failed_one(tools):
    """Or a failure would stay for ever: a repaired GPU, a test that DCGM names twice, one that it skips."""
    places = {"gpu0 pcie", "gpu1 pcie"}
    for now, expected in ((FAILED, "fail"), (PASSED | {"entity_id": 1}, "pass")):
        tools.say("dcgmi", diagnosis(PASSED, now, PASSED | {"entity_id": 1}))
        reported = {one.device: one.status for one in dcgm.Dcgm().run({})[1:]}
        assert reported == dict.fromkeys(places, "pass") | {"gpu1 pcie": expected}
    tools.say("dcgmi", diagnosis(PASSED, {"entity_group": "GPU", "entity_id": 1, "status": "Skip"}))
    assert {one.device for one in dcgm.Dcgm().run({})[1:]} == {"gpu0 pcie"}


@pytest.mark.parametrize(
    ("text", "device", "status", "words"),
    [
        (diagnosis(PASSED, FAILED), "gpu1 pcie", "fail", "PCIe replays"),
        (diagnosis(PASSED, SETTING), "gpu1 pcie", "warn", "Persistence mode is off"),
        (diagnosis(OLD, root="DCGM GPU Diagnostic"), "gpu3 pcie", "fail", "Double-bit error"),
        (diagnosis({"gpu_ids": "0,1", "status": "Warn", "info": "slow"}), "gpu0 pcie", "warn", "slow"),
        (diagnosis({"status": "Fail", "warnings": "no driver"}, test="software"), "node software", "fail", "no driver"),
    ],
)
def test_dcgm_of_every_version_names_test_and_gpu(tools, text, device, status, words):
    tools.say("dcgmi", text, status=226)  # it exits so when a test failed
    whole, *singles = dcgm.Dcgm().run({"r": "2"})
    single = next(one for one in singles if one.device == device)
    assert (whole.device, whole.status, whole.value) == ("", status, float(status == "fail"))
    assert (single.device, single.status, single.message) == (device, status, words)
    assert whole.message.startswith("level 2: ")


def test_dcgm_that_tested_nothing_is_skipped_and_one_that_broke_is_an_error(tools):
    tools.say("dcgmi", diagnosis({"gpu_id": "0", "status": "Skip", "info": ["not allowed on this SKU"]}))
    with pytest.raises(health_check.CheckSkipped, match="not allowed on this SKU"):
        dcgm.Dcgm().run({})
    tools.say("dcgmi", "Error: unable to connect to the host engine", status=1)
    with pytest.raises(RuntimeError, match="host engine"):
        dcgm.Dcgm().run({})
    tools.say("dcgmi", '{"DCGM Diagnostic": broken')
    with pytest.raises(RuntimeError, match="no report"):
        dcgm.Dcgm().run({})


def test_dcgm_asks_for_json_at_the_level_wanted(tools, tmp_path):
    tools.add("dcgmi", f"echo \"$*\" > {tmp_path}/asked\necho '{diagnosis(PASSED)}'")
    dcgm.Dcgm().run({"r": 3})
    assert (tmp_path / "asked").read_text() == "diag -r 3 -j\n"
    assert [dcgm.Dcgm().invasive({"r": level}) for level in (1, 2, 3, 4)] == [False, True, True, True]
    for level in (0, 5, "x", True):
        with pytest.raises(ValueError, match="must be a whole number from 1 to 4"):
            dcgm.Dcgm().run({"r": level})


def test_dcgm_is_not_there(tools):
    with pytest.raises(programs.ToolMissing, match="install DCGM"):
        dcgm.Dcgm().run({})


# --------------------------------------------------------------------------------------------------------- ping, iperf


def test_ping(tools):
    tools.add(
        "ping",
        """for host; do :; done
case $host in
  near) echo '10 packets transmitted, 10 received, 0% packet loss, time 1ms';;
  poor) echo '10 packets transmitted, 9 received, 10% packet loss, time 1ms'; exit 0;;
  gone) echo '10 packets transmitted, 0 received, +10 errors, 100% packet loss, time 1ms'; exit 1;;
  *) echo 'ping: nowhere: Name or service not known' >&2; exit 2;;
esac""",
    )
    found = ping.Ping().run({"hosts": "near,poor,gone,nowhere"})
    assert results(found) == [
        ("near", "pass", 0),
        ("poor", "warn", 10),
        ("gone", "fail", 100),
        ("nowhere", "error", None),
    ]
    assert found[3].message == "ping: nowhere: Name or service not known"
    assert results(ping.Ping(("near",)).run({})) == [("near", "pass", 0)]


def test_ping_asks_the_portal_for_peers(tools):
    tools.add("ping", """echo '10 packets transmitted, 10 received, 0% packet loss'""")
    assert results(ping.Ping(fetch_peers=lambda: ("10.0.0.2",)).run({})) == [("10.0.0.2", "pass", 0)]
    assert results(ping.Ping(("near",), fetch_peers=lambda: ("10.0.0.2",)).run({})) == [("near", "pass", 0)]

    def unreachable():
        raise UplinkError("503")

    for fetch in (tuple, unreachable):
        with pytest.raises(health_check.CheckSkipped, match="no hosts to ping"):
            ping.Ping(fetch_peers=fetch).run({})
    with pytest.raises(ValueError, match="hosts"):
        ping.Ping(fetch_peers=lambda: ("-f",)).run({})


def test_ping_without_hosts_is_skipped_and_invalid_hosts_are_refused(tools):
    with pytest.raises(health_check.CheckSkipped, match="no hosts to ping"):
        ping.Ping().run({})
    for hosts in ("-c 1", "a;b", "$(reboot)", "a,,b", ["x" * 300]):
        with pytest.raises(ValueError, match="not a host name"):
            ping.Ping().run({"hosts": hosts})


IPERF = json.dumps({"end": {"sum_received": {"bits_per_second": 98.5e9}}})


def test_iperf_serves_and_sends_at_once(tools, tmp_path):
    tools.add("iperf3", f"echo \"$*\" >> {tmp_path}/asked\nsleep 0.1\necho '{IPERF}'")
    found = iperf.Iperf().run({"hosts": "10.0.0.2", "serve": 2, "clients": 4, "seconds": 1, "port": 5300})
    assert results(found) == [("10.0.0.2", "pass", 98.5), ("server", "pass", 197)]
    asked = sorted((tmp_path / "asked").read_text().splitlines())
    assert asked == ["-c 10.0.0.2 -p 5300 -P 4 -t 1 -J", "-s -1 -J -p 5300", "-s -1 -J -p 5301"]


def test_iperf_sends_by_a_process_for_each_port_at_the_same_time(tools, tmp_path):
    tools.add("iperf3", f"echo \"$*\" >> {tmp_path}/asked\necho '{IPERF}'")
    found = iperf.Iperf().run({"hosts": ["10.0.0.2"], "ports": 3, "clients": 1, "port": 5200})
    assert results(found) == [("10.0.0.2", "pass", 295.5)]
    asked = sorted((tmp_path / "asked").read_text().splitlines())
    assert asked == [f"-c 10.0.0.2 -p {port} -P 1 -t 5 -J" for port in (5200, 5201, 5202)]


def test_iperf_binds_to_the_address_of_its_interface(tools, tmp_path):
    tools.add("iperf3", f"echo \"$*\" >> {tmp_path}/asked\nsleep 0.1\necho '{IPERF}'")
    iperf.Iperf().run({"hosts": "10.1.0.2", "serve": 1, "bind": "10.1.0.1", "seconds": 1})
    asked = sorted((tmp_path / "asked").read_text().splitlines())
    assert asked == ["-c 10.1.0.2 -p 5200 -P 8 -t 1 -J -B 10.1.0.1", "-s -1 -J -p 5200 -B 10.1.0.1"]


def test_iperf_reports_the_addresses_of_the_data_plane(tmp_path):
    known = {
        "lo": "127.0.0.1",
        "eth0": "10.0.0.1",
        "ib0": "10.1.0.1",
        "net1-0": "10.2.0.1",
        "ib1": "",
        "cni0": "10.9.0.1",
    }
    for hardware in ("eth0", "ib0", "ib1"):
        (tmp_path / hardware / "device").mkdir(parents=True)

    def addresses(without):
        return interfaces.data_addresses(
            without=without, devices=tmp_path, address_of=known.__getitem__, names=lambda: known
        )

    found = iperf.Iperf(addresses).run({"addresses_without": ["10.0.0.1"]})
    assert [(one.device, one.message, one.unit) for one in found] == [
        ("ib0", "10.1.0.1", "address"),
        ("net1-0", "10.2.0.1", "address"),
    ]
    with pytest.raises(health_check.CheckSkipped, match="no data interface"):
        iperf.Iperf(lambda without: {}).run({"addresses_without": "10.0.0.1"})


def test_the_interfaces_of_this_machine():
    assert interfaces._address("lo") == "127.0.0.1"
    assert interfaces._address("none-such") == ""
    assert "lo" not in interfaces.data_addresses(without=())


def test_iperf_waits_for_a_partner_that_is_not_there_yet(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(iperf, "RETRY_SECONDS", 0.0)
    refusal = json.dumps({"error": "unable to connect to server: Connection refused"})
    tools.add(
        "iperf3",
        f"echo x >> {tmp_path}/asked; [ $(wc -l < {tmp_path}/asked) -ge 3 ] && echo '{IPERF}' || echo '{refusal}'",
    )
    (found,) = iperf.Iperf().run({"hosts": ["10.0.0.2"], "wait": 60})
    assert (found.status, found.value) == ("pass", 98.5)
    assert (tmp_path / "asked").read_text() == "x\n" * 3


def test_a_failed_iperf_process_gives_no_partial_value(tools):
    busy = json.dumps({"error": "the server is busy running a test. try again later"})
    tools.add("iperf3", f"case \"$*\" in *5201*) echo '{busy}';; *) echo '{IPERF}';; esac")
    (found,) = iperf.Iperf().run({"hosts": ["10.0.0.2"], "ports": 2, "wait": 60})
    assert (found.status, found.value, found.message) == ("error", None, json.loads(busy)["error"])


def test_iperf_requires_idle_gpus_only_with_the_idle_option(tools):
    asked = CheckRunner((iperf.Iperf(),), gpu_users=lambda: ["process 7 on GPU-a"])
    tools.say("iperf3", IPERF)
    (found,) = asked.run(["iperf"], {"hosts": ["10.0.0.2"], "idle": True})
    assert (found.device, found.status, "process 7" in found.message) == ("", "skipped", True)
    (found,) = asked.run(["iperf"], {"hosts": ["10.0.0.2"]})
    assert found.status == "pass"


def test_iperf_reports_its_error(tools):
    tools.say("iperf3", json.dumps({"error": "unable to connect to server: Connection refused"}), status=1)
    (found,) = iperf.Iperf().run({"hosts": ["10.0.0.2"]})
    assert (found.status, found.message) == ("error", "unable to connect to server: Connection refused")
    with pytest.raises(health_check.CheckSkipped, match="nothing to do"):
        iperf.Iperf().run({})
    for wrong in ({"serve": 65}, {"serve": 1, "ports": 0}, {"serve": 1, "wait": "x"}):
        with pytest.raises(ValueError, match="must be a whole number"):
            iperf.Iperf().run(wrong)


# ------------------------------------------------------------------------------------------------------------ programs


def test_a_program_that_hangs_is_killed_with_its_children(tools, tmp_path):
    tools.add("slow", f"sleep 600 & echo $! > {tmp_path}/child\nwait")
    started = time.monotonic()
    with pytest.raises(programs.ProgramTimeout, match="slow did not end within"):
        programs.run((programs.find("slow", install="it"),), timeout=0.5)
    assert time.monotonic() - started < waiting.HANG_SECONDS
    child = int((tmp_path / "child").read_text())
    waiting.until(lambda: _gone(child), "the end of what it started")


def _gone(pid):
    """Returns whether the process has ended. An orphan may stay as a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
