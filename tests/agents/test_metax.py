"""The probe of MetaX GPUs, with a fake mx-smi."""

from datetime import timedelta

import pytest

from agents import config
from agents.host import store
from agents.probes.gpu import metax
from agents.probes.gpu.expected_count import ExpectedGpuCount
from kcover.faults.fault import Gpu
from tests.agents.probe_run import START, ProbeRun
from tests.agents.tools import tracking

LIST = """mx-smi  version: 2.2.9
GPU#0    MXC500      0000:08:00.0   {first} (UUID: GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba)
GPU#1    MXC500      0000:3c:00.0   Available (UUID: GPU-0e715b45-bcef-1500-e2db-752724095700)
"""
FIRST, SECOND = "GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba", "GPU-0e715b45-bcef-1500-e2db-752724095700"
TEMPERATURE = """mx-smi  version: 2.2.9
GPU#0  MXC500  0000:08:00.0
    Chip Temperature
        hotspot(sensor0)                          :  39.00 C
        hotspot(sensor1)                          :  {hot} C
    Board Temperature
        air-inlet                                 :  95.75 C
GPU#1  MXC500  0000:3c:00.0
    Chip Temperature
        hotspot(sensor4)                          :  39.25 C
End of Log
"""
ECC = """GPU#0  MXC500  0000:08:00.0
    ECC Errors
        SRAM Correctable                          : 900
    Retired Pages
        Double Bit ECC                            : {count}
GPU#1  MXC500  0000:3c:00.0
    Retired Pages
        Double Bit ECC                            : 0
"""
HCA = """hca_id: mlx5_0
\ttransport:                      InfiniBand (0)
\t\tport:   1
\t\t\tstate:                  {state}
"""


class MetaXNode:
    def __init__(self, tools, *, disk=None, given=None, **limits):
        self.tools = tools
        limits = config.MetaX(**{"hca_ids": ("mlx5_0",), **limits})
        self.probe_run = ProbeRun(
            metax.MetaXProbe(limits, expected=ExpectedGpuCount(disk or store.MemoryStore(), configured=given))
        )
        self.set()

    def set(self, *, first="Available", hot="84.99", ecc=64, offset="00100000", state="PORT_ACTIVE (4)", listed=2):
        folder = self.tools.folder.parent
        lines = LIST.format(first=first).splitlines(keepends=True)[: 1 + listed]
        texts = {"L": "".join(lines), "t": TEMPERATURE.format(hot=hot), "e": ECC.format(count=ecc)}
        for name, text in texts.items():
            (folder / name).write_text(text)
        cases = f"-L) cat {folder}/L;; --show-temperature) cat {folder}/t;; --count-ecc) cat {folder}/e;;"
        self.tools.add("mx-smi", f"case $1 in {cases} esac")
        self.tools.say("chronyc", tracking(offset))
        self.tools.say("ibv_devinfo", HCA.format(state=state))

    def tomorrow(self):
        return self.probe_run.bad(after=86_400)


def test_a_healthy_metax_node_is_checked_at_the_start_and_then_once_a_day(tools):
    node = MetaXNode(tools)
    assert {status for _, _, status in node.probe_run.all()} == {"pass"}
    node.set(hot="85.00")
    assert {status for _, _, status in node.probe_run.all(after=60)} == {"pass"}  # nobody looks yet
    assert node.tomorrow() == [("metax_temperature", FIRST, "fail", True)]
    node.set()
    for _ in range(3):  # told again, or it would be too old to count; as a fault it was told
        assert node.probe_run.bad(after=600) == [("metax_temperature", FIRST, "fail", False)]
    assert {name for name, _, _ in node.probe_run.all(after=86_400)} == {
        *("metax_gpus", "metax_temperature", "metax_clock", "metax_ecc", "metax_hca"),
    }


@pytest.mark.parametrize(
    ("state", "name", "device"),
    [
        ({"first": "Unavailable"}, "metax_gpus", ""),
        ({"hot": "85.00"}, "metax_temperature", FIRST),
        ({"ecc": 65}, "metax_ecc", FIRST),
        ({"offset": "10100000"}, "metax_clock", ""),
        ({"state": "PORT_DOWN (1)"}, "metax_hca", "mlx5_0"),
    ],
)
def test_kcovers_limits(tools, state, name, device):
    node = MetaXNode(tools)
    node.probe_run.observe()
    node.set(**state)
    assert node.tomorrow() == [(name, device, "fail", True)]


def test_a_metax_gpu_that_is_listed_no_longer_is_missed_after_a_restart_too(tools):
    disk = store.MemoryStore()
    assert MetaXNode(tools, disk=disk).probe_run.bad() == []
    node = MetaXNode(tools, disk=disk)
    node.set(listed=1)
    (count,) = [one.check for one in node.probe_run.observe() if one.check.name == "metax_gpus"]
    assert (count.status, count.value) == ("fail", 1)
    assert count.message.startswith("1 of 2 GPUs are available; if the node has fewer by design, set KCOVER_AGENT_GPUS")
    reported = MetaXNode(tools, disk=disk, given=1)
    reported.set(listed=1)
    assert reported.probe_run.bad() == []


def test_an_adapter_that_is_missing_and_none_that_must_be_there(tools):
    assert MetaXNode(tools, hca_ids=("mlx5_7",)).probe_run.bad() == [("metax_hca", "mlx5_7", "fail", True)]
    assert MetaXNode(tools, hca_ids=()).probe_run.bad() == []


def test_inv_42_a_tool_that_is_missing_or_breaks_is_no_broken_node(tools):
    probe_run = ProbeRun(metax.MetaXProbe(config.MetaX(), expected=int))
    assert probe_run.bad() == [("metax_gpus", "", "skipped", False)]
    node = MetaXNode(tools)
    (tools.folder / "chronyc").unlink()
    tools.say("ibv_devinfo", "no permission", status=1)
    tools.add("mx-smi", f"[ $1 = -L ] && cat {tools.folder.parent}/L || exit 3")
    assert node.probe_run.bad() == [
        ("metax_temperature", "", "error", False),
        ("metax_clock", "", "skipped", False),
        ("metax_ecc", "", "error", False),
        ("metax_hca", "", "error", False),
    ]


@pytest.mark.parametrize(("hour", "days"), [(9, 0), (11, 1), (10, 1)])
def test_the_next_check_is_at_the_time_of_day(hour, days):
    now = START.replace(hour=hour)
    assert metax.next_check_time(now, config.MetaX()) == START.replace(hour=10) + timedelta(days=days)


def test_the_inventory_of_a_metax_node(tools):
    MetaXNode(tools)
    assert metax.inventory().gpus == (
        Gpu(index=0, uuid=FIRST, pci="0000:08:00", model="MXC500"),
        Gpu(index=1, uuid=SECOND, pci="0000:3c:00", model="MXC500"),
    )
    (tools.folder / "mx-smi").unlink()
    assert metax.inventory().gpus == ()
