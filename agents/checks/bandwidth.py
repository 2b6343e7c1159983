"""``pciebw`` and ``gpumem``: measured bandwidth and compute speed, compared with Autopilot's limits."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agents.checks import gpu_bench
from agents.checks.gpu_state import query_gpus
from agents.checks.health_check import Args, CheckSkipped, positive_number
from agents.host import programs
from agents.probes.gpu import nvml
from agents.probes.gpu.device import Device
from kcover.faults.fault import Check

PCIE_MIN_GB_PER_S = 4.0  # host to device (Autopilot's default)
DAXPY_MIN_GB_PER_S = 1300.0
DGEMM_MIN_TFLOPS = 16.0  # both are Autopilot's limits for the A100; newer boards of its class are faster
# Boards with the A100's class of double-precision speed; no limits are published for others.
A100_CLASS = re.compile(r"\b(A100|A800|H100|H200|GH200|B200|GB200)\b")
SECONDS_PER_GPU = 60.0

Run = Callable[[str, Iterable[str], float], programs.ProgramResult]


def run_in_child(name: str, uuids: Iterable[str], timeout: float) -> programs.ProgramResult:
    """Run ``agents.checks.gpu_bench`` on these GPUs in a child process."""
    environ = {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return programs.run_module(gpu_bench.__name__, name, timeout=timeout, environ=environ)


def measure(name: str, devices: Iterable[Device], run: Run) -> dict[str, dict[str, Any]]:
    """The measurements by UUID. Raises CheckSkipped if a library is missing, RuntimeError if it broke."""
    uuids = [device.uuid for device in devices]
    result = run(name, uuids, SECONDS_PER_GPU * max(1, len(uuids)))
    if result.status == gpu_bench.NO_LIBRARY:
        raise CheckSkipped(result.diagnostics)
    if result.status:
        raise RuntimeError(f"the benchmark exited with status {result.status}: {result.diagnostics[-500:]}")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {line["uuid"]: line for line in lines}


class PcieBandwidth:
    """``pciebw``: GB/s from the host to each idle GPU. Fails below the limit (``threshold``, else ``min_gb_per_s``)."""

    name = "pciebw"
    failure_is_node_fault = True

    def __init__(
        self,
        query: Callable[[], tuple[Device, ...]] = nvml.devices,
        run: Run = run_in_child,
        *,
        min_gb_per_s: float = PCIE_MIN_GB_PER_S,
    ) -> None:
        self._query, self._run, self._min = query, run, min_gb_per_s

    def invasive(self, args: Args) -> bool:
        """False: GPUs in use are left out, and the others are measured."""
        return False

    def run(self, args: Args) -> list[Check]:
        """The value is in GB/s."""
        limit = positive_number(args, "threshold", self._min)
        devices = query_gpus(self._query, check=self.name)
        measurable = [device for device in devices if not _why_skipped(device)]
        measured = measure(self.name, measurable, self._run) if measurable else {}
        return [self._check_device(device, measured.get(device.uuid), limit) for device in devices]

    def _check_device(self, device: Device, result: Mapping[str, Any] | None, limit: float) -> Check:
        why_skipped = _why_skipped(device)
        if why_skipped:
            return Check(name=self.name, status="skipped", device=device.name, message=why_skipped)
        if result is None or "error" in result:
            message = "not measured" if result is None else result["error"]
            return Check(name=self.name, status="error", device=device.name, message=message)
        value = round(result["gb_per_s"], 2)
        status, message = ("fail", f"below {limit:g} GB/s") if value < limit else ("pass", "")
        return Check(name=self.name, status=status, device=device.name, value=value, unit="GB/s", message=message)


class GpuMemory:
    """``gpumem``: DAXPY and DGEMM on every GPU. Fails for a wrong result, and below the limits (``daxpy`` 1300 GB/s,
    ``dgemm`` 16 TFLOPS) on boards of the A100's class. Other boards have limits only if the arguments set them."""

    name = "gpumem"
    failure_is_node_fault = True

    def __init__(self, query: Callable[[], tuple[Device, ...]] = nvml.devices, run: Run = run_in_child) -> None:
        self._query, self._run = query, run

    def invasive(self, args: Args) -> bool:
        """The benchmark fills memory and uses all cores."""
        return True

    def run(self, args: Args) -> list[Check]:
        """The value is DAXPY's GB/s; DGEMM's TFLOPS are in the message."""
        daxpy, dgemm = (
            positive_number(args, "daxpy", DAXPY_MIN_GB_PER_S),
            positive_number(args, "dgemm", DGEMM_MIN_TFLOPS),
        )
        given = "daxpy" in args or "dgemm" in args
        devices = query_gpus(self._query, check=self.name)
        measurable = [device for device in devices if not _why_skipped(device)]
        measured = measure(self.name, measurable, self._run) if measurable else {}
        return [
            self._check_device(
                device,
                measured.get(device.uuid),
                daxpy,
                dgemm,
                has_limit=given or bool(A100_CLASS.search(device.model)),
            )
            for device in devices
        ]

    def _check_device(
        self, device: Device, result: Mapping[str, Any] | None, daxpy: float, dgemm: float, *, has_limit: bool
    ) -> Check:
        why_skipped = _why_skipped(device)
        if why_skipped:
            return Check(name=self.name, status="skipped", device=device.name, message=why_skipped)
        if result is None or "error" in result:
            message = "not measured" if result is None else result["error"]
            return Check(name=self.name, status="error", device=device.name, message=message)
        value, tflops = round(result["gb_per_s"], 1), round(result["tflops"], 2)
        problems = [] if result["right"] else ["the GPU computed wrong results"]
        if has_limit and value < daxpy:
            problems.append(f"DAXPY below {daxpy:g} GB/s")
        if has_limit and tflops < dgemm:
            problems.append(f"DGEMM below {dgemm:g} TFLOPS")
        message = "; ".join([*problems, f"DGEMM {tflops:g} TFLOPS"])
        if not has_limit:
            message += f"; no limit is known for {device.model}"
        status = "fail" if problems else "pass"
        return Check(name=self.name, status=status, device=device.name, value=value, unit="GB/s", message=message)


def _why_skipped(device: Device) -> str:
    """The reason why this GPU is not measured; empty if it is measured."""
    if device.lost:
        return f"the GPU does not answer: {device.lost}"
    if device.mig:
        return "MIG mode is on"
    if device.processes:
        return f"in use by process {device.processes[0]}"
    return ""
