"""iperf's ring among the nodes of a batch, after their other checks, one step at a time (``kcover.checks.iperf_ring``).

The members and the current step are stored in the run's row. A step is one command per member, with the address of its
partner; the next step begins when all members have answered or timed out. A node that does not answer, has no iperf3
or whose GPUs are in use by now leaves the ring, and the others continue.

On the data plane, the nodes first tell the addresses of their interfaces. Then the ring goes round once for each
interface that all of them have.
"""

import ipaddress
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kcover import reasons
from kcover.checks import autopilot, iperf_ring
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.checks.services import node_checks
from kcover_portal.fleet.models import Command

CHECK = "iperf"
MANAGEMENT, DATA = "mgmt", "data"
PLANES = (MANAGEMENT, DATA)
ADDRESS = "address"  # unit of a result that tells the address of an interface, in its message
MAX_RING_NODES = 64  # 63 steps of about ten seconds
STEP_SECONDS = 5  # of traffic, as Autopilot
PARTNER_WAIT_SECONDS = 30  # the partner may receive its command later

Requested = CheckTarget.State.REQUESTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic of each node of a ring.

    ``clients``: concurrent processes, each to its own port, counted up from ``port``. On the data plane they are
    divided among the interfaces, at least one for each. ``streams``: of each process. ``plane``: ``mgmt``, the
    InternalIP of each node, or ``data``, its other interfaces.
    """

    clients: int = autopilot.IPERF_CLIENTS
    port: int = autopilot.IPERF_START_PORT
    streams: int = 1
    plane: str = MANAGEMENT


def planned(traffic: Traffic) -> dict[str, Any]:
    """The initial value of ``CheckRun.ring``."""
    return asdict(traffic)


def under_way(run: CheckRun) -> bool:
    """Returns whether the nodes of the present batch are in a ring."""
    return bool(run.ring.get("members"))


def has(run: CheckRun, target: CheckTarget) -> bool:
    """Returns whether the node is in the present ring."""
    return target.place in run.ring.get("members", ())


def begin(run: CheckRun, members: Sequence[CheckTarget]) -> None:
    """Starts a ring of these nodes; needs two or more, all with an address."""
    interfaces = None if run.ring.get("plane") == DATA else [""]
    _keep(run, members=[target.place for target in members], step=0, interfaces=interfaces, addresses={})


def step_count(run: CheckRun) -> int:
    """Returns the number of steps of the present ring; 0 while the interfaces of its nodes are unknown."""
    return iperf_ring.step_count(len(run.ring.get("members", ()))) * len(_interfaces(run) or ())


def go_on(run: CheckRun, *, now: datetime) -> list[CheckTarget]:
    """Requests the next step once the present one is over. Returns the nodes that are finished after the last step."""
    if not under_way(run):
        return []
    members = list(run.targets.filter(place__in=run.ring["members"]).select_related("node").order_by("place"))
    present = [target for target in members if target.state == Requested]
    if any(target.command_id is not None for target in present):
        return []
    if _interfaces(run) is None:
        _keep(run, interfaces=[])
        _send_all(run, {target.place: _address_args(target) for target in present}, present, now=now)
        return []
    if not _interfaces(run):
        _keep_addresses(run, present)
    step, pairs = _next_step(run, {target.place: target for target in present})
    if pairs:
        _keep(run, step=step)
        _ask(run, step, pairs, now=now)
        return []
    _keep(run, members=[], step=0)
    gone = {target.node.name for target in members if target.state != Requested}
    for target in present:
        target.results = [_excused(result, gone) for result in target.results]
        node_checks.close(target, now=now)
    CheckTarget.objects.bulk_update(present, node_checks.WRITTEN_FIELDS, batch_size=200)
    return present


def is_step(command: Command) -> bool:
    """Returns whether the command is part of a step of a ring."""
    return "partner" in command.args


def results(command: Command, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A node's results of a step: its sending rate with the partner's name as device, or why it did not send.

    Results of its servers are dropped, because the sender reports the same traffic.
    """
    if "addresses_without" in command.args:
        told = [result for result in found if result["name"] == CHECK]
        return told or [node_checks.broke(CHECK, command)]
    hosts, partner = command.args["hosts"], command.args["partner"]
    kept = [{**result, "device": partner} for result in found if result["name"] == CHECK and result["device"] in hosts]
    kept += [result for result in found if result["name"] == CHECK and not result["device"]]
    return kept or ([node_checks.broke(CHECK, command, device=partner)] if hosts or not found else [])


def leaves(command: Command, found: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether the node leaves the ring because it did not take part in the step."""
    return command.state != Command.State.DONE or any(not result["device"] for result in found)


def _interfaces(run: CheckRun) -> list[str] | None:
    """The interfaces of the ring: [""] for the InternalIP, None before the nodes are asked, [] before they answer."""
    kept: list[str] | None = run.ring.get("interfaces", [""])
    return kept


def _next_step(run: CheckRun, present: Mapping[int, CheckTarget]) -> tuple[int, list[tuple[CheckTarget, CheckTarget]]]:
    """The next step with a complete pair, and its complete pairs. No pairs: the ring is over."""
    places = run.ring["members"]
    for step in range(run.ring["step"] + 1, step_count(run) + 1):
        turn = _interface_and_turn(run, step)[1]
        pairs = [(present[a], present[b]) for a, b in iperf_ring.pairs(places, turn) if a in present and b in present]
        if pairs:
            return step, pairs
    return 0, []


def _interface_and_turn(run: CheckRun, step: int) -> tuple[str, int]:
    """The interface of a step, "" for the InternalIP, and the step of that interface's ring."""
    turns = iperf_ring.step_count(len(run.ring["members"]))
    return (_interfaces(run) or [""])[(step - 1) // turns], (step - 1) % turns + 1


def _ask(run: CheckRun, step: int, pairs: Sequence[tuple[CheckTarget, CheckTarget]], *, now: datetime) -> None:
    interface = _interface_and_turn(run, step)[0]
    addresses = run.ring.get("addresses", {}).get(interface, {})
    sends = {sender.place: server for sender, server in pairs}
    serves = {server.place for _, server in pairs}
    targets = {target.place: target for pair in pairs for target in pair}
    clients = max(1, run.ring["clients"] // len(_interfaces(run) or [""]))
    args: dict[int, dict[str, Any]] = {}
    for place in targets:
        to = sends.get(place)
        args[place] = {
            "hosts": [addresses.get(str(to.place), to.node.address)] if to is not None else [],
            "partner": f"{to.node.name} {interface}".rstrip() if to is not None else "",
            "serve": clients if place in serves else 0,
            "port": run.ring["port"],
            "ports": clients,
            "clients": run.ring.get("streams", 1),
            "seconds": STEP_SECONDS,
            "wait": PARTNER_WAIT_SECONDS,
            **({"bind": addresses[str(place)]} if interface else {}),
        }
    _send_all(run, args, list(targets.values()), now=now)


def _address_args(target: CheckTarget) -> dict[str, Any]:
    return {"hosts": [], "partner": "", "addresses_without": [target.node.address]}


def _send_all(
    run: CheckRun, args: Mapping[int, Mapping[str, Any]], targets: Sequence[CheckTarget], *, now: datetime
) -> None:
    """Requests iperf from these nodes, with the arguments by place."""
    for target in targets:
        target.command = Command(
            id=uuid.uuid4(),
            node=target.node,
            key=f"run-{run.pk}-{target.place}-ring-{run.ring['step']}",
            requester_kind=Command.Requester.CHECK_RUN,
            requester_id=run.pk,
            kind="run_check",
            args={"checks": [CHECK], **args[target.place], "idle": True},
            created_at=now,
            expires_at=now + node_checks.PICKUP_TIMEOUT + autopilot.time_limit((CHECK,), level=run.level),
        )
    Command.objects.bulk_create([target.command for target in targets if target.command is not None])
    CheckTarget.objects.bulk_update(targets, ("command",))


def _keep_addresses(run: CheckRun, present: Sequence[CheckTarget]) -> None:
    """Keeps the interfaces that all nodes have, with their addresses; the others are left out of the ring."""
    told: dict[int, dict[str, str]] = {}
    for target in present:
        rows = [result for result in target.results if result["name"] == CHECK and result["unit"] == ADDRESS]
        told[target.place] = {row["device"]: row["message"] for row in rows if _is_host_address(row["message"])}
        target.results = [result for result in target.results if result not in rows]
    common = sorted(set.intersection(*map(set, told.values()))) if told else []
    if not common:
        for target in present:
            target.results.append(node_checks.skipped(CHECK, reasons.of("ring_without_interface")))
    CheckTarget.objects.bulk_update(present, ("results",))
    addresses = {name: {str(place): found[name] for place, found in told.items()} for name in common}
    _keep(run, interfaces=common, addresses=addresses)


def _is_host_address(text: str) -> bool:
    """Return whether an agent may name the address as its own. No node shall make the others send to such addresses."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved)


def _excused(result: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    """Turns an error towards a node that has left the ring into a skipped check."""
    if result["name"] != CHECK or result["status"] != "error" or result["device"].partition(" ")[0] not in gone:
        return result
    because = result.get(node_checks.BECAUSE)
    earlier = reasons.from_json(because) if because else result["message"][:900]
    left = reasons.of("partner_left_ring", node=result["device"].partition(" ")[0], why=earlier)
    return {**result, "status": "skipped", **node_checks.explained(left)}


def _keep(run: CheckRun, **changes: Any) -> None:
    """Writes the ring; the caller holds the lock of the run's row."""
    run.ring = {**run.ring, **changes}
    CheckRun.objects.filter(pk=run.pk).update(ring=run.ring)
