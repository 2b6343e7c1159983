"""The probe of PCIe and memory errors, over a folder of small files."""

import pytest

from agents.probes.host import hardware
from tests.agents.probe_run import ProbeRun, write


@pytest.fixture
def bus(tmp_path):
    def write_device(address="0000:4e:00.0", *, kind="0x030200", vendor="0x10de", **errors):
        folder = tmp_path / "bus/pci/devices" / address
        write(folder, **{"class": kind, "vendor": vendor})
        for name, count in {"fatal": 0, "nonfatal": 0, "correctable": 0, **errors}.items():
            word = {"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"}[name]
            write(folder, **{f"aer_dev_{name}": f"RxErr 0\nBadTLP {count}\nTOTAL_ERR_{word} {count}"})

    return write_device


def test_pcie_errors_count_when_they_grow(bus, tmp_path):
    bus(fatal=3)
    bus("0000:10:00.0", kind="0x020700", vendor="0x15b3")
    bus("0000:00:1f.0", kind="0x060100", fatal=9)  # a bridge is nobody's business
    probe_run = ProbeRun(hardware.HardwareProbe(root=tmp_path))
    assert probe_run.all() == []
    assert probe_run.all() == [("pcie_errors", "0000:10:00.0", "pass"), ("pcie_errors", "0000:4e:00.0", "pass")]
    bus(fatal=4)
    (one,) = [one for one in probe_run.observe() if one.check.status != "pass"]
    assert (one.check.status, one.is_fault, one.pci, one.check.message) == (
        "fail",
        True,
        "0000:4e:00",
        "1 fatal since the last run",
    )
    bus(fatal=4, nonfatal=2)
    assert probe_run.bad() == [("pcie_errors", "0000:4e:00.0", "warn", False)]
    bus(fatal=4, nonfatal=2, correctable=90)
    assert probe_run.bad() == []
    bus(fatal=4, nonfatal=2, correctable=300)
    assert probe_run.bad() == [("pcie_errors", "0000:4e:00.0", "warn", False)]


def test_gpus_on_the_bus_are_counted(bus, tmp_path):
    bus()
    bus("0000:5e:00.0")
    bus("0000:03:00.0", kind="0x030000", vendor="0x1a03")  # the board's own display
    bus("0000:5f:00.0", kind="0x068000")  # an NVSwitch
    bus("0000:5e:00.4")
    (tmp_path / "bus/pci/devices/0000:5e:00.4/physfn").mkdir()  # a part of one that was split for virtual machines
    assert hardware.count_nvidia_gpus(tmp_path) == 2
    assert hardware.count_nvidia_gpus(tmp_path / "none") == 0


def test_machine_checks_of_the_memory(tmp_path):
    controller = tmp_path / "devices/system/edac/mc/mc0"
    write(controller, ue_count=0, ce_count=5)
    probe_run = ProbeRun(hardware.HardwareProbe(root=tmp_path))
    assert probe_run.all() == []
    write(controller, ue_count=0, ce_count=50)
    assert probe_run.all() == [("host_memory", "mc0", "pass")]
    write(controller, ue_count=0, ce_count=500)
    assert probe_run.bad() == [("host_memory", "mc0", "warn", False)]
    write(controller, ue_count=1, ce_count=500)
    assert probe_run.bad() == [("host_memory", "mc0", "fail", True)]
