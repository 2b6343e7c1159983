"""Where a rescue can be struck, and by what: the rows and columns of the crash matrix.

A point is one call that a step makes, told apart from every other by what is asked and of which node. «before» is the
moment at which the call has been begun (for a write: its ledger entry is committed) and has had no effect; «after» is
the moment at which it has had its effect and the portal has not heard of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from tests.crash.plans import PODS

STATE, RESCUE = "kcover.io/state", "kcover.io/rescue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call of one step. ``plan`` is the walk-through that makes it (``plans.PLANS``).

    ``match``, ``body``, ``seen`` and ``skip`` tell it apart, as the simulator's API faults do, with ``{node}`` and
    ``{boot}`` (the boot that is to end) filled in. ``row``: the call is no request but a row for the agent, whose key
    begins so; the rest then is about the request before it.
    ``hook``: the call goes to another system (``other_system``) and not to a cluster.
    ``late``: only after the reboot.
    """

    step: str
    call: str
    plan: str
    match: str = ""
    body: str = ""
    seen: str = ""
    skip: int = 0
    row: str = ""
    hook: bool = False
    late: bool = False

    def fault(self, *, node: str, boot: str) -> dict[str, Any]:
        """What the simulator is to look for."""
        places = {"node": node, "boot": boot}
        return {
            "match": _filled(self.match, places),
            "body": _filled(self.body, places),
            "object": _filled(self.seen, places),
            "skip": self.skip,
        }


def _filled(text: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


_NODE = "/api/v1/nodes/{node}$"
_EVICTION = "POST /api/v1/namespaces/default/pods/{node}-%s/eviction$"
_REBOOTING = f'"{STATE}":"rebooting"'
_STANDING_IN = r'"kcover\.io/standing-in":"\{\\"active\\":%s,.*\\"origin\\":\\"{node}\\"'
POINTS = (
    Point(step="cordon", call="PATCH node", plan="agent", match=f"PATCH {_NODE}", body='"unschedulable":true'),
    Point(step="drain", call="PATCH node (label)", plan="agent", match=f"PATCH {_NODE}", body=f'"{STATE}":"draining"'),
    Point(step="drain", call="POST eviction, first pod", plan="agent", match=_EVICTION % PODS[0]),
    Point(step="drain", call="POST eviction, last pod", plan="agent", match=_EVICTION % PODS[-1]),
    Point(step="reboot", call="PATCH node (label)", plan="agent", match=f"PATCH {_NODE}", body=_REBOOTING),
    Point(
        step="reboot", call="command for the agent", plan="agent", match=f"PATCH {_NODE}", body=_REBOOTING, row="reboot"
    ),
    Point(
        step="reboot",
        call="POST job",
        plan="job",
        match="POST /apis/batch/v1/namespaces/[^/]+/jobs$",
        body='"nodeName":"{node}"',
    ),
    Point(
        step="reboot",
        call="GET node, once asked for",
        plan="agent",
        match=f"GET {_NODE}",
        seen=_REBOOTING,
    ),
    Point(
        step="ready",
        call="GET node",
        plan="agent",
        match=f"GET {_NODE}",
        seen=f"^(?=.*{_REBOOTING})(?!.*{{boot}})",
        skip=1,  # the first look at the new boot is the reboot step's
        late=True,
    ),
    Point(step="label", call="PATCH node", plan="mend", match=f"PATCH {_NODE}", body='"example.com/health":"xid-'),
    Point(
        step="standby",
        call="PATCH spare (promise)",
        plan="mend",
        match="PATCH /api/v1/nodes/",
        body=_STANDING_IN % "false",
    ),
    Point(
        step="standby",
        call="PATCH spare (into service)",
        plan="mend",
        match="PATCH /api/v1/nodes/",
        body=_STANDING_IN % "true",
    ),
    Point(
        step="restart_jobs",
        call="DELETE pod",
        plan="mend",
        match="DELETE /api/v1/namespaces/default/pods/{node}-job",
    ),
    Point(step="webhook", call="POST to another system", plan="mend", hook=True),
    Point(
        step="reset",
        call="command for the agent",
        plan="mend",
        match=f"PATCH {_NODE}",
        body=f'^(?!.*unschedulable).*"{STATE}":"quarantined"',
        row="reset",
        late=True,
    ),
    Point(
        step="run_checks",
        call="command for the agent",
        plan="mend",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"verifying"',
        row="checks",
        late=True,
    ),
    Point(
        step="verify", call="PATCH node (label)", plan="agent", match=f"PATCH {_NODE}", body=f'"{STATE}":"verifying"'
    ),
    Point(step="verify", call="GET node", plan="agent", match=f"GET {_NODE}", seen=f'"{STATE}":"verifying"', late=True),
    Point(step="uncordon", call="PATCH node", plan="agent", match=f"PATCH {_NODE}", body=f'"{RESCUE}":null', late=True),
    Point(step="taint", call="PATCH node", plan="taint", match=f"PATCH {_NODE}", body='"taints":\\[.*konduktor'),
    Point(step="release", call="PATCH node", plan="taint", match=f"PATCH {_NODE}", body=f'"{RESCUE}":null'),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What strikes. ``status``: an answer of the API server, as the simulator names it; else a process is hit."""

    name: str
    words: str
    status: int | str | None = None


KILLED = Failure(name="killed", words="worker SIGKILL")
FLUSHED = Failure(name="flushed", words="Redis flushed")
BROKER = Failure(name="broker", words="Redis killed and started")
FAST = Failure(name="fast", words="PostgreSQL restarted (fast)")
IMMEDIATE = Failure(name="immediate", words="PostgreSQL restarted (immediate)")
FAILURES = (
    KILLED,
    FLUSHED,
    BROKER,
    FAST,
    IMMEDIATE,
    Failure(name="409", words="API 409", status=409),
    Failure(name="429", words="API 429", status=429),
    Failure(name="500", words="API 500", status=500),
    Failure(name="504", words="API 504", status=504),
    Failure(name="timeout", words="API time-out", status="timeout"),
    Failure(name="cut", words="API connection cut", status="cut"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the matrix, to be tried on a node of its own."""

    point: Point
    failure: Failure
    after: bool

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        return f"{self.failure.words} {when} {self.point.step}: {self.point.call}"


def column(failure: Failure) -> list[Case]:
    """Every point, before and after."""
    cases = (Case(point=point, failure=failure, after=after) for point in POINTS for after in (False, True))
    return [case for case in cases if _possible(case)]


def _possible(case: Case) -> bool:
    """The agent's row is no request that an API server could answer wrongly; and another system that took an order and
    then says 409, that it will not, is beyond help: whoever believes it orders once more."""
    if case.point.row:
        return case.failure is KILLED
    return not (case.point.hook and case.after and case.failure.status == 409)


def sample() -> list[list[Case]]:
    """Each request struck by a SIGKILL, each failure striking some point, before and after taking turns; in waves."""
    points = [point for point in POINTS if not point.row]
    killed = [
        Case(point=point, failure=KILLED, after=after)
        for point, after in zip(points, cycle((False, True)), strict=False)
    ]
    rest = [
        Case(point=point, failure=failure, after=after)
        for failure, point, after in zip(FAILURES[1:], _spread(points), cycle((True, False)), strict=False)
    ]
    slow = [case for case in rest if case.failure in (FAST, IMMEDIATE)]  # they cost a lease, as a SIGKILL does
    return [killed, slow, [case for case in rest if case not in slow]]


def sample_of_rows() -> list[list[Case]]:
    """The agent's rows struck by a SIGKILL, before and after. Apart from the requests: a blow that is meant for others
    would find their workers on the way from their last request to the row."""
    return [[case for case in column(KILLED) if case.point.row]]


def _spread(points: list[Point]) -> Iterator[Point]:
    """The points over and over, in strides, so that neighbours in a list strike different steps."""
    return (points[(number * 5 + 2) % len(points)] for number in cycle(range(len(points))))
