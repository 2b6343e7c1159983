"""``pciebw`` and ``gpumem``: measured bandwidth and compute, held against Autopilot's limits."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agents import programs
from agents.checks import bench
from agents.checks.gpu_state import answering
from agents.checks.port import Args, Skipped, number
from agents.probes import nvml
from agents.probes.device import Device
from kcover.fault import Check

PCIE_GB = 4.0  # GB/s host to device (Autopilot's default); less fails
DAXPY_GB = 1300.0  # GB/s, and
DGEMM_TFLOPS = 16.0  # Autopilot's for the A100; newer boards of its class are faster
# Boards whose double precision is of the A100's class; others have no limit that anybody published.
A100_CLASS = re.compile(r"\b(A100|A800|H100|H200|GH200|B200|GB200)\b")
SECONDS_A_GPU = 60.0

Run = Callable[[str, Iterable[str], float], programs.Ended]


def in_child(name: str, uuids: Iterable[str], timeout: float) -> programs.Ended:
    """Runs ``agents.checks.bench`` on these GPUs in a child process."""
    environ = {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return programs.run_own(bench.__name__, name, timeout=timeout, environ=environ)


def measure(name: str, devices: Iterable[Device], run: Run) -> dict[str, dict[str, Any]]:
    """Results by UUID. Raises Skipped where a library is missing, RuntimeError where the bench broke."""
    uuids = [device.uuid for device in devices]
    ended = run(name, uuids, SECONDS_A_GPU * max(1, len(uuids)))
    if ended.status == bench.NO_LIBRARY:
        raise Skipped(ended.said)
    if ended.status:
        raise RuntimeError(f"the measuring program ended with {ended.status}: {ended.said[-500:]}")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    return {line["uuid"]: line for line in lines}


class PcieBandwidth:
    """``pciebw``: GB/s from host to each GPU that nobody uses; under the limit (``threshold``, 4) it fails."""

    name = "pciebw"
    about_node = True

    def __init__(self, ask: Callable[[], tuple[Device, ...]] = nvml.devices, run: Run = in_child) -> None:
        self._ask, self._run = ask, run

    def invasive(self, args: Args) -> bool:
        """A GPU in use is left out, the others are measured."""
        return False

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The value is in GB/s."""
        limit = number(args, "threshold", PCIE_GB)
        devices = answering(self._ask, check=self.name)
        fit = [device for device in devices if not _why_not(device)]
        measured = measure(self.name, fit, self._run) if fit else {}
        return [self._one(device, measured.get(device.uuid), limit) for device in devices]

    def _one(self, device: Device, result: Mapping[str, Any] | None, limit: float) -> Check:
        why_not = _why_not(device)
        if why_not:
            return Check(name=self.name, status="skipped", device=device.name, message=why_not)
        if result is None or "error" in result:
            message = "not measured" if result is None else result["error"]
            return Check(name=self.name, status="error", device=device.name, message=message)
        value = round(result["gb_per_s"], 2)
        status, message = ("fail", f"under {limit:g} GB/s") if value < limit else ("pass", "")
        return Check(name=self.name, status=status, device=device.name, value=value, unit="GB/s", message=message)


class GpuMemory:
    """``gpumem``: DAXPY and DGEMM on every GPU. Fails for a wrong result, and under the limits (``daxpy`` 1300 GB/s,
    ``dgemm`` 16 TFLOPS) on boards of the A100's class; other boards are held to limits only where they are given."""

    name = "gpumem"
    about_node = True

    def __init__(self, ask: Callable[[], tuple[Device, ...]] = nvml.devices, run: Run = in_child) -> None:
        self._ask, self._run = ask, run

    def invasive(self, args: Args) -> bool:
        """It fills the memory and the cores."""
        return True

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The value is DAXPY's GB/s; DGEMM's TFLOPS are in the message."""
        daxpy, dgemm = number(args, "daxpy", DAXPY_GB), number(args, "dgemm", DGEMM_TFLOPS)
        given = "daxpy" in args or "dgemm" in args
        devices = answering(self._ask, check=self.name)
        fit = [device for device in devices if not _why_not(device)]
        measured = measure(self.name, fit, self._run) if fit else {}
        return [
            self._one(
                device, measured.get(device.uuid), daxpy, dgemm, held=given or bool(A100_CLASS.search(device.model))
            )
            for device in devices
        ]

    def _one(
        self, device: Device, result: Mapping[str, Any] | None, daxpy: float, dgemm: float, *, held: bool
    ) -> Check:
        why_not = _why_not(device)
        if why_not:
            return Check(name=self.name, status="skipped", device=device.name, message=why_not)
        if result is None or "error" in result:
            message = "not measured" if result is None else result["error"]
            return Check(name=self.name, status="error", device=device.name, message=message)
        value, tflops = round(result["gb_per_s"], 1), round(result["tflops"], 2)
        wrong = [] if result["right"] else ["it computed wrong results"]
        if held and value < daxpy:
            wrong.append(f"DAXPY under {daxpy:g} GB/s")
        if held and tflops < dgemm:
            wrong.append(f"DGEMM under {dgemm:g} TFLOPS")
        message = "; ".join([*wrong, f"DGEMM {tflops:g} TFLOPS"])
        if not held:
            message += f"; no limit is known for {device.model}"
        status = "fail" if wrong else "pass"
        return Check(name=self.name, status=status, device=device.name, value=value, unit="GB/s", message=message)


def _why_not(device: Device) -> str:
    """Why this GPU is not measured, if so."""
    if device.lost:
        return f"it does not answer: {device.lost}"
    if device.mig:
        return "MIG is on"
    if device.processes:
        return f"in use by process {device.processes[0]}"
    return ""
