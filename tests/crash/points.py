"""The calls at which a rescue can fail, and the failures: the rows and columns of the crash matrix.

A point is one call of a step, identified by its request and its node. «before»: the call has begun (for a write: its
ledger entry is committed) and has had no effect. «after»: the call has had its effect, and the portal has no answer
yet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from tests.crash.plans import PODS
from tests.share import in_share

STATE, RESCUE, EXCLUDE = "kcover.io/state", "kcover.io/rescue", "kcover.io/exclude"
ORDER = "order"  # of a person, about a training job
PAIR = "pair_test"  # of preflight
PROBATION = "probation"  # its end, which is no step of a rescue
SHARES = 8  # a run has an eighth of the SIGKILLs of the sample
SOON = 5.0  # seconds: what comes later is late
# Cases that wait for one blow. A worker has 32 connections to an API server, and each case keeps one meanwhile.
MOST_IN_WAVE = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call of one step. ``plan`` is the walk-through that makes it (``plans.PLANS``).

    ``match``, ``body``, ``seen`` and ``skip`` tell it apart, as the simulator's API faults do, with ``{node}`` and
    ``{boot}`` (the boot that is to end) filled in. ``row``: the call is no request but a row (for the agent, or of a
    validation), whose key begins so; the rest then is about the request before it.
    ``hook``: the call goes to another system (``other_system``) and not to a cluster.
    ``comes``: so many seconds after the fault it comes, about. ``unclear``: a call that was lost is noticed only by a
    time limit, after a minute or more.
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
    comes: float = 1.0
    unclear: bool = False

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
_READINESS = '"taints":\\[.*kcover.io/not-ready'
_RESET = "POST /redfish/v1/Systems/{node}/Actions/ComputerSystem.Reset$"
_OBJECTS = {
    "Machine": "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
}
_JANITOR = "POST /apis/janitor.dgxc.nvidia.com/v1alpha1/%s$"
_DRA = "/apis/resource.k8s.io"
_NAMED = '"nodeName":"{node}"'
_REPAIR = f'"{STATE}":"repair"'
_JOB = "PATCH /apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{node}-job$"
_COMMAND = "POST /apis/bus.volcano.sh/v1alpha1/namespaces/default/commands$"
_JOB_POD = "DELETE /api/v1/namespaces/default/pods/{node}-job"
_PAIR_JOBS = "/apis/batch/v1/namespaces/kcover-preflight/jobs"
_STANDING_IN = r'"kcover\.io/standing-in":"\{\\"active\\":%s,.*\\"origin\\":\\"{node}\\"'
POINTS = (
    Point(step="cordon", call="PATCH node", plan="agent", match=f"PATCH {_NODE}", body='"unschedulable":true'),
    Point(
        step="cordon",
        call="PATCH node (before its approval)",
        plan="approved",
        match=f"PATCH {_NODE}",
        body='"unschedulable":true',
    ),
    Point(
        step="drain",
        call="PATCH node (label, once approved)",
        plan="approved",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"draining"',
        comes=3.0,
    ),
    Point(
        step="drain",
        call="PATCH node (label)",
        plan="agent",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"draining"',
    ),
    Point(step="drain", call="POST eviction, first pod", plan="agent", match=_EVICTION % PODS[0], comes=2.0),
    Point(step="drain", call="POST eviction, last pod", plan="agent", match=_EVICTION % PODS[-1], comes=2.0),
    Point(step="reboot", call="PATCH node (label)", plan="agent", match=f"PATCH {_NODE}", body=_REBOOTING, comes=6.0),
    Point(
        step="reboot",
        call="command for the agent",
        plan="agent",
        match=f"PATCH {_NODE}",
        body=_REBOOTING,
        row="reboot",
        comes=6.0,
    ),
    Point(
        step="reboot",
        call="POST job",
        plan="job",
        match="POST /apis/batch/v1/namespaces/[^/]+/jobs$",
        body='"nodeName":"{node}"',
        comes=6.0,
    ),
    Point(
        step="reboot",
        call="GET node, once asked for",
        plan="agent",
        match=f"GET {_NODE}",
        seen=_REBOOTING,
        comes=7.0,
    ),
    Point(
        step="power_cycle",
        call="POST to the controller (off)",
        plan="cycle",
        match=_RESET,
        body="ForceOff",
        comes=6.0,
    ),
    Point(
        step="power_cycle",
        call="POST to the controller (on)",
        plan="cycle",
        match=_RESET,
        body='"On"',
        comes=8.0,
    ),
    Point(
        step="power_cycle",
        call="POST RebootNode",
        plan="janitor",
        match=_JANITOR % "rebootnodes",
        body=_NAMED,
        comes=6.0,
        unclear=True,
    ),
    Point(step="power_cycle", call="POST to a cloud", plan="cloud", hook=True, comes=6.0, unclear=True),
    Point(
        step="reset",
        call="POST GPUReset",
        plan="janitor_reset",
        match=_JANITOR % "gpuresets",
        body=_NAMED,
        comes=6.0,
    ),
    Point(step="replace", call="PATCH node (label)", plan="machine", match=f"PATCH {_NODE}", body=_REPAIR, comes=6.0),
    *(
        Point(
            step="replace",
            call=f"DELETE {kind}",
            plan=plan,
            match=f"DELETE {_OBJECTS[kind]}/{{node}}-0$",
            comes=6.0,
            unclear=True,
        )
        for plan, kind in (("machine", "Machine"), ("claim", "NodeClaim"))
    ),
    Point(
        step="replace",
        call="GET node, once asked for",
        plan="machine",
        match=f"GET {_NODE}",
        seen=_REPAIR,
        skip=1,  # the look right before the request
        comes=7.0,
    ),
    Point(
        step="offline",
        call="PATCH node (taint)",
        plan="offline",
        match=f"PATCH {_NODE}",
        body='"taints":\\[.*kcover.io/offline',
        comes=6.0,
    ),
    Point(step="offline", call="POST to another system", plan="offline", hook=True, comes=6.0),
    Point(step="repair", call="PATCH node (label)", plan="repair", match=f"PATCH {_NODE}", body=_REPAIR, comes=6.0),
    Point(
        step="repair",
        call="row of a repair",
        plan="repair",
        match=f"PATCH {_NODE}",
        body=_REPAIR,
        row="repair",
        comes=6.0,
    ),
    Point(
        step="withdraw",
        call="DELETE job",
        plan="withdraw",
        match="DELETE /apis/batch/v1/namespaces/[^/]+/jobs/",
        seen='"nodeName":"{node}"',
        comes=4.0,
    ),
    Point(
        step="ready",
        call="GET node",
        plan="agent",
        match=f"GET {_NODE}",
        seen=f"^(?=.*{_REBOOTING})(?!.*{{boot}})",
        skip=1,  # the first look at the new boot is the reboot step's
        comes=10.0,
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
        comes=2.0,
    ),
    Point(
        step="restart_jobs",
        call="DELETE pod",
        plan="mend",
        match=_JOB_POD,
        comes=2.0,
    ),
    Point(
        step="restart_jobs",
        call="PATCH node (out of service)",
        plan="dead",
        match=f"PATCH {_NODE}",
        body='"taints":\\[.*out-of-service',
        comes=7.0,
    ),
    Point(
        step="restart_jobs",
        call="PATCH node (in service)",
        plan="dead",
        match=f"PATCH {_NODE}",
        body=f'^(?!.*"{RESCUE}":null)(?!.*out-of-service).*"taints":',
        comes=11.0,
    ),
    Point(
        step="stop_jobs",
        call="PATCH job",
        plan="stop",
        match=_JOB,
        body='"suspend":true',
        comes=2.0,
    ),
    Point(step="webhook", call="POST to another system", plan="mend", hook=True, comes=9.0),
    Point(
        step="reset",
        call="command for the agent",
        plan="mend",
        match=f"PATCH {_NODE}",
        body=f'^(?!.*unschedulable).*"{STATE}":"quarantined"',
        row="reset",
        comes=12.0,
    ),
    Point(
        step="run_checks",
        call="command for the agent",
        plan="mend",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"verifying"',
        row="checks",
        comes=11.0,
    ),
    Point(
        step="verify",
        call="PATCH node (label)",
        plan="agent",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"verifying"',
        comes=10.0,
    ),
    Point(
        step="verify",
        call="GET node",
        plan="agent",
        match=f"GET {_NODE}",
        seen=f'"{STATE}":"verifying"',
        comes=10.0,
    ),
    Point(
        step="validate",
        call="row of a validation",
        plan="mend",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"validating"',
        row="validate",
        comes=13.0,
    ),
    Point(
        step="validate",
        call="row of a validation (burn-in)",
        plan="new",
        match=f"PATCH {_NODE}",
        body=_READINESS,
        row="validate",
        comes=2.0,
    ),
    Point(
        step="validate",
        call="PATCH node (burn-in)",
        plan="tainted",
        match=f"PATCH {_NODE}",
        body=f'"{STATE}":"burn-in"',
        comes=2.0,
    ),
    Point(
        step="uncordon",
        call="PATCH node (first work)",
        plan="new",
        match=f"PATCH {_NODE}",
        body=f'"{RESCUE}":null',
        comes=4.0,
    ),
    Point(
        step="uncordon",
        call="PATCH node",
        plan="agent",
        match=f"PATCH {_NODE}",
        body=f'"{RESCUE}":null',
        comes=12.0,
    ),
    Point(
        step="uncordon",
        call="PATCH node (on probation)",
        plan="probation",
        match=f"PATCH {_NODE}",
        body=f'^(?=.*"{RESCUE}":null)(?=.*"kcover.io/probation":"true")',
        comes=12.0,
    ),
    Point(
        step=PROBATION,
        call="GET node",
        plan="probation",
        match=f"GET {_NODE}",
        seen=f'"{STATE}":"probation"',
        comes=14.0,
    ),
    Point(
        step=PROBATION,
        call="PATCH node",
        plan="probation",
        match=f"PATCH {_NODE}",
        body='"kcover.io/probation":null',
        comes=14.0,
    ),
    Point(
        step="taint", call="PATCH node (new machine)", plan="new", match=f"PATCH {_NODE}", body=_READINESS, comes=2.0
    ),
    Point(step="taint", call="PATCH node", plan="taint", match=f"PATCH {_NODE}", body='"taints":\\[.*konduktor'),
    Point(
        step="taint",
        call="PATCH node (taken offline by hand)",
        plan="away",
        match=f"PATCH {_NODE}",
        body='"taints":\\[.*kcover.io/offline',
    ),
    Point(
        step="repair",
        call="PATCH node (taken offline by hand)",
        plan="away",
        match=f"PATCH {_NODE}",
        body=_REPAIR,
        comes=6.0,
    ),
    Point(
        step="exclude",
        call="PATCH node",
        plan="exclude",
        match=f"PATCH {_NODE}",
        body=f'"{EXCLUDE}":"true"',
    ),
    Point(
        step="end_exclusion",
        call="PATCH node",
        plan="exclude",
        match=f"PATCH {_NODE}",
        body=f'"{EXCLUDE}":null',
        comes=3.0,
    ),
    Point(
        step="quarantine_device",
        call="GET ResourceSlices",
        plan="device",
        match=f"GET {_DRA}/v1/resourceslices\\?.*spec.nodeName(=|%3D){{node}}(&|$)",
    ),
    Point(
        step="quarantine_device",
        call="PATCH node (mark)",
        plan="device",
        match=f"PATCH {_NODE}",
        body="devices.*kcover-",
    ),
    Point(
        step="quarantine_device",
        call="POST DeviceTaintRule",
        plan="device",
        match=f"POST {_DRA}/v1beta2/devicetaintrules$",
        body='"pool":"{node}"',
    ),
    Point(
        step="quarantine_device",
        call="PATCH node (cordon)",
        plan="whole",
        match=f"PATCH {_NODE}",
        body='"unschedulable":true',
    ),
    Point(step="notify", call="POST to a channel", plan="tell", hook=True, comes=3.0),
    Point(step="release", call="PATCH node", plan="taint", match=f"PATCH {_NODE}", body=f'"{RESCUE}":null', comes=2.0),
    Point(
        step="release",
        call="DELETE DeviceTaintRule",
        plan="device",
        match=f"DELETE {_DRA}/v1beta2/devicetaintrules/",
        seen='"pool":"{node}"',
        comes=2.0,
    ),
    # Orders about jobs, which are no steps of a rescue.
    Point(step=ORDER, call="PATCH job (exclude)", plan="restart", match=_JOB, body='"nodeAffinity"'),
    Point(step=ORDER, call="DELETE pod", plan="restart", match=_JOB_POD),
    Point(step=ORDER, call="PATCH job (label)", plan="label", match=_JOB, body='need-recovery":null', comes=3.0),
    Point(step=ORDER, call="PATCH job (suspend)", plan="halt", match=_JOB, body='"suspend":true'),
    Point(step=ORDER, call="POST command", plan="gang", match=_COMMAND, body='"name":"{node}-job"'),
    # Pair tests of preflight, which are no steps either.
    Point(
        step=PAIR, call="GET pods of node", plan="pair", match="GET /api/v1/pods\\?.*spec.nodeName(=|%3D){node}(&|$)"
    ),
    Point(step=PAIR, call="POST job", plan="pair", match=f"POST {_PAIR_JOBS}$", body='"nodeName":"{node}"'),
    Point(
        step=PAIR,
        call="GET pods (results)",
        plan="pair",
        match="GET /api/v1/namespaces/kcover-preflight/pods",
        seen='"nodeName":"{node}"',  # every plan asks for its own pods at the same address
        comes=3.0,
    ),
    Point(
        step=PAIR,
        call="DELETE job",
        plan="pair",
        match=f"DELETE {_PAIR_JOBS}/",
        seen='"nodeName":"{node}"',
        comes=4.0,
    ),
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
REFUSED, BUSY = Failure(name="409", words="API 409", status=409), Failure(name="429", words="API 429", status=429)
BROKEN, LATE = Failure(name="500", words="API 500", status=500), Failure(name="504", words="API 504", status=504)
TIMEOUT = Failure(name="timeout", words="API time-out", status="timeout")
CUT = Failure(name="cut", words="API connection cut", status="cut")
FAILURES = (KILLED, FLUSHED, BROKER, FAST, IMMEDIATE, REFUSED, BUSY, BROKEN, LATE, TIMEOUT, CUT)
# What is tried in one installation, in waves. A process is everybody's: its death meets all rescues that are under way,
# so there is one such failure in each; but Redis keeps nothing that a rescue needs. An answer concerns its own rescue
# alone, save one that never comes: after it the portal asks nothing of that API server for a while.
INSTALLATIONS: tuple[tuple[tuple[Failure, ...], ...], ...] = (
    ((KILLED,),),
    ((FLUSHED,), (BROKER,)),
    ((FAST,),),
    ((IMMEDIATE,),),
    ((REFUSED, BUSY, BROKEN),),
    ((LATE, CUT),),
    ((TIMEOUT,),),
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
    """A row is no request that an API server could answer wrongly; and another system that took an order and
    then says 409, that it will not, is beyond help: whoever believes it orders once more."""
    if case.point.row:
        return case.failure is KILLED
    ordered = case.point.hook and case.point.step in ("webhook", "offline", "power_cycle")
    return not (ordered and case.after and case.failure.status == 409)


def waves(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases that wait for one blow together; an answer waits for none, and all answers are in the last wave.

    The rows are first: nothing else may kill their worker on the way. Those of validations are apart, as a rescue that
    is held at another row may hold the lock of the audit log. Of the requests the late ones are first.
    """
    validations = [case for case in cases if case.point.row == "validate"]
    rows = [case for case in cases if case.point.row not in ("", "validate")]
    answered = [case for case in cases if case.failure.status is not None]
    aimed = [case for case in cases if not case.point.row and case.failure.status is None]
    aimed.sort(key=lambda case: -case.point.comes)
    count = -(-len(aimed) // MOST_IN_WAVE)
    size = -(-len(aimed) // max(1, count))
    chunks = [aimed[start : start + size] for start in range(0, len(aimed), max(1, size))]
    return [wave for wave in (validations, rows, *chunks, answered) if wave]


def sample(*, whole: bool = False) -> list[list[Case]]:
    """Each request struck by a SIGKILL, each row too, before and after; each failure striking some point; in waves.

    Save a message, whose lease is twice as long as a step's: it is struck by a failure that costs none. What would take
    minutes to be noticed is struck after its effect. Unless ``whole``, the commit chooses an eighth of the SIGKILLs.
    """
    requests = [point for point in POINTS if not point.row]
    (message,) = (point for point in requests if point.step == "notify")
    requests.remove(message)
    killed = [
        Case(point=point, failure=KILLED, after=after or point.unclear)
        for point, after in zip(requests, cycle((True, False)), strict=False)
    ]
    killed += [case for case in column(KILLED) if case.point.row]
    if not whole:
        killed = [case for number, case in enumerate(killed) if in_share(number, shares=SHARES)]
    soon = [point for point in requests if point.comes <= SOON]
    struck = [*zip(FAILURES[1:-1], _spread(soon), strict=False), (CUT, message)]
    rest = [
        Case(point=point, failure=failure, after=after)
        for (failure, point), after in zip(struck, cycle((True, False)), strict=False)
    ]
    slow = [case for case in rest if case.failure in (FAST, IMMEDIATE)]  # they cost a lease, as a SIGKILL does
    return [*waves(killed), slow, [case for case in rest if case not in slow]]


def _spread(points: list[Point]) -> Iterator[Point]:
    """The points over and over, in strides, so that neighbours in a list strike different steps."""
    return (points[(number * 7 + 3) % len(points)] for number in cycle(range(len(points))))
