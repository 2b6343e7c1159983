"""The inventory without a driver, and with a driver that answers partly."""

import os
import sys

import pytest

from agents.probes.gpu import nvml
from kcover.faults.fault import Gpu, Inventory


class Error(Exception):
    pass


class Library:
    """NVML's binding as far as the inventory needs it; GPU 1 is lost, GPU 0 has no serial number."""

    NVMLError = Error
    opened = closed = 0

    class Pci:
        def __init__(self, bus):
            self.busId = bus

    def nvmlInit(self):
        self.opened += 1

    def nvmlShutdown(self):
        self.closed += 1

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 1:
            raise Error("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-0000000{handle}"

    def nvmlDeviceGetPciInfo(self, handle):
        return self.Pci(b"00000000:4E:00.0" if handle == 0 else "00000001:03:00.0")

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetSerial(self, handle):
        if handle == 0:
            raise Error("Not Supported")
        return "1652"


def test_the_inventory_of_the_driver_is_read(monkeypatch):
    library = Library()
    monkeypatch.setattr(nvml, "pynvml", library)
    model = "NVIDIA H100 80GB HBM3"
    assert nvml.inventory() == Inventory(
        driver="580.65.06",
        kernel=os.uname().release,
        gpus=(
            Gpu(index=0, uuid="GPU-00000000", pci="0000:4e:00", model=model),
            Gpu(index=2, uuid="GPU-00000002", pci="0001:03:00", model=model, serial="1652"),
        ),
    )
    assert library.opened == library.closed > 0


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
def test_a_driver_that_does_not_answer(monkeypatch, broken):
    def fail(self):
        raise Error("Driver Not Loaded")

    monkeypatch.setattr(Library, broken, fail)
    monkeypatch.setattr(nvml, "pynvml", Library())
    assert nvml.inventory() == Inventory(kernel=os.uname().release)


def test_a_library_that_is_installed_while_the_agent_runs(monkeypatch):
    def absent(name):
        raise OSError(name)

    library = Library()
    monkeypatch.setattr(nvml, "pynvml", None)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(nvml.ctypes, "CDLL", absent)
    assert nvml.inventory() == Inventory(kernel=os.uname().release)
    with pytest.raises(nvml.DriverError) as error:
        nvml.devices()
    assert error.value.code == nvml.LIBRARY_NOT_FOUND
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: None)
    assert nvml.inventory().driver == "580.65.06"


def test_no_binding_at_all(monkeypatch):
    monkeypatch.setattr(nvml, "pynvml", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: None)
    assert nvml.inventory() == Inventory(kernel=os.uname().release)
    with pytest.raises(nvml.DriverError) as error:
        nvml.devices()
    assert error.value.code == nvml.LIBRARY_NOT_FOUND
