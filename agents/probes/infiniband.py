"""InfiniBand and RoCE ports, as the kernel shows them under ``/sys/class/infiniband``."""

import pathlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.probes.counters import Growth, read, read_number
from agents.probes.finding import Finding, Reading, finding

DOWN = timedelta(minutes=4)  # a port that is down this long is lost (gpud)
FLAPS, FLAP_WINDOW = 2, timedelta(minutes=5)  # ByteRobust
# Any growth of these is worth a warning; NVIDIA's own tools count them as errors of the link.
ERRORS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
ACTIVE = "ACTIVE"


@dataclass(slots=True)
class _Port:
    """What is remembered of one port. ``device``: its adapter's on the PCI bus, where that is known; ``virtual``: it is
    one of those that are made for pods and machines, and go with them."""

    device: pathlib.Path | None
    virtual: bool
    expected: bool = False  # it was active once, or the settings name it
    best_rate: float = 0.0
    down_since: datetime | None = None
    flaps: deque[datetime] = field(default_factory=deque)

    @property
    def counts(self) -> bool:
        """Whether it is missed where it is not shown any more."""
        return self.expected and not self.virtual


class InfinibandProbe:
    """An ``agents.probes.finding.Probe``. A port counts from when it was first seen active, or is named in the
    settings: an empty cage is no fault. One that counts and is not shown any more is lost like one that is down."""

    name = "infiniband"
    deadline = 15.0
    hung_is_fault = False

    def __init__(
        self,
        *,
        every: float = 15.0,
        expected: tuple[str, ...] = (),
        root: pathlib.Path = pathlib.Path("/sys/class/infiniband"),
    ) -> None:
        """``expected``: adapters (``mlx5_0``) whose ports must all be active."""
        self.every = every
        self._expected, self._root = expected, root
        self._ports: dict[str, _Port] = {}
        self._growth = Growth()

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The device is ``ADAPTER/PORT``."""
        findings: list[Finding] = []
        shown: set[str] = set()
        adapters = sorted(self._root.iterdir()) if self._root.is_dir() else []
        for adapter in adapters:
            for port in sorted((adapter / "ports").iterdir()):
                name = f"{adapter.name}/{port.name}"
                shown.add(name)
                self._ports.setdefault(name, _known(adapter))
                findings += self._port(name, port, adapter.name in self._expected, now=now)
        findings += (
            _missing(name, port, now=now) for name, port in self._ports.items() if name not in shown and port.counts
        )
        there = {adapter.name for adapter in adapters}
        for name in self._expected:
            message = "the adapter is not there"
            findings.append(finding("ib_port", name not in there, device=name, message=message, fault=True))
        return Reading(findings=tuple(findings))

    def _port(self, name: str, folder: pathlib.Path, named: bool, *, now: datetime) -> Iterator[Finding]:
        port = self._ports[name]
        state = (read(folder / "state") or "unreadable").partition(": ")[2] or "unreadable"
        active = state == ACTIVE
        port.expected = port.expected or active or named
        if not port.expected:
            return
        if active:
            port.down_since = None
        elif port.down_since is None:
            port.down_since = now
        downs = self._growth.of(f"{name} downs", read_number(folder / "counters" / "link_downed"), now=now)
        port.flaps.extend([now] * min(downs[0] if downs else 0, FLAPS))
        while port.flaps and not timedelta() <= now - port.flaps[0] <= FLAP_WINDOW:
            port.flaps.popleft()
        yield self._state(name, folder, port, state, now=now)
        yield from self._rate(name, folder, port, active=active)
        yield from self._errors(name, folder, now=now)

    def _state(self, name: str, folder: pathlib.Path, port: _Port, state: str, *, now: datetime) -> Finding:
        physical = (read(folder / "phys_state") or "").partition(": ")[2]
        lost = port.down_since is not None and (now - port.down_since >= DOWN)
        flapping = len(port.flaps) >= FLAPS
        words = f"is {state} ({physical})" if physical else f"is {state}"
        if flapping and port.down_since is None:
            words = f"went down {len(port.flaps)} times within 5 minutes"
        bad = "fail" if lost or flapping else "warn" if port.down_since else False
        return finding("ib_port", bad, device=name, message=words, fault=True)

    def _rate(self, name: str, folder: pathlib.Path, port: _Port, *, active: bool) -> Iterator[Finding]:
        """``400 Gb/sec (4X NDR)``, held against the best this port has shown."""
        text = (read(folder / "rate") or "").partition(" ")[0]
        if not active or not text.replace(".", "", 1).isdecimal():
            return
        rate = float(text)
        port.best_rate = max(port.best_rate, rate)
        message = f"{rate:g} Gbit/s, it had {port.best_rate:g}"
        slow = "warn" if rate < port.best_rate else False
        yield finding("ib_rate", slow, device=name, value=rate, unit="Gbit/s", message=message)

    def _errors(self, name: str, folder: pathlib.Path, *, now: datetime) -> Iterator[Finding]:
        grown = {}
        for counter in ERRORS:
            one = self._growth.of(f"{name} {counter}", read_number(folder / "counters" / counter), now=now)
            if one is not None:
                grown[counter] = one
        if grown:
            rate = sum(per_minute for _, per_minute in grown.values())
            words = ", ".join(f"{counter} +{count}" for counter, (count, _) in grown.items() if count)
            bad = "warn" if words else False
            yield finding("ib_errors", bad, device=name, value=round(rate, 1), unit="per min", message=words)


def _known(adapter: pathlib.Path) -> _Port:
    device = adapter / "device"
    return _Port(device=device.resolve() if device.exists() else None, virtual=(device / "physfn").exists())


def _missing(name: str, port: _Port, *, now: datetime) -> Finding:
    """A fault only where the adapter is gone from the bus: a pod may have been given the port for itself."""
    port.down_since = port.down_since or now
    on_the_bus = port.device is not None and port.device.exists()
    lost = now - port.down_since >= DOWN and not on_the_bus
    why = "; its adapter is on the bus: a pod has it, or its driver gave it up" if on_the_bus else ""
    return finding(
        "ib_port", "fail" if lost else "warn", device=name, message=f"is not shown any more{why}", fault=True
    )
