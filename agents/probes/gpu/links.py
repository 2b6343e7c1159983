"""Which NVLinks are missing: what one GPU has up, beside what its peers have and what it had before."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.probes.device import Device, Links
from agents.probes.finding import Finding, finding

LOOKS = 3  # a missing NVLink is confirmed by as many looks


@dataclass(slots=True)
class _Seen:
    """One GPU: the most links that were up; looks in a row with fewer than its peers have, or than are due."""

    most: int = 0
    missing: int = 0
    fewer: int = 0


class Linked:
    """Compares the GPUs of one node, look by look. It keeps in mind only what was while the same GPUs answered: a GPU
    that enters MIG mode, is lost or goes to a virtual machine takes its ends of bridges along, and its partners are
    well. A GPU in MIG mode uses no links itself."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, devices: Iterable[Device]) -> Iterator[Finding]:
        """The check ``nvlink`` of each.

        Missing, and a fault, is what the peers still have, as only then nothing that they share is down. Fewer than
        before, or where NVSwitches join all GPUs than the GPU says it has, warn: without them a link may have no
        bridge, by design.
        """
        there = [(one, one.nvlink) for one in devices if not one.lost and one.nvlink is not None]
        asked = [(one, links) for one, links in there if not one.mig]
        if {one.name for one, _ in asked} != set(self._seen):
            self._seen = {one.name: _Seen() for one, _ in asked}
        for device, links in there:
            if device.mig:  # it needs none, so that it lacks none
                yield finding("nvlink", False, device=device.name, value=links.active, unit="links", pci=device.pci)
                continue
            others = [other.active for peer, other in asked if peer.model == device.model and peer is not device]
            yield _judge(device, links, others, self._seen[device.name])

    def forget(self) -> None:
        """For looks at which nobody could be asked: a driver that was away has linked its GPUs anew."""
        self._seen = {}


def _judge(device: Device, links: Links, others: list[int], seen: _Seen) -> Finding:
    usual = _usual(device, links.active, others)
    seen.most = max(seen.most, links.active)
    due = links.count if device.fabric is not None else seen.most
    seen.missing = seen.missing + 1 if links.active < usual else 0
    seen.fewer = seen.fewer + 1 if links.active < due else 0
    message = f"{links.active} of the {links.count} links that it has are up"
    if links.active < usual:
        message = f"{links.active} links are up, {usual} on its peers"
    elif links.active < seen.most:
        message = f"{links.active} links are up, {seen.most} were before"
    return finding(
        "nvlink",
        "fail" if seen.missing >= LOOKS else "warn" if seen.fewer >= LOOKS else False,
        device=device.name,
        pci=device.pci,
        value=links.active,
        unit="links",
        message=message,
        fault=True,
    )


def _usual(device: Device, active: int, others: list[int]) -> int:
    """How many links this GPU would have up by its peers. Where NVSwitches join them (by the fabric; A100 and older do
    not tell of one) most say it, elsewhere only all together and of a GPU that has links at all: others may be bridged
    in pairs."""
    if device.fabric is not None:
        counts = sorted([active, *others])
        return counts[(len(counts) - 1) // 2]
    return others[0] if active and len(others) > 1 and len(set(others)) == 1 else active
