"""The calls of the election at which a portal can fail: the rows of its matrix. The columns are ``tests.crash``'s."""

from dataclasses import dataclass
from typing import Any

from tests.crash.election.names import LEASE, NAMESPACE
from tests.crash.points import BROKEN, BUSY, CUT, KILLED, LATE, REFUSED, TIMEOUT, Failure

ACQUIRE, TAKE, RENEW, RELEASE = "acquire", "take over", "renew", "release"
_ONE = f"/leases/{LEASE}$"
_HELD, _LEFT = '"holderIdentity":"[^"]', '"holderIdentity":""'
# A worker's broker and database take no part: the watch renews the Lease by itself.
FAILURES = (KILLED, REFUSED, BUSY, BROKEN, LATE, TIMEOUT, CUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call of the election. ``match`` and ``body`` tell it apart, as the simulator's API faults do."""

    step: str
    call: str
    match: str
    body: str = ""

    @property
    def acts(self) -> bool:
        """Returns whether the portal acts before this call."""
        return self.step in (RENEW, RELEASE)


POINTS = (
    Point(step=ACQUIRE, call="GET lease (there is none)", match=f"GET {_ONE}"),
    Point(step=ACQUIRE, call="POST lease", match=f"POST /apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases$"),
    Point(step=TAKE, call="GET lease (expired)", match=f"GET {_ONE}"),
    Point(step=TAKE, call="PATCH lease", match=f"PATCH {_ONE}", body=_HELD),
    Point(step=RENEW, call="GET lease", match=f"GET {_ONE}"),
    Point(step=RENEW, call="PATCH lease", match=f"PATCH {_ONE}", body=_HELD),
    Point(step=RELEASE, call="GET lease", match=f"GET {_ONE}"),
    Point(step=RELEASE, call="PATCH lease", match=f"PATCH {_ONE}", body=_LEFT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the matrix, tried in a cluster of its own."""

    point: Point
    failure: Failure
    after: bool

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        words = "watch SIGKILL" if self.failure is KILLED else self.failure.words
        return f"{words} {when} {self.point.step}: {self.point.call}"

    def fault(self) -> dict[str, Any]:
        """What the API server is to do. A process that will be killed has its call held meanwhile."""
        status = "hold" if self.failure is KILLED else self.failure.status
        return {"status": status, "match": self.point.match, "body": self.point.body, "after": self.after}


CELLS = tuple((point, after) for point in POINTS for after in (False, True))


def column(failure: Failure) -> list[Case]:
    """Every call, before and after, struck by one failure."""
    return [Case(point=point, failure=failure, after=after) for point, after in CELLS]


def sample() -> list[list[Case]]:
    """Every call struck by a SIGKILL, before and after; then every call by one answer, and each answer somewhere."""
    answers = FAILURES[1:]
    rest = [
        Case(point=point, failure=answers[number % len(answers)], after=after)
        for number, (point, after) in enumerate(CELLS)
    ]
    return [column(KILLED), rest]
