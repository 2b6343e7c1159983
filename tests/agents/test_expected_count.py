"""The expected number of GPUs: it is remembered, because the bus does not show missing GPUs."""

import errno

import pytest

from agents import config, setup
from agents.host import store
from agents.probes.gpu.expected_count import ExpectedGpuCount
from agents.probes.gpu.nvidia import NvidiaProbe
from tests.agents.test_gpu_rules import GOOD, START


def test_a_gpu_that_the_next_boot_does_not_enumerate_is_missed():
    disk = store.MemoryStore()
    assert ExpectedGpuCount(disk, configured=None, count_on_bus=lambda: 2)() == 2
    after_the_reboot = ExpectedGpuCount(disk, configured=None, count_on_bus=lambda: 1)
    probe = NvidiaProbe(expected=after_the_reboot, query=lambda: (GOOD,))
    (count,) = (one for one in probe.observe(START).findings if one.check.name == "gpu_count")
    assert (count.check.status, count.is_fault) == ("fail", True)
    assert count.check.message == "1 of 2 GPUs answer; if the node has fewer by design, set KCOVER_AGENT_GPUS=1"


def test_a_configured_count_applies_and_can_be_lowered_later():
    disk = store.MemoryStore()
    assert ExpectedGpuCount(disk, configured=None, count_on_bus=lambda: 8)() == 8
    assert ExpectedGpuCount(disk, configured=7, count_on_bus=lambda: 8)() == 7
    assert ExpectedGpuCount(disk, configured=None, count_on_bus=lambda: 7)() == 7


def test_a_gpu_that_is_added_counts_at_once():
    there = [0]
    count = ExpectedGpuCount(store.MemoryStore(), configured=None, count_on_bus=lambda: there[0])
    assert count() == 0
    there[0] = 8
    assert count() == 8
    there[0] = 7
    assert count() == 8


@pytest.mark.parametrize(
    ("text", "environ", "seen", "wanted"),
    [
        ("vendor: 3\n", {}, (8, 7), (8, 8)),
        ("vendor: 3\ngpus: 7\n", {}, (8, 7), (7, 7)),
        ("vendor: 2\n", {}, (4, 10, 9), (8, 10, 10)),  # kcover's eight at least
        ("vendor: 2\nmetaX: {gpuNum: 4}\n", {}, (5, 4), (4, 4)),
        ("vendor: 2\nmetaX: {gpuNum: 4}\n", {"KCOVER_AGENT_GPUS": "3"}, (4, 3), (3, 3)),
    ],
)
def test_the_count_listed_by_the_vendors_tool_applies_where_the_bus_shows_none(tmp_path, text, environ, seen, wanted):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    settings, disk = config.load(file, {"NODE_NAME": "n", **environ}), store.MemoryStore()
    assert tuple(setup.expected_gpus(settings, disk)(listed) for listed in seen) == wanted  # an agent each


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b'{"most": "8"}', b"\xff"])
def test_a_damaged_file_is_forgotten(damage):
    disk = store.MemoryStore()
    disk.write("gpus.json", damage)
    assert ExpectedGpuCount(disk, configured=None, count_on_bus=lambda: 4)() == 4


def test_a_count_that_cannot_be_stored_is_kept_in_memory_only():
    class Full(store.MemoryStore):
        def write(self, name, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    there = [8]
    count = ExpectedGpuCount(Full(), configured=None, count_on_bus=lambda: there[0])
    assert count() == 8
    there[0] = 7
    assert count() == 8
