"""Checks that only read the driver's state: remapped rows and the hardware's power brake, judged as Autopilot does."""

from collections.abc import Callable, Sequence

from agents.checks.health_check import Args, CheckSkipped
from agents.host import deadline
from agents.probes.gpu import nvml, rules
from agents.probes.gpu.device import Device
from kcover.faults.fault import Check

DRIVER_TIMEOUT_SECONDS = 30.0


def query_gpus(query: Callable[[], tuple[Device, ...]], *, check: str) -> tuple[Device, ...]:
    """The GPUs, read under a deadline. Raises CheckSkipped if there are none, deadline.DeadlineExceeded,
    nvml.DriverError."""
    try:
        devices = deadline.within(DRIVER_TIMEOUT_SECONDS, query, what=f"NVML for {check}")
    except nvml.ResetInProgress as error:
        raise CheckSkipped(str(error)) from error
    except nvml.DriverError as error:
        if error.absent:
            raise CheckSkipped(f"no NVIDIA driver answers ({error}): install the driver and nvidia-ml-py") from error
        raise
    if not devices:
        raise CheckSkipped("the driver lists no GPU")
    return devices


def _check_each(devices: Sequence[Device], judge: Callable[[Device], Check], *, check: str) -> list[Check]:
    """One result for each GPU. A GPU that hangs gives an error; GPUs without a UUID are reported as the probe reports
    them."""
    results = [_hanging(device, check) if device.hung_seconds else judge(device) for device in devices if device.uuid]
    lost = [device for device in devices if not device.uuid]
    return [*results, rules.unidentified(lost)] if lost else results


def _hanging(device: Device, check: str) -> Check:
    return Check(name=check, status="error", device=device.name, message=device.lost)


class Remapped:
    """``remapped``: fails if a remapped row waits for a reset (Autopilot: "Pending: Yes"), or if a remapping
    failed."""

    name = "remapped"
    failure_is_node_fault = True

    def __init__(self, query: Callable[[], tuple[Device, ...]] = nvml.devices) -> None:
        self._query = query

    def invasive(self, args: Args) -> bool:
        return False

    def run(self, args: Args) -> list[Check]:
        """The value is the number of remapped rows."""
        return _check_each(query_gpus(self._query, check=self.name), self._check_device, check=self.name)

    def _check_device(self, device: Device) -> Check:
        if device.lost:
            return Check(name=self.name, status="fail", device=device.name, message=device.lost)
        rows = device.rows
        if rows is None:
            message = "this GPU does not remap rows, or MIG mode hides them"
            return Check(name=self.name, status="skipped", device=device.name, message=message)
        problem = rules.remapping_problem(rows)
        status = "fail" if problem else "pass"
        count = float(rows.corrected + rows.uncorrected)
        return Check(name=self.name, status=status, device=device.name, value=count, unit="rows", message=problem)


class GpuPower:
    """``gpupower``: fails if the hardware slows the GPU down right now (clock event reason 0x8)."""

    name = "gpupower"
    failure_is_node_fault = False  # a single sample; the finding ``clocks`` covers ten minutes

    def __init__(self, query: Callable[[], tuple[Device, ...]] = nvml.devices) -> None:
        self._query = query

    def invasive(self, args: Args) -> bool:
        return False

    def run(self, args: Args) -> list[Check]:
        """The value is 1 if the slowdown is active, as in Autopilot's metric."""
        return _check_each(query_gpus(self._query, check=self.name), self._check_device, check=self.name)

    def _check_device(self, device: Device) -> Check:
        if device.lost:
            return Check(name=self.name, status="fail", device=device.name, message=device.lost)
        if device.clock_reasons is None:
            message = "the driver does not report clock event reasons"
            return Check(name=self.name, status="skipped", device=device.name, message=message)
        slow = bool(device.clock_reasons & rules.HW_SLOWDOWN)
        status, message = ("fail", "hardware slowdown is active") if slow else ("pass", "")
        return Check(name=self.name, status=status, device=device.name, value=float(slow), message=message)
