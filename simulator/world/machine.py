"""One machine and its actual faults, whatever anybody reports about it.

A machine knows nothing of Kubernetes. Kubelet and agent follow it through ``listeners``, and stop and start with it.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from agents.probes.log import sources
from kcover.faults import fault
from simulator.world import agenda
from simulator.world.agenda import PlannedAction

UP, BOOTING, HUNG, DEAD, OFF = "up", "booting", "hung", "dead", "off"
POWER_CYCLE = "power_cycle"  # a cure
_KERNEL, _PROGRAM = 0, 1  # syslog facilities: programs cannot write with the kernel's
_FAULT_RETURN_SECONDS = 2.0  # after a boot until remaining faults are printed again


class Listener(Protocol):
    """A program on a machine."""

    def went_down(self) -> None:
        """The machine stopped: a reboot, a hang, a power loss."""

    def came_up(self) -> None:
        """A new boot has finished."""


@dataclass(slots=True, kw_only=True)
class ActiveFault:
    """A fault that is present. ``cure``: what removes it (``injector.CURES``). ``gpu``: an index, None: the node.

    ``lines`` are printed again after a boot that did not cure it. If ``comes_back`` is False, the next boot never ends.
    If ``kubelet`` is False, the kubelet does not start while the fault is present.
    """

    kind: str
    code: int | str
    gpu: int | None
    cure: str
    lines: tuple[str, ...]
    since: datetime
    drill: bool = False
    comes_back: bool = True
    kubelet: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    boot_id: str
    at: datetime
    cause: str


@dataclass(slots=True)
class Machine:
    """A host with GPUs. ``boot_seconds``: how long a boot takes. ``repair_seconds``: until a person repairs it; 0 =
    never."""

    name: str
    inventory: fault.Inventory
    agenda: agenda.Agenda
    boot_seconds: float
    repair_seconds: float
    speed: float = 1.0  # of its GPUs and links, as a share of what they should reach
    nccl_fails: bool = False  # an all-reduce ends with an error
    power: str = UP
    boots: list[Boot] = field(default_factory=list)
    faults: list[ActiveFault] = field(default_factory=list)
    log: sources.MemoryLog = field(default_factory=sources.MemoryLog)
    listeners: list[Listener] = field(default_factory=list)
    printed: Callable[[], None] | None = None  # called for every new line in the log
    collectors: list[Callable[[str, datetime], None]] = field(default_factory=list)  # called with each new line
    arising: list[ActiveFault] = field(default_factory=list)  # faults that appear with the next boot
    _next_boot: PlannedAction | None = None

    def __post_init__(self) -> None:
        self._begin("power on")

    @property
    def boot_id(self) -> str:
        """The boot ID of the running boot, or of the last one while the machine is down."""
        return self.boots[-1].boot_id

    @property
    def gpus(self) -> int:
        return len(self.inventory.gpus)

    def write(self, *lines: str, drill: bool = False) -> None:
        """Write to the kernel log, as the kernel or (``drill``) as a program. Does nothing while the machine is
        down."""
        if self.power != UP:
            return
        for line in lines:
            self.log.write(line, at=self.agenda.now(), facility=_PROGRAM if drill else _KERNEL)
            for collect in self.collectors:
                collect(line, self.agenda.now())
        if self.printed:
            self.printed()

    def add_fault(self, active: ActiveFault, *, times: int = 1) -> None:
        """Add a fault: print its lines ``times`` times, and keep it until it is cured."""
        if active.cure != "self":
            self.faults.append(active)
        self.write(*active.lines * times, drill=active.drill)
        if active.cure == "repair" and self.repair_seconds:
            self.agenda.after(self.repair_seconds, self.repair)

    def reboot(self, cause: str) -> bool:
        """Go down, and come up again unless a fault prevents it. Return False if the machine is down already."""
        if self.power not in (UP, HUNG):
            return False
        was_up, self.power = self.power == UP, BOOTING
        if was_up:
            self._notify_down()
        self._plan_boot(cause)
        return True

    def power_off(self) -> bool:
        """Cut the power, whatever the machine does. Return False if it is off already."""
        if self.power == OFF:
            return False
        was_up, self.power = self.power == UP, OFF
        if self._next_boot is not None:
            self._next_boot.cancel()
        if was_up:
            self._notify_down()
        return True

    def power_on(self) -> bool:
        """Start a machine that is off. Return False if it is not off."""
        if self.power != OFF:
            return False
        self.power = BOOTING
        self.faults = [active for active in self.faults if active.cure != POWER_CYCLE]
        self._plan_boot("power on")
        return True

    def crash(self, active: ActiveFault) -> None:
        """Reboot by itself; the fault appears with the new boot."""
        if self.reboot("crash"):
            self.arising.append(active)

    @property
    def starts_kubelet(self) -> bool:
        """Return whether the kubelet of this boot has started."""
        return self.power == UP and all(active.kubelet for active in self.faults)

    def hang(self) -> None:
        if self.power == UP:
            self.power = HUNG
            self._notify_down()

    def reset_gpu(self, index: int) -> bool:
        """Reset one GPU. Return True if no fault remains on it."""
        self.faults = [f for f in self.faults if f.gpu != index or f.cure != "reset"]
        left = [f for f in self.faults if f.gpu == index]
        for active in left:
            self.write(*active.lines, drill=active.drill)
        return not left

    def repair(self) -> None:
        """A person repairs the machine: removes all faults and powers it on if it is not up."""
        self.faults.clear()
        if self.power in (HUNG, DEAD, OFF):
            self.power = BOOTING
            self._plan_boot("repair")

    def _plan_boot(self, cause: str) -> None:
        self._next_boot = self.agenda.after(self.boot_seconds, lambda: self._boot(cause))

    def _boot(self, cause: str) -> None:
        if any(not active.comes_back for active in self.faults):
            self.power = DEAD
            return
        self.faults = [*(active for active in self.faults if active.cure in ("repair", POWER_CYCLE)), *self.arising]
        self.arising.clear()
        self.power = UP
        self._begin(cause)
        for listener in tuple(self.listeners):
            listener.came_up()
        if self.faults:
            self.agenda.after(_FAULT_RETURN_SECONDS, self._print_again)

    def _begin(self, cause: str) -> None:
        self.boots.append(Boot(boot_id=str(uuid.uuid4()), at=self.agenda.now(), cause=cause))
        del self.boots[:-100]
        self.log.reboot()
        self.write(
            f"Linux version {self.inventory.kernel} (simulated)",
            f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {self.inventory.driver}",
        )

    def _print_again(self) -> None:
        for active in self.faults:
            self.write(*active.lines, drill=active.drill)

    def _notify_down(self) -> None:
        for listener in tuple(self.listeners):
            listener.went_down()


def pci(index: int) -> str:
    """The PCI address of the ``index``-th GPU of a machine, as the kernel prints it."""
    return f"0000:{_BUSES[index % len(_BUSES)]:02x}:{index // len(_BUSES):02x}"


_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)


def inventory(*, gpus: int, model: str, seed: str, serial: str = "") -> fault.Inventory:
    """The inventory of a machine. ``seed`` determines serials and UUIDs, so that they are the same in every run.

    ``serial``: the machine's own.
    """
    return fault.Inventory(
        machine_serial=serial,
        driver="580.95.05",
        kernel="6.8.0-85-generic",
        gpus=tuple(
            fault.Gpu(
                index=index,
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{seed}/{index}')}",
                pci=pci(index),
                model=model,
                serial=f"{uuid.uuid5(uuid.NAMESPACE_OID, f'{seed}/{index}').int % 10**13:013d}",
            )
            for index in range(gpus)
        ),
    )
