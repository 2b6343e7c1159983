"""NVIDIA GPUs: asks NVML about each of them and judges what it says."""

from collections.abc import Callable, Iterator
from datetime import datetime

from agents.probes import nvml
from agents.probes.device import Device
from agents.probes.finding import Finding, Reading, enough, finding
from agents.probes.gpu import rules
from agents.probes.gpu.links import Linked
from agents.probes.gpu.rules import Past
from kcover.fault import Fault


class GpuProbe:
    """Asks NVML about every GPU and judges what it says; an ``agents.probes.finding.Probe``."""

    name = "nvml"
    deadline = 30.0  # a hung driver: late at 30 s, hung at 120 s
    hung_is_fault = True

    def __init__(
        self,
        *,
        every: float = 60.0,
        expected: Callable[[], int | None],
        ask: Callable[[], tuple[Device, ...]] = nvml.devices,
    ) -> None:
        """``expected``: how many GPUs this node must have; None: nobody knows, 0: it is no GPU node."""
        self.every = every
        self._expected, self._ask = expected, ask
        self._past: dict[int, Past] = {}
        self._links = Linked()

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``."""
        expected = self._expected()
        try:
            devices = self._ask()
        except nvml.ResetUnderWay:
            self._links.forget()
            return Reading()  # what it would say is true of the reset alone
        except nvml.DriverError as error:
            self._links.forget()
            if error.absent and not expected:
                return Reading()  # no GPU node
            # Without the library nobody was asked: that is how the agent was installed, not how the node is.
            bad = "error" if error.code == nvml.LIBRARY_NOT_FOUND else "fail"
            return Reading(findings=(finding("driver", bad, message=str(error)),))
        findings = [finding("driver", False)]
        findings += self._count(devices, expected)
        faults: list[Fault] = []
        nameless: list[Device] = []
        for device in devices:
            past = self._past.setdefault(device.index, Past())
            if device.lost:
                if device.uuid or past.uuid:
                    findings.append(_lost(device, past))
                else:
                    nameless.append(device)
                faults += _off_the_bus(device, past, now=now)
                continue
            findings.append(finding("gpu", False, device=device.name))
            if past.uuid not in ("", device.uuid):
                past = self._past[device.index] = Past()  # another GPU in this place
            past.uuid, past.pci = device.uuid, device.pci
            findings += rules.judge(device, past, now=now)
            faults += _uncorrected(device, past, now=now)
            past.seen_at = now
        unnamed = rules.nameless(nameless)
        findings.append(Finding(check=unnamed, fault=unnamed.status == "fail"))
        findings += self._links.look(devices)
        return Reading(findings=tuple(findings), faults=tuple(faults))

    def _count(self, devices: tuple[Device, ...], expected: int | None) -> Iterator[Finding]:
        there = sum(1 for device in devices if device.late or not device.lost)
        if expected is not None:
            yield enough("gpu_count", there, expected)


def _lost(device: Device, past: Past) -> Finding:
    reset = device.code == nvml.RESET_REQUIRED
    message = f"{'needs a reset' if reset else 'does not answer'}: {device.lost}"
    bad = "warn" if device.late else "fail"
    pci = device.pci or past.pci
    return finding("gpu", bad, device=device.uuid or past.uuid, pci=pci, message=message, fault=True)


def _off_the_bus(device: Device, past: Past, *, now: datetime) -> Iterator[Fault]:
    """A lost GPU is what the kernel log calls Xid 79; told once, where its slot is known."""
    if device.code == nvml.GPU_IS_LOST and past.seen_at is not None and past.pci:
        past.seen_at = None
        yield _fault(79, past.pci, past.uuid, f"NVML: {device.lost}", now=now)


def _uncorrected(device: Device, past: Past, *, now: datetime) -> Iterator[Fault]:
    """An uncorrected ECC error since the last look is reported as what it is in the kernel log, Xid 48."""
    before, past.uncorrected = past.uncorrected, device.ecc_uncorrected
    if before is not None and device.ecc_uncorrected is not None and device.ecc_uncorrected > before:
        message = f"NVML: {device.ecc_uncorrected - before} uncorrected ECC errors since the last look"
        yield _fault(48, device.pci, device.uuid, message, now=now)


def _fault(code: int, pci: str | None, uuid: str, message: str, *, now: datetime) -> Fault:
    return Fault(kind="xid", code=code, pci=pci, gpu_uuid=uuid or None, message=message, seen_at=now, source="nvml")
