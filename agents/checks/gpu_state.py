"""Checks that only read the driver's state: remapped rows and the hardware's power brake, as Autopilot judges them."""

from collections.abc import Callable, Sequence

from agents import deadline
from agents.checks.port import Args, Skipped
from agents.probes import nvml
from agents.probes.device import Device
from agents.probes.gpu import rules
from kcover.fault import Check

DEADLINE = 30.0


def answering(ask: Callable[[], tuple[Device, ...]], *, check: str) -> tuple[Device, ...]:
    """The GPUs, asked under a deadline. Raises Skipped where there are none, deadline.Late, nvml.DriverError."""
    try:
        devices = deadline.within(DEADLINE, ask, what=f"NVML for {check}")
    except nvml.ResetUnderWay as error:
        raise Skipped(str(error)) from error
    except nvml.DriverError as error:
        if error.absent:
            raise Skipped(f"no NVIDIA driver answers ({error}): install the driver and nvidia-ml-py") from error
        raise
    if not devices:
        raise Skipped("the driver knows no GPU")
    return devices


def _each(devices: Sequence[Device], judge: Callable[[Device], Check], *, check: str) -> list[Check]:
    """A result for each GPU: of one that hangs the check knows nothing, as where the driver hangs; those that are lost
    and without a UUID are told as the probe tells them."""
    results = [_hung(device, check) if device.hangs else judge(device) for device in devices if device.uuid]
    lost = [device for device in devices if not device.uuid]
    return [*results, rules.nameless(lost)] if lost else results


def _hung(device: Device, check: str) -> Check:
    return Check(name=check, status="error", device=device.name, message=device.lost)


class Remapped:
    """``remapped``: fails where a remapped row waits for a reset (Autopilot: "Pending: Yes"), or could not be made."""

    name = "remapped"
    about_node = True

    def __init__(self, ask: Callable[[], tuple[Device, ...]] = nvml.devices) -> None:
        self._ask = ask

    def invasive(self, args: Args) -> bool:
        """It reads counters."""
        return False

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The value is the number of remapped rows."""
        return _each(answering(self._ask, check=self.name), self._one, check=self.name)

    def _one(self, device: Device) -> Check:
        if device.lost:
            return Check(name=self.name, status="fail", device=device.name, message=device.lost)
        rows = device.rows
        if rows is None:
            message = "this GPU does not remap rows, or MIG hides them"
            return Check(name=self.name, status="skipped", device=device.name, message=message)
        wrong = rules.remapping(rows)
        status = "fail" if wrong else "pass"
        count = float(rows.corrected + rows.uncorrected)
        return Check(name=self.name, status=status, device=device.name, value=count, unit="rows", message=wrong)


class GpuPower:
    """``gpupower``: fails where the hardware slows the GPU down right now (clock event reason 0x8)."""

    name = "gpupower"
    about_node = False  # one sample; the probe ``clocks`` judges ten minutes

    def __init__(self, ask: Callable[[], tuple[Device, ...]] = nvml.devices) -> None:
        self._ask = ask

    def invasive(self, args: Args) -> bool:
        """It reads one register."""
        return False

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The value is 1 where the slowdown is active, as in Autopilot's metric."""
        return _each(answering(self._ask, check=self.name), self._one, check=self.name)

    def _one(self, device: Device) -> Check:
        if device.lost:
            return Check(name=self.name, status="fail", device=device.name, message=device.lost)
        if device.clock_reasons is None:
            message = "the driver does not say why clocks are held back"
            return Check(name=self.name, status="skipped", device=device.name, message=message)
        slow = bool(device.clock_reasons & rules.HW_SLOWDOWN)
        status, message = ("fail", "hardware slowdown is active") if slow else ("pass", "")
        return Check(name=self.name, status=status, device=device.name, value=float(slow), message=message)
