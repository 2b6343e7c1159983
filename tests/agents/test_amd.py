"""AMD's GPUs by a fake ``amd-smi`` that answers as recorded ones do, in both of its shapes."""

import json
import time

import pytest

from agents import config, setup
from agents.host import store
from agents.probes.gpu import amd
from agents.probes.gpu.expected_count import ExpectedGpuCount
from kcover.faults.fault import Gpu
from tests.agents.probe_run import START, ProbeRun
from tests.waiting import HANG_SECONDS

FIRST, SECOND = "00ff74a1-0000-1000-8000-000000000000", "01ff74a1-0000-1000-8000-000000000000"
LIST = [
    {"gpu": 0, "bdf": "0000:0C:00.0", "uuid": FIRST, "kfd_id": 42905, "node_id": 1, "partition_id": 0},
    {"gpu": 1, "bdf": "0000:22:00.0", "uuid": SECOND, "kfd_id": 42906, "node_id": 2, "partition_id": 0},
]


def static(gpu, *, slowdown=100):
    return {
        "gpu": gpu,
        "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002", "asic_serial": f"0x{gpu}"},
        "limit": {
            "max_power": {"value": 750, "unit": "W"},
            "slowdown_edge_temperature": "N/A",
            "slowdown_hotspot_temperature": {"value": slowdown, "unit": "C"},
        },
        "driver": {"name": "amdgpu", "version": "6.12.12"},
        "xgmi_plpd": "N/A",
    }


def metric(gpu, *, hot=56, lost=0):
    return {
        "gpu": gpu,
        "temperature": {"edge": "N/A", "hotspot": {"value": hot, "unit": "C"}, "mem": {"value": 40, "unit": "C"}},
        "ecc": {
            "total_correctable_count": 7,
            "total_uncorrectable_count": lost,
            "total_deferred_count": 0,
            "cache_correctable_count": "N/A",
        },
        "fan": "N/A",
    }


STATIC, METRIC = (static(0), static(1)), (metric(0), metric(1))


class Node:
    """A node whose tool says what the test has set."""

    def __init__(self, tools, *, expected=None, disk=None):
        self.tools = tools
        self.probe = amd.AmdProbe(expected=ExpectedGpuCount(disk or store.MemoryStore(), configured=expected))
        self.probe_run = ProbeRun(self.probe)
        self.set()

    def set(self, *, listed=LIST, statics=STATIC, metrics=METRIC, wrapped=False):
        folder = self.tools.folder.parent
        for verb, answer in (("list", listed), ("static", statics), ("metric", metrics)):
            content = {"gpu_data": list(answer)} if wrapped else list(answer)
            (folder / f"{verb}.json").write_text(json.dumps(content))
        self.tools.add("amd-smi", f'echo "$1" >> {folder}/asked\n[ "$2" = --json ] && cat {folder}/$1.json')

    @property
    def asked(self):
        return (self.tools.folder.parent / "asked").read_text().split()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_healthy_node_in_both_shapes(tools, wrapped):
    node = Node(tools)
    node.set(wrapped=wrapped)
    found = [one.check for one in node.probe_run.observe()]
    assert [(one.name, one.device, one.status, one.value) for one in found] == [
        ("amd_gpus", "", "pass", 2),
        ("amd_temperature", FIRST, "pass", 56),
        ("amd_ecc", FIRST, "pass", 0),
        ("amd_temperature", SECOND, "pass", 56),
        ("amd_ecc", SECOND, "pass", 0),
    ]
    node.probe_run.observe()
    assert node.asked == ["list", "static", "metric", "list", "metric"]  # limits do not change


def test_uncorrected_ecc_errors_are_a_fault_of_the_slot(tools):
    node = Node(tools)
    node.set(metrics=[metric(0, lost=2), metric(1)])
    (bad,) = [one for one in node.probe_run.observe() if one.check.status != "pass"]
    assert (bad.check.name, bad.check.device, bad.check.status, bad.is_fault) == ("amd_ecc", FIRST, "fail", True)
    assert (bad.pci, bad.check.message) == ("0000:0c:00", "2 uncorrectable and 7 correctable ECC errors")


@pytest.mark.parametrize(("hot", "bad"), [(95, []), (96, [("amd_temperature", SECOND, "warn", False)])])
def test_near_its_own_slowdown_a_gpu_is_hot(tools, hot, bad):
    node = Node(tools)
    node.set(metrics=[metric(0), metric(1, hot=hot)])
    assert node.probe_run.bad() == bad


def test_a_gpu_that_is_gone_is_missed(tools):
    node = Node(tools)
    assert node.probe_run.bad() == []
    node.set(listed=LIST[:1])
    assert node.probe_run.bad() == [("amd_gpus", "", "fail", True)]
    assert Node(tools, expected=3).probe_run.bad() == [("amd_gpus", "", "fail", True)]


def test_a_gpu_that_is_gone_is_missed_after_a_restart_too(tools):
    disk = store.MemoryStore()
    assert Node(tools, disk=disk).probe_run.bad() == []
    node = Node(tools, disk=disk)
    node.set(listed=LIST[:1])
    (count,) = [one.check for one in node.probe_run.observe() if one.check.name == "amd_gpus"]
    assert (count.status, count.value) == ("fail", 1)
    assert count.message == "1 of 2 GPUs answer; if the node has fewer by design, set KCOVER_AGENT_GPUS=1"
    reported = Node(tools, disk=disk, expected=1)
    reported.set(listed=LIST[:1])
    assert reported.probe_run.bad() == []


def test_readings_that_a_gpu_does_not_have_are_ignored(tools):
    node = Node(tools)
    bare = {"gpu": 0, "temperature": {"hotspot": "N/A"}, "ecc": "N/A"}
    node.set(listed=LIST[:1], statics=[{"gpu": 0, "limit": "N/A"}], metrics=[bare])
    assert node.probe_run.all() == [("amd_gpus", "", "pass")]
    node.set(listed=LIST[:1], metrics=[])
    assert node.probe_run.all() == [("amd_gpus", "", "pass")]


def test_inv_42_a_tool_that_is_missing_or_breaks_is_no_broken_node(tools):
    probe_run = ProbeRun(amd.AmdProbe(expected=int))
    (missing,) = probe_run.observe()
    assert (missing.check.status, "install amd-smi-lib" in missing.check.message) == ("skipped", True)
    node = Node(tools)
    tools.say("amd-smi", "AMDSMI_STATUS_NOT_INIT", status=255)
    assert node.probe_run.bad() == [("amd_gpus", "", "error", False)]
    tools.say("amd-smi", "no JSON at all")
    assert node.probe_run.bad() == [("amd_gpus", "", "error", False)]
    folder = tools.folder.parent
    tools.add("amd-smi", f"[ $1 = list ] && cat {folder}/list.json || exit 3")
    broken = [("amd_temperature", "", "error", False), ("amd_ecc", "", "error", False)]
    assert node.probe_run.bad() == broken


def test_a_tool_that_hangs_is_killed_and_reported_as_an_error(tools, monkeypatch):
    monkeypatch.setattr(amd, "TIMEOUT_SECONDS", 0.2)
    tools.add("amd-smi", "sleep 600")
    started = time.monotonic()
    (found,) = amd.AmdProbe(expected=int).observe(START).findings
    assert time.monotonic() - started < HANG_SECONDS
    assert (found.check.name, found.check.status, found.is_fault) == ("amd_gpus", "error", False)
    assert "did not end within 0.2 s" in found.check.message


def test_the_inventory_is_read_rarely_and_kept_when_the_tool_fails(tools):
    now = [0.0]
    inventory = amd.AmdInventory(monotonic=lambda: now[0])
    assert inventory().gpus == ()
    node = Node(tools)
    found = inventory()
    assert (found.driver, found.gpus) == (
        "6.12.12",
        (
            Gpu(index=0, uuid=FIRST, pci="0000:0c:00", model="AMD Instinct MI300X", serial="0x0"),
            Gpu(index=1, uuid=SECOND, pci="0000:22:00", model="AMD Instinct MI300X", serial="0x1"),
        ),
    )
    node.set(listed=LIST[:1])
    assert inventory() == found
    tools.say("amd-smi", "gone", status=1)
    now[0] += amd.INTERVAL_SECONDS
    assert inventory() == found
    node.set(listed=LIST[:1], statics=[{"gpu": 0, "driver": {"version": "Linuxversion6.14.0-24-generic(buildd@x)"}}])
    now[0] += amd.INTERVAL_SECONDS
    assert (inventory().driver, inventory().gpus) == ("", (Gpu(index=0, uuid=FIRST, pci="0000:0c:00", model=""),))


def test_the_vendor_is_a_setting(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("vendor: 3\ngpus: 8\n")
    settings = config.load(file, {"NODE_NAME": "n"})
    assert next(probe.name for probe in setup.probes(settings, gpus=lambda: 0)) == "amd"
    assert isinstance(setup.inventory(settings).inventory, amd.AmdInventory)
    (light, _) = setup.check_timers(settings, gpus=lambda: 0)
    assert light.names == ("ping",)  # NVIDIA's checks would only be skipped each hour
