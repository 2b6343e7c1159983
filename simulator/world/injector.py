"""Faults on demand: validates the body of ``POST /sim/faults`` and applies it to one machine."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kcover.faults import catalog
from simulator.world import machine, mix, printk
from simulator.world.world import World

KINDS = ("xid", "sxid", "hang")
CURES = (*mix.CURES, machine.POWER_CYCLE)
MAX_CODE = 2**31 - 1
MAX_COUNT = 10_000
MAX_LINE = 4096
CRASH_DELAY_SECONDS = 2.0  # the agent has reported the fault by then
_FIELDS = ("node", "kind", "code", "gpu", "count", "line", "drill", "cure", "returns", "kill", "crash")


class OrderError(ValueError):
    """An invalid order: ``field`` and ``reason``."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A fault to inject into a node.

    ``kind`` ``hang`` stops the whole machine. ``line`` replaces the driver's line. ``count``: how often the line is
    printed. ``drill``: the line is written by a program, not by the kernel. ``cure``: what removes the fault
    (``CURES``). If ``returns`` is False, the machine does not come back from its next boot. ``kill`` crashes the
    programs on the GPU. ``crash``: the machine reboots by itself a moment later, and the kubelet does not
    start until another reboot.
    """

    node: str
    kind: str
    code: int
    gpu: int | None = None
    count: int = 1
    line: str = ""
    drill: bool = False
    cure: str = "reboot"
    returns: bool = True
    kill: bool = False
    crash: bool = False


def parse(body: object) -> Order:
    """An order from decoded JSON. Raises OrderError.

    The default of ``cure`` is ``reboot``; for an Xid that a user's program causes, it is ``self``.
    """
    if not isinstance(body, dict):
        raise OrderError("body", "must be a JSON object")
    for key in body:
        if key not in _FIELDS:
            raise OrderError(str(key), f"unknown field; known: {', '.join(_FIELDS)}")
    node = body.get("node")
    if not isinstance(node, str) or not node:
        raise OrderError("node", "must be the name of a node")
    kind = body.get("kind", "xid")
    if kind not in KINDS:
        raise OrderError("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    code = 0 if kind == "hang" else _integer(body, "code", most=MAX_CODE)
    if code is None:
        raise OrderError("code", f"must be a number from 0 to {MAX_CODE}")
    line = body.get("line") or ""
    if not isinstance(line, str) or len(line) > MAX_LINE or "\n" in line:
        raise OrderError("line", f"must be one line of at most {MAX_LINE} characters")
    cure = body.get("cure") or ("self" if kind != "hang" and catalog.is_user_fault(kind, code) else "reboot")
    if cure not in CURES:
        raise OrderError("cure", f"must be one of {', '.join(CURES)}, not {cure!r}")
    return Order(
        node=node,
        kind=kind,
        code=code,
        gpu=_integer(body, "gpu", least=-MAX_CODE, most=MAX_CODE),  # inject() checks it against the node
        count=_integer(body, "count", least=1, most=MAX_COUNT) or 1,
        line=line,
        drill=_boolean(body, "drill", default=False),
        cure=cure,
        returns=_boolean(body, "returns", default=True),
        kill=_boolean(body, "kill", default=False),
        crash=_boolean(body, "crash", default=False),
    )


def inject(world: World, order: Order) -> tuple[str, ...]:
    """Apply an order; returns the printed lines.

    Raises KeyError for an unknown node, OrderError for a GPU that the node does not have or a machine that is down.
    """
    host = world.machines[order.node]
    if order.gpu is not None and not 0 <= order.gpu < host.gpus:
        raise OrderError("gpu", f"{_has(host)}, not {order.gpu}")
    gpu = None
    if order.kind == "xid":
        gpu = order.gpu or 0
        if not host.gpus:
            raise OrderError("gpu", _has(host))
    if host.power != machine.UP:
        raise OrderError("node", f"{order.node} is {host.power} and prints nothing")
    lines = _lines(order, gpu)
    active = machine.ActiveFault(
        kind=order.kind,
        code=order.code or order.kind,
        gpu=gpu,
        cure=order.cure,
        lines=lines,
        since=world.agenda.now(),
        drill=order.drill,
        comes_back=order.returns,
    )
    host.add_fault(active, times=order.count)
    if order.crash:
        lasting = replace(active, lines=(), kubelet=False)
        world.agenda.after(CRASH_DELAY_SECONDS, lambda: host.crash(lasting))
    if order.kind == "hang":
        host.hang()
    elif order.kill:
        world.crash_on(order.node, gpu, message=f"CUDA error: {order.kind} {order.code}")
    return lines


def _has(host: machine.Machine) -> str:
    return f"{host.name} has GPUs 0 to {host.gpus - 1}" if host.gpus else f"{host.name} has no GPUs"


def _lines(order: Order, gpu: int | None) -> tuple[str, ...]:
    if order.line:
        return (order.line,)
    if order.kind == "hang":
        return ()
    if order.kind == "sxid":
        return tuple(printk.sxid(order.code))
    slot = machine.pci(gpu or 0)
    return (*printk.before(order.code, slot), *printk.xid(order.code, slot, process=process_on(order.node)))


def process_on(node: str) -> printk.Process:
    """The process name and pid that the driver prints for Xids that it attributes to a process."""
    return printk.Process(pid=4000 + zlib.crc32(node.encode()) % 20_000, name="pt_main_thread")


def _integer(body: Mapping[str, Any], field: str, *, most: int, least: int = 0) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise OrderError(field, f"must be a number from {least} to {most}, not {value!r}")
    return value


def _boolean(body: Mapping[str, Any], field: str, *, default: bool) -> bool:
    value = body.get(field, default)
    if not isinstance(value, bool):
        raise OrderError(field, f"must be true or false, not {value!r}")
    return value
