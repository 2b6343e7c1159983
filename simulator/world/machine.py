"""One machine: what is really the matter with it, whatever anybody reports about it.

A machine knows nothing of Kubernetes. Kubelet and agent follow it through ``listeners``; both die with its boots.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from agents.probes import follow
from kcover import fault
from simulator.world import agenda

UP, BOOTING, HUNG, DEAD = "up", "booting", "hung", "dead"
_KERNEL, _PROGRAM = 0, 1  # syslog facilities: the kernel lets no program write with its own
_RETURNS_AFTER = 2.0  # seconds of uptime until a fault that a boot did not cure is printed again


class Listener(Protocol):
    """What lives on a machine."""

    def went_down(self) -> None:
        """The machine stopped: reboot, hang, power."""

    def came_up(self) -> None:
        """A new boot began to answer."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """A fault that is still there. ``cure`` is what takes it away (``mix.CURES``); ``gpu`` an index, None for the node.

    ``lines`` are printed again after a boot that did not cure it. ``comes_back`` False: the next boot never ends.
    """

    kind: str
    code: int | str
    gpu: int | None
    cure: str
    lines: tuple[str, ...]
    since: datetime
    drill: bool = False
    comes_back: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One boot and why it happened."""

    boot_id: str
    at: datetime
    cause: str


@dataclass(slots=True)
class Machine:
    """A host with GPUs. ``boot_seconds``: a boot's duration; ``repair_seconds``: until a person comes, 0 = never."""

    name: str
    inventory: fault.Inventory
    agenda: agenda.Agenda
    boot_seconds: float
    repair_seconds: float
    power: str = UP
    boots: list[Boot] = field(default_factory=list)
    faults: list[Standing] = field(default_factory=list)
    log: follow.Memory = field(default_factory=follow.Memory)
    listeners: list[Listener] = field(default_factory=list)
    printed: Callable[[], None] | None = None  # told of every new line in the log

    def __post_init__(self) -> None:
        self._begin("power on")

    @property
    def boot_id(self) -> str:
        """The running (or, while down, the last) boot."""
        return self.boots[-1].boot_id

    @property
    def gpus(self) -> int:
        """How many devices are built in."""
        return len(self.inventory.gpus)

    def write(self, *lines: str, drill: bool = False) -> None:
        """Print to the kernel log, as the kernel or (``drill``) as a program does; not while it is down."""
        if self.power != UP:
            return
        for line in lines:
            self.log.write(line, at=self.agenda.now(), facility=_PROGRAM if drill else _KERNEL)
        if self.printed:
            self.printed()

    def suffer(self, standing: Standing, *, times: int = 1) -> None:
        """A fault begins: it is printed so many times, and stays until it is cured."""
        if standing.cure != "self":
            self.faults.append(standing)
        self.write(*standing.lines * times, drill=standing.drill)
        if standing.cure == "repair" and self.repair_seconds:
            self.agenda.after(self.repair_seconds, self.repair)

    def reboot(self, cause: str) -> bool:
        """Go down and, unless a fault keeps it from it, come up again. False when it is down already."""
        if self.power not in (UP, HUNG):
            return False
        was_up, self.power = self.power == UP, BOOTING
        if was_up:
            self._tell_down()
        self.agenda.after(self.boot_seconds, lambda: self._boot(cause))
        return True

    def hang(self) -> None:
        """Stop answering, with everything on it."""
        if self.power == UP:
            self.power = HUNG
            self._tell_down()

    def reset_gpu(self, index: int) -> bool:
        """Reset one device. True when no fault is left on it."""
        self.faults = [f for f in self.faults if f.gpu != index or f.cure != "reset"]
        left = [f for f in self.faults if f.gpu == index]
        for standing in left:
            self.write(*standing.lines, drill=standing.drill)
        return not left

    def repair(self) -> None:
        """A person comes: nothing is the matter any more, and a machine that is not up is switched on."""
        self.faults.clear()
        if self.power in (HUNG, DEAD):
            self.power = BOOTING
            self.agenda.after(self.boot_seconds, lambda: self._boot("repair"))

    def _boot(self, cause: str) -> None:
        if any(not standing.comes_back for standing in self.faults):
            self.power = DEAD
            return
        self.faults = [standing for standing in self.faults if standing.cure == "repair"]
        self.power = UP
        self._begin(cause)
        for listener in tuple(self.listeners):
            listener.came_up()
        if self.faults:
            self.agenda.after(_RETURNS_AFTER, self._print_again)

    def _begin(self, cause: str) -> None:
        self.boots.append(Boot(boot_id=str(uuid.uuid4()), at=self.agenda.now(), cause=cause))
        del self.boots[:-100]
        self.log.reboot()
        self.write(
            f"Linux version {self.inventory.kernel} (simulated)",
            f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {self.inventory.driver}",
        )

    def _print_again(self) -> None:
        for standing in self.faults:
            self.write(*standing.lines, drill=standing.drill)

    def _tell_down(self) -> None:
        for listener in tuple(self.listeners):
            listener.went_down()


def pci(index: int) -> str:
    """The address of the ``index``-th device in a machine, as the kernel prints it."""
    return f"0000:{_BUSES[index % len(_BUSES)]:02x}:{index // len(_BUSES):02x}"


_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)


def inventory(*, gpus: int, model: str, seed: str) -> fault.Inventory:
    """What a machine is made of. ``seed`` makes serials and UUIDs that stay the same from run to run."""
    return fault.Inventory(
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
