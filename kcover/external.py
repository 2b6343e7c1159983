"""What a decision system may ask for: KCE's "create rescue action" (KCE help page, third-party API; semantics 4).

KCE answers with ``code`` and ``message``; what it leaves open is decided here: parameters are checked before
preconditions, a time is a wait or a moment (RFC 3339), ``maps`` are kept and otherwise unused, but for ``unCordon``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kcover import fault, plan, waits
from kcover.policy import document

NAMES = ("cordon", "drain", "reboot", "enableWarmStandby", "unCordon")
WAITING = ("drain", "reboot")  # the only ones that read a wait time
MAX_XID = 2**31 - 1
MAX_NODE = 253
MAX_MAPS = 20  # maps of an action, keys of a map
KEYS = ("nodeName", "xid", "escalateTime", "actions")
ACTION_KEYS = ("name", "waittime", "maps")
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class ParameterError(ValueError):
    """Something in the request is not what it should be; the message names it and says what to write instead."""


class PreconditionError(ValueError):
    """The actions do not fit together; the message says what each needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``start_by``: not to be started after this moment. ``xid`` None: none was named."""

    node: str
    xid: int | None
    start_by: datetime | None
    steps: tuple[plan.PlannedStep, ...]


def read(body: object, *, now: datetime) -> Request:
    """The request that a JSON body means. Raises ParameterError, then PreconditionError."""
    if not isinstance(body, dict):
        raise ParameterError("the body must be an object with nodeName, xid and actions")
    unknown = sorted(str(key) for key in body if key not in KEYS)
    if unknown:
        raise ParameterError(f"{unknown[0][:60]} is unknown: there are {', '.join(KEYS)}")
    node, xid = _node(body.get("nodeName")), _xid(body.get("xid"))
    start_by = _moment(body.get("escalateTime"), now=now)
    asked = rule(body.get("actions"))
    code = str(xid) if xid is not None else ""
    return Request(node=node, xid=xid, start_by=start_by, steps=plan.of_rule(asked, code=code))


def rule(actions: object) -> document.Rule:
    """The actions as a rule that means every fault. Raises ParameterError, then PreconditionError."""
    asked = document.Rule(index=0, priority=0, actions=_attributed(_actions(actions)), kinds=fault.KINDS)
    _preconditions([action.name for action in asked.actions])
    return asked


def _node(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NODE or not _NODE.fullmatch(value):
        raise ParameterError("nodeName must be the name of a node")
    return value


def _xid(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_XID:
        raise ParameterError(f"xid must be a whole number from 0 to {MAX_XID}")
    return value


def _moment(value: object, *, now: datetime) -> datetime | None:
    """A wait from now on, or a moment."""
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise ParameterError("escalateTime must be a string: 30min, or 2026-11-21T08:00:00Z")
    try:
        if value[:4].isdigit() and "T" in value.upper():
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                raise ParameterError("escalateTime must say its offset: 2026-11-21T08:00:00Z")
        else:
            wait = waits.parse(value)
            moment = now + wait if wait is not None else now
    except (waits.WaitError, OverflowError) as error:
        raise ParameterError(f"escalateTime: {error}") from error
    except ValueError as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError("escalateTime must be a wait such as 30min, or 2026-11-21T08:00:00Z") from error
    if moment <= now:
        raise ParameterError("escalateTime is over already")
    return moment


def _actions(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ParameterError(f"actions must be a list with at least one of {', '.join(NAMES)}")
    if len(value) > len(NAMES):
        raise ParameterError(f"actions must be at most {len(NAMES)}, each once")
    seen: set[str] = set()
    for index, one in enumerate(value):
        at = f"actions[{index}]"
        if not isinstance(one, dict):
            raise ParameterError(f"{at} must be an object with a name")
        unknown = sorted(str(key) for key in one if key not in ACTION_KEYS)
        if unknown:
            raise ParameterError(f"{at}.{unknown[0][:60]} is unknown: there are {', '.join(ACTION_KEYS)}")
        name = one.get("name")
        if name not in NAMES:
            raise ParameterError(f"{at}.name must be one of {', '.join(NAMES)}")
        if name in seen:
            raise ParameterError(f"{at}.name: {name} is named twice")
        seen.add(name)
        _check_wait(one.get("waittime"), name=name, at=at)
        _check_maps(one.get("maps"), at=at)
    return value


def _check_wait(value: object, *, name: str, at: str) -> None:
    if value in (None, ""):
        return
    if not isinstance(value, str):
        raise ParameterError(f"{at}.waittime must be a string such as 10min")
    if name not in WAITING:
        raise ParameterError(f'{at}.waittime must be "": only {" and ".join(WAITING)} wait')
    try:
        waits.parse(value)
    except waits.WaitError as error:
        raise ParameterError(f"{at}.waittime: {error}") from error


def _check_maps(value: object, *, at: str) -> None:
    if value is None:
        return
    if not isinstance(value, list) or len(value) > MAX_MAPS:
        raise ParameterError(f"{at}.maps must be a list of at most {MAX_MAPS} string maps")
    for one in value:
        texts = isinstance(one, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in one.items())
        if not texts or len(one) > MAX_MAPS:
            raise ParameterError(f"{at}.maps must hold objects whose values are strings, {MAX_MAPS} at most")
        if one.get("unCordon", "true") not in ("true", "false"):
            raise ParameterError(f'{at}.maps: unCordon must be "true" or "false"')


def _attributed(actions: Sequence[Mapping[str, Any]]) -> tuple[document.Action, ...]:
    made = []
    for one in actions:
        attribute = {"waittime": one["waittime"]} if one.get("waittime") else {}
        if one["name"] == "reboot":
            for pairs in one.get("maps") or ():
                attribute |= {key: value for key, value in pairs.items() if key == "unCordon"}
        made.append(document.Action(name=one["name"], attribute=attribute))
    return tuple(made)


def _preconditions(names: Sequence[str]) -> None:
    """KCE's table of actions: what must be on beside what."""
    for name in names:
        for group in document.ACTIONS[name].needs:
            if not set(group).intersection(names):
                raise PreconditionError(f"{name} needs {' or '.join(group)}")
