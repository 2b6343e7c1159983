"""Missing NVLinks: the links of one GPU compared with those of its peers and with its own past."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.probes.finding import Finding, Severity, finding
from agents.probes.gpu.device import Device, NvLinks

CONFIRMING_SAMPLES = 3  # runs in a row that confirm a missing NVLink


@dataclass(slots=True)
class _GpuLinks:
    """The state of one GPU: the largest number of links that were up, and for how many runs in a row it had fewer than
    its peers, or fewer than expected.
    """

    most: int = 0
    missing: int = 0
    fewer: int = 0


class NvLinkComparison:
    """Compares the GPUs of one node, run by run. It remembers only as long as the same GPUs answer: a GPU that enters
    MIG mode, is lost or goes to a virtual machine takes its ends of bridges along, and its partners are healthy. A GPU
    in MIG mode uses no links."""

    def __init__(self) -> None:
        self._seen: dict[str, _GpuLinks] = {}

    def observe(self, devices: Iterable[Device]) -> Iterator[Finding]:
        """The finding ``nvlink`` for each GPU.

        Fewer links than the peers have up is a fault, because then nothing that they share is down. Fewer than before
        is a warning. If NVSwitches join all GPUs, fewer than the GPU says it has is a warning too; without NVSwitches a
        link may have no bridge by design.
        """
        present = [(device, device.nvlink) for device in devices if not device.lost and device.nvlink is not None]
        compared = [(device, links) for device, links in present if not device.mig]
        if {device.name for device, _ in compared} != set(self._seen):
            self._seen = {device.name: _GpuLinks() for device, _ in compared}
        for device, links in present:
            if device.mig:  # a GPU in MIG mode uses no links, so none is missing
                yield finding(
                    "nvlink", Severity.OK, device=device.name, value=links.active, unit="links", pci=device.pci
                )
                continue
            others = [other.active for peer, other in compared if peer.model == device.model and peer is not device]
            yield _evaluate(device, links, others, self._seen[device.name])

    def forget(self) -> None:
        """Forget the past, after a run without answers: a driver that was away has retrained the links."""
        self._seen = {}


def _evaluate(device: Device, links: NvLinks, others: list[int], seen: _GpuLinks) -> Finding:
    expected = _expected_by_peers(device, links.active, others)
    seen.most = max(seen.most, links.active)
    due = links.count if device.fabric is not None else seen.most
    seen.missing = seen.missing + 1 if links.active < expected else 0
    seen.fewer = seen.fewer + 1 if links.active < due else 0
    message = f"{links.active} of its {links.count} links are up"
    if links.active < expected:
        message = f"{links.active} links are up; its peers have {expected}"
    elif links.active < seen.most:
        message = f"{links.active} links are up; there were {seen.most} before"
    fewer = Severity.WARNING.when(seen.fewer >= CONFIRMING_SAMPLES)
    return finding(
        "nvlink",
        Severity.FAULT if seen.missing >= CONFIRMING_SAMPLES else fewer,
        device=device.name,
        pci=device.pci,
        value=links.active,
        unit="links",
        message=message,
    )


def _expected_by_peers(device: Device, active: int, others: list[int]) -> int:
    """The number of links that this GPU should have up, judged by its peers.

    With NVSwitches (known by the fabric; A100 and older report none) the majority decides. Without, all peers must
    agree and the GPU must have links at all, because others may be bridged in pairs.
    """
    if device.fabric is not None:
        counts = sorted([active, *others])
        return counts[(len(counts) - 1) // 2]
    return others[0] if active and len(others) > 1 and len(set(others)) == 1 else active
