"""InfiniBand and RoCE ports, as the kernel shows them under ``/sys/class/infiniband``."""

import pathlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.probes.finding import Finding, Observation, Severity, finding
from agents.probes.host.counter_files import Growth, read, read_number

DOWN_AFTER = timedelta(minutes=4)  # a port that is down for longer is a fault (gpud)
MAX_FLAPS, FLAP_WINDOW = 2, timedelta(minutes=5)  # ByteRobust
# Growth of any of these is a warning; NVIDIA's tools count them as link errors.
ERROR_COUNTERS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
ACTIVE = "ACTIVE"


@dataclass(slots=True)
class _Port:
    """The remembered state of one port.

    ``device``: its adapter on the PCI bus, if known. ``virtual``: a virtual function, made for a pod or virtual
    machine.
    """

    device: pathlib.Path | None
    virtual: bool
    expected: bool = False  # it was active before, or the settings name it
    best_rate: float = 0.0
    down_since: datetime | None = None
    flaps: deque[datetime] = field(default_factory=deque)

    @property
    def is_missed(self) -> bool:
        """True if the absence of the port is reported."""
        return self.expected and not self.virtual


class InfinibandProbe:
    """A port is expected once it was active, or if the settings name its adapter: an empty cage is not a fault.

    An expected port that disappears is treated like one that is down.
    """

    name = "infiniband"
    deadline_seconds = 15.0
    hang_severity = Severity.FAILURE

    def __init__(
        self,
        *,
        interval_seconds: float = 15.0,
        expected: tuple[str, ...] = (),
        root: pathlib.Path = pathlib.Path("/sys/class/infiniband"),
    ) -> None:
        """``expected``: adapters (``mlx5_0``) whose ports must all be active."""
        self.interval_seconds = interval_seconds
        self.expected, self._root = expected, root
        self._ports: dict[str, _Port] = {}
        self._growth = Growth()

    def observe(self, now: datetime) -> Observation:
        """The device is ``ADAPTER/PORT``."""
        findings: list[Finding] = []
        shown: set[str] = set()
        adapters = sorted(self._root.iterdir()) if self._root.is_dir() else []
        for adapter in adapters:
            for port in sorted((adapter / "ports").iterdir()):
                name = f"{adapter.name}/{port.name}"
                shown.add(name)
                self._ports.setdefault(name, _new_port(adapter))
                findings += self._port(name, port, adapter.name in self.expected, now=now)
        findings += (
            _missing(name, port, now=now) for name, port in self._ports.items() if name not in shown and port.is_missed
        )
        present = {adapter.name for adapter in adapters}
        for name in self.expected:
            message = "the adapter is missing"
            findings.append(finding("ib_port", Severity.FAULT.when(name not in present), device=name, message=message))
        return Observation(findings=tuple(findings))

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
        port.flaps.extend([now] * min(downs[0] if downs else 0, MAX_FLAPS))
        while port.flaps and not timedelta() <= now - port.flaps[0] <= FLAP_WINDOW:
            port.flaps.popleft()
        yield self._state(name, folder, port, state, now=now)
        yield from self._rate(name, folder, port, active=active)
        yield from self._errors(name, folder, now=now)

    def _state(self, name: str, folder: pathlib.Path, port: _Port, state: str, *, now: datetime) -> Finding:
        physical = (read(folder / "phys_state") or "").partition(": ")[2]
        lost = port.down_since is not None and (now - port.down_since >= DOWN_AFTER)
        flapping = len(port.flaps) >= MAX_FLAPS
        message = f"the port is {state} ({physical})" if physical else f"the port is {state}"
        if flapping and port.down_since is None:
            message = f"the port went down {len(port.flaps)} times within 5 minutes"
        severity = Severity.FAULT if lost or flapping else Severity.WARNING.when(port.down_since is not None)
        return finding("ib_port", severity, device=name, message=message)

    def _rate(self, name: str, folder: pathlib.Path, port: _Port, *, active: bool) -> Iterator[Finding]:
        """``400 Gb/sec (4X NDR)``, compared with the best rate of this port so far."""
        text = (read(folder / "rate") or "").partition(" ")[0]
        if not active or not text.replace(".", "", 1).isdecimal():
            return
        rate = float(text)
        port.best_rate = max(port.best_rate, rate)
        message = f"{rate:g} Gbit/s; it was {port.best_rate:g} Gbit/s before"
        severity = Severity.WARNING.when(rate < port.best_rate)
        yield finding("ib_rate", severity, device=name, value=rate, unit="Gbit/s", message=message)

    def _errors(self, name: str, folder: pathlib.Path, *, now: datetime) -> Iterator[Finding]:
        grown = {}
        for counter in ERROR_COUNTERS:
            growth = self._growth.of(f"{name} {counter}", read_number(folder / "counters" / counter), now=now)
            if growth is not None:
                grown[counter] = growth
        if grown:
            rate = sum(per_minute for _, per_minute in grown.values())
            message = ", ".join(f"{counter} +{count}" for counter, (count, _) in grown.items() if count)
            severity = Severity.WARNING.when(bool(message))
            yield finding("ib_errors", severity, device=name, value=round(rate, 1), unit="per min", message=message)


def _new_port(adapter: pathlib.Path) -> _Port:
    device = adapter / "device"
    return _Port(device=device.resolve() if device.exists() else None, virtual=(device / "physfn").exists())


def _missing(name: str, port: _Port, *, now: datetime) -> Finding:
    """The finding for a missing port.

    It is a fault only if the adapter is gone from the bus. Otherwise a pod may have been given the port.
    """
    port.down_since = port.down_since or now
    on_the_bus = port.device is not None and port.device.exists()
    lost = now - port.down_since >= DOWN_AFTER and not on_the_bus
    why = "; its adapter is still on the bus, so a pod may have it, or its driver released it" if on_the_bus else ""
    severity = Severity.FAULT if lost else Severity.WARNING
    return finding("ib_port", severity, device=name, message=f"the port has disappeared{why}")
