"""Faults of the API server itself: errors, hanging and cut connections, before or after the request took effect."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.kubeapi import errors

TIMEOUT, CUT, HOLD = "timeout", "cut", "hold"
_STATUSES: tuple[int | str, ...] = (409, 429, 500, 502, 503, 504, TIMEOUT, CUT, HOLD)
_DEFAULT_HOLD_SECONDS = 60.0  # default seconds for which a connection is held
_MAX_HOLD_SECONDS = 600.0


@dataclass(slots=True, kw_only=True, eq=False)
class ApiFault:
    """A fault for the next ``count`` matching requests, after the first ``skip`` of them; -1 means until it is cleared.

    ``verb`` is an HTTP method or a Kubernetes verb, lower case, or ``*``. ``path`` is searched for in path and query,
    ``body`` in the request's body, ``object`` in the object that the request names or in those that a list selects, as
    they are before the request. ``after``: the request takes effect first, and then meets the fault (an ambiguous
    outcome). ``seconds``: how long ``timeout`` holds the connection before it closes it, and how long ``hold`` delays
    the request before it proceeds normally. ``name`` is chosen by the planner.
    """

    status: int | str
    verb: str
    path: re.Pattern[str]
    count: int
    after: bool
    seconds: float
    name: str = ""
    body: re.Pattern[str] | None = None
    object: re.Pattern[str] | None = None
    skip: int = 0

    @property
    def label(self) -> str:
        """The name of the fault in the request log."""
        return f"{self.status}{' after' if self.after else ''}"


@dataclass(slots=True, eq=False)
class _Hanging:
    fault: ApiFault
    since: float = field(default_factory=time.monotonic)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)


class ApiFaults:
    """The planned faults, first come first served, and the requests that one of them holds."""

    def __init__(self) -> None:
        self._waiting: list[ApiFault] = []
        self._hanging: list[_Hanging] = []

    def add(self, body: Mapping[str, Any]) -> ApiFault:
        """Plan a fault:

        ``{"status": 429|409|500|…|"timeout"|"cut"|"hold", "match": "PATCH /api/v1/nodes/", "body": "draining",
        "object": "", "skip": 0, "count": 1, "after": false, "seconds": 60, "name": ""}``.

        All fields but ``status`` are optional; without ``match``, ``body`` and ``object`` every request matches.

        Raises ValueError that names the field.
        """
        status = body.get("status")
        if status not in _STATUSES:
            raise ValueError(f"status: {status!r} is not one of {', '.join(map(str, _STATUSES))}")
        match = body.get("match") or "*"
        if not isinstance(match, str):
            raise ValueError('match: must be text such as "PATCH /api/v1/nodes/"')
        verb, _, path = match.partition(" ")
        if verb.startswith("/"):
            verb, path = "*", match
        count = body.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < -1 or count == 0:
            raise ValueError(f"count: {count!r} must be a positive number or -1 (until cleared)")
        seconds = body.get("seconds", _DEFAULT_HOLD_SECONDS)
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_HOLD_SECONDS:
            raise ValueError(f"seconds: {seconds!r} must be between 0 and {_MAX_HOLD_SECONDS:.0f}")
        skip = body.get("skip", 0)
        if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0:
            raise ValueError(f"skip: {skip!r} must be a number of requests")
        fault = ApiFault(
            status=status,
            verb=verb.lower(),
            path=_pattern("match", path),
            count=count,
            after=bool(body.get("after")),
            seconds=float(seconds),
            name=str(body.get("name") or ""),
            body=_pattern("body", body["body"]) if body.get("body") else None,
            object=_pattern("object", body["object"]) if body.get("object") else None,
            skip=skip,
        )
        self._waiting.append(fault)
        return fault

    def clear(self, name: str | None = None) -> None:
        """Remove the planned faults and release the requests that they hold: all, or those of a name."""
        self._waiting = [fault for fault in self._waiting if name not in (None, fault.name)]
        for held in self._hanging:
            if name in (None, held.fault.name):
                held.let_go.set()

    def pending(self) -> list[dict[str, Any]]:
        """The planned faults, as JSON."""
        return [
            {
                "status": fault.status,
                "match": f"{fault.verb} {fault.path.pattern}",
                "count": fault.count,
                "after": fault.after,
                "name": fault.name,
            }
            for fault in self._waiting
        ]

    def hanging(self) -> list[dict[str, Any]]:
        """The requests that are held now, and for how many seconds so far."""
        now = time.monotonic()
        return [{"name": held.fault.name, "seconds": now - held.since} for held in self._hanging]

    def take(
        self,
        *,
        method: str,
        verb: str,
        path: str,
        body: bytes = b"",
        found: Callable[[], str] = lambda: "",
    ) -> ApiFault | None:
        """The fault for a request, which uses it up once. ``found`` gives the text of the object that the request
        names."""
        for fault in self._waiting:
            if not (fault.verb in ("*", method.lower(), verb) and fault.path.search(path)):
                continue
            if fault.body and not fault.body.search(body.decode(errors="replace")):
                continue
            if fault.object and not fault.object.search(found()):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.count > 0:
                fault.count -= 1
                if fault.count == 0:
                    self._waiting.remove(fault)
            return fault
        return None

    async def hold(self, fault: ApiFault) -> None:
        """Hold a request for the fault's seconds, or until it is released."""
        held = _Hanging(fault)
        self._hanging.append(held)
        try:
            async with asyncio.timeout(fault.seconds):
                await held.let_go.wait()
        except TimeoutError:
            return
        finally:
            self._hanging.remove(held)


def _pattern(field_name: str, text: Any) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise ValueError(f"{field_name}: {text!r} is not a regular expression: {error}") from error


def refusal(status: int, *, group: str, plural: str, name: str) -> errors.ApiError:
    """The error of a faulty API server for an HTTP status."""
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
