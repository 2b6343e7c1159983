"""The probe of NVIDIA GPUs."""

from collections.abc import Callable, Iterator
from datetime import datetime

from agents.probes.finding import Finding, Observation, Severity, finding, gpu_count_finding
from agents.probes.gpu import nvml, rules
from agents.probes.gpu.device import Device
from agents.probes.gpu.nvlink import NvLinkComparison
from agents.probes.gpu.rules import GpuHistory
from kcover.faults.fault import Fault


class NvidiaProbe:
    """Reads every GPU through NVML and evaluates its state."""

    name = "nvml"
    deadline_seconds = 30.0  # a driver that hangs is late after 30 s and hung after 120 s
    hang_severity = Severity.FAULT

    def __init__(
        self,
        *,
        interval_seconds: float = 60.0,
        expected: Callable[[], int | None],
        query: Callable[[], tuple[Device, ...]] = nvml.devices,
    ) -> None:
        """``expected``: how many GPUs this node must have; None: unknown, 0: not a GPU node."""
        self.interval_seconds = interval_seconds
        self._expected, self._query = expected, query
        self._histories: dict[int, GpuHistory] = {}
        self._nvlinks = NvLinkComparison()

    def observe(self, now: datetime) -> Observation:
        expected = self._expected()
        try:
            devices = self._query()
        except nvml.ResetInProgress:
            self._nvlinks.forget()
            return Observation()  # GPUs look lost during a reset
        except nvml.DriverError as error:
            self._nvlinks.forget()
            if error.absent and not expected:
                return Observation()  # not a GPU node
            # A missing library is a fault of the agent's installation, not of the node.
            severity = Severity.ERROR if error.code == nvml.LIBRARY_NOT_FOUND else Severity.FAILURE
            return Observation(findings=(finding("driver", severity, message=str(error)),))
        findings = [finding("driver", Severity.OK)]
        findings += self._count(devices, expected)
        faults: list[Fault] = []
        unidentified: list[Device] = []
        for device in devices:
            history = self._histories.setdefault(device.index, GpuHistory())
            if device.lost:
                if device.uuid or history.uuid:
                    findings.append(_lost(device, history))
                else:
                    unidentified.append(device)
                faults += _off_the_bus(device, history, now=now)
                continue
            findings.append(finding("gpu", Severity.OK, device=device.name))
            if history.uuid not in ("", device.uuid):
                history = self._histories[device.index] = GpuHistory()  # another GPU at this index
            history.uuid, history.pci = device.uuid, device.pci
            findings += rules.evaluate(device, history, now=now)
            faults += _uncorrected(device, history, now=now)
            history.seen_at = now
        unnamed = rules.unidentified(unidentified)
        findings.append(Finding(check=unnamed, is_fault=unnamed.status == "fail"))
        findings += self._nvlinks.observe(devices)
        power = {(one.uuid, "power"): one.power / 1000 for one in devices if one.uuid and one.power is not None}
        return Observation(findings=tuple(findings), faults=tuple(faults), figures=power)

    def _count(self, devices: tuple[Device, ...], expected: int | None) -> Iterator[Finding]:
        present = sum(1 for device in devices if device.is_late or not device.lost)
        if expected is not None:
            yield gpu_count_finding("gpu_count", present, expected)


def _lost(device: Device, history: GpuHistory) -> Finding:
    reset = device.code == nvml.RESET_REQUIRED
    message = f"{'the GPU needs a reset' if reset else 'the GPU does not answer'}: {device.lost}"
    severity = Severity.WARNING if device.is_late else Severity.FAULT
    pci = device.pci or history.pci
    return finding("gpu", severity, device=device.uuid or history.uuid, pci=pci, message=message)


def _off_the_bus(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Fault]:
    """A lost GPU, which the kernel log calls Xid 79. Reported once, if its slot is known."""
    if device.code == nvml.GPU_IS_LOST and history.seen_at is not None and history.pci:
        history.seen_at = None
        yield _fault(79, history.pci, history.uuid, f"NVML: {device.lost}", now=now)


def _uncorrected(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Fault]:
    """An uncorrected ECC error since the last run, which the kernel log calls Xid 48."""
    before, history.uncorrected = history.uncorrected, device.ecc_uncorrected
    if before is not None and device.ecc_uncorrected is not None and device.ecc_uncorrected > before:
        message = f"NVML: {device.ecc_uncorrected - before} uncorrected ECC errors since the last run"
        yield _fault(48, device.pci, device.uuid, message, now=now)


def _fault(code: int, pci: str | None, uuid: str, message: str, *, now: datetime) -> Fault:
    return Fault(kind="xid", code=code, pci=pci, gpu_uuid=uuid or None, message=message, seen_at=now, source="nvml")
