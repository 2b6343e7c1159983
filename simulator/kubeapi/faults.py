"""Faults of the API server itself: refusals, silence and cut connections, also after the work was done."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.kubeapi import errors

TIMEOUT, CUT = "timeout", "cut"
_STATUSES: tuple[int | str, ...] = (409, 429, 500, 502, 503, 504, TIMEOUT, CUT)
_HOLD = 60.0  # seconds a time-out holds its connection unless told otherwise
_HOLD_LIMIT = 600.0


@dataclass(slots=True, kw_only=True)
class ApiFault:
    """A fault for the next ``count`` requests that match; -1 is until it is cleared.

    ``verb`` is an HTTP method or a Kubernetes verb, lower case, or ``*``; ``path`` is searched for in path and query.
    ``after``: the request is carried out first, and then answered by the fault (an ambiguous outcome).
    ``seconds`` is how long ``timeout`` holds the connection before it closes it.
    """

    status: int | str
    verb: str
    path: re.Pattern[str]
    count: int
    after: bool
    seconds: float

    @property
    def label(self) -> str:
        """What the call log says of it."""
        return f"{self.status}{' after' if self.after else ''}"


class ApiFaults:
    """The faults waiting to happen, first come first served."""

    def __init__(self) -> None:
        self._waiting: list[ApiFault] = []

    def add(self, body: Mapping[str, Any]) -> ApiFault:
        """Plan a fault: ``{"status": 429|409|500|…|"timeout"|"cut", "match": "PATCH /api/v1/nodes/", "count": 1,
        "after": false, "seconds": 60}``. All but ``status`` may be left out; without ``match`` every request matches.

        Raises ValueError that names the field.
        """
        status = body.get("status")
        if status not in _STATUSES:
            raise ValueError(f"status: {status!r} is not one of {', '.join(map(str, _STATUSES))}")
        match = body.get("match") or "*"
        if not isinstance(match, str):
            raise ValueError('match: text such as "PATCH /api/v1/nodes/" expected')
        verb, _, path = match.partition(" ")
        if verb.startswith("/"):
            verb, path = "*", match
        count = body.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < -1 or count == 0:
            raise ValueError(f"count: {count!r} is neither a positive number nor -1 (until cleared)")
        seconds = body.get("seconds", _HOLD)
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _HOLD_LIMIT:
            raise ValueError(f"seconds: {seconds!r} is not between 0 and {_HOLD_LIMIT:.0f}")
        try:
            pattern = re.compile(path)
        except re.error as error:
            raise ValueError(f"match: {path!r} is no regular expression: {error}") from error
        fault = ApiFault(
            status=status,
            verb=verb.lower(),
            path=pattern,
            count=count,
            after=bool(body.get("after")),
            seconds=float(seconds),
        )
        self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all planned faults."""
        self._waiting.clear()

    def pending(self) -> list[dict[str, Any]]:
        """What is planned, for people."""
        return [
            {
                "status": fault.status,
                "match": f"{fault.verb} {fault.path.pattern}",
                "count": fault.count,
                "after": fault.after,
            }
            for fault in self._waiting
        ]

    def take(self, *, method: str, verb: str, path: str) -> ApiFault | None:
        """The fault for a request, used up by one."""
        for fault in self._waiting:
            if fault.verb in ("*", method.lower(), verb) and fault.path.search(path):
                if fault.count > 0:
                    fault.count -= 1
                    if fault.count == 0:
                        self._waiting.remove(fault)
                return fault
        return None


def refusal(status: int, *, group: str, plural: str, name: str) -> errors.ApiError:
    """What a faulty API server says with an HTTP status."""
    if status == 409:
        return errors.conflict(group, plural, name)
    if status == 429:
        return errors.too_many_requests("too many requests, please try again later", retry_after=1)
    if status in (502, 503):
        return errors.ApiError(status, "ServiceUnavailable", "the server is currently unable to handle the request")
    if status == 504:
        text = (
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        )
        return errors.ApiError(504, "Timeout", text)
    return errors.internal("etcdserver: request timed out")
