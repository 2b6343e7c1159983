"""iperf's ring among the nodes of a batch, after their other checks: one time step after the other (``kcover.ring``).

Who is in it, and which step it is at, stands in the run's row. A step is a command for each of its nodes, with the
partner's address; the next one begins when all have answered, or had their time. Who does not answer, has no iperf3 or
has GPUs in use by now leaves the ring, and the others go on.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kcover import autopilot, ring
from kcover_portal.fleet.models import CheckRun, CheckTurn, Command
from kcover_portal.fleet.services.checking import turns

CHECK = "iperf"
MOST = 64  # nodes: 63 steps of some ten seconds
SECONDS = 5  # a step, as Autopilot's
PARTNER = 30  # seconds that a node waits for its partner, which may hear of the step later

Asked = CheckTurn.State.ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What each node of a ring sends: so many clients at a time, each to a port of its own from ``port`` on."""

    clients: int = autopilot.CLIENTS
    port: int = autopilot.START_PORT


def planned(traffic: Traffic) -> dict[str, Any]:
    """What a run's row knows of its rings before the first one begins."""
    return asdict(traffic)


def under_way(run: CheckRun) -> bool:
    """Whether the nodes of the present batch are in a ring."""
    return bool(run.ring.get("members"))


def has(run: CheckRun, turn: CheckTurn) -> bool:
    """Whether the turn's node is in the ring."""
    return turn.place in run.ring.get("members", ())


def begin(run: CheckRun, members: Sequence[CheckTurn]) -> None:
    """The nodes of a batch are a ring from now on; of two or more, all with an address."""
    _keep(run, members=[turn.place for turn in members], step=0)


def go_on(run: CheckRun, *, now: datetime) -> list[CheckTurn]:
    """Asks the next step once nobody is still at the one before; returns the turns that ended with the last step."""
    if not under_way(run):
        return []
    members = list(run.turns.filter(place__in=run.ring["members"]).select_related("node").order_by("place"))
    here = [turn for turn in members if turn.state == Asked]
    if any(turn.command_id is not None for turn in here):
        return []
    step, pairs = _next_step(run, {turn.place: turn for turn in here})
    if pairs:
        _keep(run, step=step)
        _ask(run, step, pairs, now=now)
        return []
    _keep(run, members=[], step=0)
    gone = {turn.node.name for turn in members if turn.state != Asked}
    for turn in here:
        turn.results = [_excused(one, gone) for one in turn.results]
        turns.close(turn, now=now)
    CheckTurn.objects.bulk_update(here, turns.WRITTEN, batch_size=200)
    return here


def is_step(command: Command) -> bool:
    """Whether the command is one node's part of a step."""
    return "partner" in command.args


def results(command: Command, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a node says of its step: how fast it sent, the device being the partner's name, or why it did not.

    What its servers saw is the same traffic, and the sender tells of it.
    """
    hosts, partner = command.args["hosts"], command.args["partner"]
    kept = [{**one, "device": partner} for one in found if one["name"] == CHECK and one["device"] in hosts]
    kept += [one for one in found if one["name"] == CHECK and not one["device"]]
    return kept or ([turns.broke(CHECK, command, device=partner)] if hosts or not found else [])


def leaves(command: Command, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the node is of no more use to the ring: it did not take part at all."""
    return command.state != Command.State.DONE or any(not one["device"] for one in found)


def _next_step(run: CheckRun, here: Mapping[int, CheckTurn]) -> tuple[int, list[tuple[CheckTurn, CheckTurn]]]:
    """The next step that has a pair of which both are still here, and such pairs; none: the ring is over."""
    places = run.ring["members"]
    for step in range(run.ring["step"] + 1, ring.steps(len(places)) + 1):
        pairs = [(here[a], here[b]) for a, b in ring.pairs(places, step) if a in here and b in here]
        if pairs:
            return step, pairs
    return 0, []


def _ask(run: CheckRun, step: int, pairs: Sequence[tuple[CheckTurn, CheckTurn]], *, now: datetime) -> None:
    sends = {sender.place: server for sender, server in pairs}
    serves = {server.place for _, server in pairs}
    asked = {turn.place: turn for pair in pairs for turn in pair}
    for turn in asked.values():
        to = sends.get(turn.place)
        clients = run.ring["clients"]
        turn.command = Command(
            id=uuid.uuid4(),
            node=turn.node,
            key=f"{turns.KEY}{run.pk}-{turn.place}-ring-{step}",
            kind="run_check",
            args={
                "checks": [CHECK],
                "hosts": [to.node.address] if to is not None else [],
                "partner": to.node.name if to is not None else "",
                "serve": clients if turn.place in serves else 0,
                "port": run.ring["port"],
                "ports": clients,
                "clients": 1,
                "seconds": SECONDS,
                "wait": PARTNER,
                "idle": True,
            },
            created_at=now,
            expires_at=now + turns.HEARD_WITHIN + autopilot.patience((CHECK,), level=run.level),
        )
    Command.objects.bulk_create([turn.command for turn in asked.values() if turn.command is not None])
    CheckTurn.objects.bulk_update(asked.values(), ("command",))


def _excused(one: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    """Who could not reach a node that has left the ring did not break."""
    if one["name"] != CHECK or one["status"] != "error" or one["device"] not in gone:
        return one
    return {**one, "status": "skipped", "message": f"{one['device']} has left the ring: {one['message']}"[:1000]}


def _keep(run: CheckRun, **changes: Any) -> None:
    """Under the lock of the run's row."""
    run.ring = {**run.ring, **changes}
    CheckRun.objects.filter(pk=run.pk).update(ring=run.ring)
