"""A rescue requested by a decision system: KCE's "create rescue action" (KCE help page, third-party API).

KCE answers with ``code`` and ``message``. What it leaves open is decided here: parameters are checked before
preconditions, and a time is a duration or an RFC 3339 time. Of ``maps``, only ``unCordon`` has an effect.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kcover import reasons
from kcover.actions import in_policies
from kcover.faults import fault
from kcover.plans import plan
from kcover.policy import document
from kcover.values import durations

ACTION_NAMES = tuple(name for name, kind in in_policies().items() if not kind.own)
ACTIONS_WITH_WAIT = tuple(name for name in ACTION_NAMES if "waittime" in in_policies()[name].attributes)
MAX_XID = 2**31 - 1
MAX_NODE_NAME = 253
MAX_MAPS = 20  # maps of an action, keys of a map
KEYS = ("nodeName", "xid", "escalateTime", "actions")
ACTION_KEYS = ("name", "waittime", "maps")
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class ParameterError(reasons.ExplainedError):
    """A parameter is invalid; the message names it and says what to write instead."""


class PreconditionError(reasons.ExplainedError):
    """An action lacks another one that it needs; the message names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``start_by``: the rescue must not start after this time. ``xid``: None if the request has none."""

    node: str
    xid: int | None
    start_by: datetime | None
    steps: tuple[plan.PlannedStep, ...]


def parse(body: object, *, now: datetime, on_drain_timeout: str = "hold") -> Request:
    """The request in a parsed JSON body. Raises ParameterError, then PreconditionError.

    ``on_drain_timeout``: what the cluster says, because a request cannot.
    """
    if not isinstance(body, dict):
        raise ParameterError(reasons.of("request_not_object"))
    unknown = sorted(str(key) for key in body if key not in KEYS)
    if unknown:
        raise ParameterError(reasons.of("request_unknown_key", key=unknown[0][:60], known=", ".join(KEYS)))
    node, xid = _node(body.get("nodeName")), _xid(body.get("xid"))
    start_by = _start_by(body.get("escalateTime"), now=now)
    rule = to_rule(body.get("actions"))
    code = str(xid) if xid is not None else ""
    steps = plan.of_rule(rule, code=code, on_drain_timeout=on_drain_timeout)
    return Request(node=node, xid=xid, start_by=start_by, steps=steps)


def to_rule(actions: object) -> document.Rule:
    """The actions as a rule for faults of every kind. Raises ParameterError, then PreconditionError."""
    rule = document.Rule(index=0, priority=0, actions=_to_actions(_actions(actions)), kinds=fault.KINDS)
    _preconditions([action.name for action in rule.actions])
    return rule


def _invalid(parameter: str, problem: reasons.Value) -> ParameterError:
    return ParameterError(reasons.of("parameter_invalid", parameter=parameter, problem=problem))


def _node(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NODE_NAME or not _NODE.fullmatch(value):
        raise ParameterError(reasons.of("request_node"))
    return value


def _xid(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_XID:
        raise ParameterError(reasons.of("request_xid", largest=MAX_XID))
    return value


def _start_by(value: object, *, now: datetime) -> datetime | None:
    """The end of a duration from now, or the given time."""
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise ParameterError(reasons.of("request_time_type"))
    try:
        if value[:4].isdigit() and "T" in value.upper():
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                raise ParameterError(reasons.of("request_time_zone"))
        else:
            duration = durations.parse(value)
            moment = now + duration if duration is not None else now
    except durations.DurationError as error:
        raise _invalid("escalateTime", error.reason) from error
    except OverflowError as error:
        raise _invalid("escalateTime", str(error)) from error
    except ValueError as error:
        raise ParameterError(reasons.of("request_time_format")) from error
    if moment <= now:
        raise ParameterError(reasons.of("request_time_past"))
    return moment


def _actions(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ParameterError(reasons.of("request_no_actions", names=", ".join(ACTION_NAMES)))
    if len(value) > len(ACTION_NAMES):
        raise ParameterError(reasons.of("request_many_actions", most=len(ACTION_NAMES)))
    seen: set[str] = set()
    for index, action in enumerate(value):
        at = f"actions[{index}]"
        if not isinstance(action, dict):
            raise ParameterError(reasons.of("request_action_type", action=at))
        unknown = sorted(str(key) for key in action if key not in ACTION_KEYS)
        if unknown:
            raise ParameterError(
                reasons.of("request_action_key", action=at, key=unknown[0][:60], known=", ".join(ACTION_KEYS))
            )
        name = action.get("name")
        if name not in ACTION_NAMES:
            raise ParameterError(reasons.of("request_action_name", action=at, names=", ".join(ACTION_NAMES)))
        if name in seen:
            raise ParameterError(reasons.of("request_action_twice", action=at, name=name))
        seen.add(name)
        _check_wait(action.get("waittime"), name=name, at=at)
        _check_maps(action.get("maps"), at=at)
    return value


def _check_wait(value: object, *, name: str, at: str) -> None:
    if value in (None, ""):
        return
    if not isinstance(value, str):
        raise ParameterError(reasons.of("request_wait_type", action=at))
    if name not in ACTIONS_WITH_WAIT:
        raise ParameterError(reasons.of("request_wait_unused", action=at, names=reasons.together(ACTIONS_WITH_WAIT)))
    try:
        durations.parse(value)
    except durations.DurationError as error:
        raise _invalid(f"{at}.waittime", error.reason) from error


def _check_maps(value: object, *, at: str) -> None:
    if value is None:
        return
    if not isinstance(value, list) or len(value) > MAX_MAPS:
        raise ParameterError(reasons.of("request_maps_type", action=at, most=MAX_MAPS))
    for pairs in value:
        texts = isinstance(pairs, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in pairs.items())
        if not texts or len(pairs) > MAX_MAPS:
            raise ParameterError(reasons.of("request_map_values", action=at, most=MAX_MAPS))
        if pairs.get("unCordon", "true") not in ("true", "false"):
            raise ParameterError(reasons.of("request_map_uncordon", action=at))


def _to_actions(actions: Sequence[Mapping[str, Any]]) -> tuple[document.Action, ...]:
    converted = []
    for action in actions:
        attribute = {"waittime": action["waittime"]} if action.get("waittime") else {}
        if action["name"] == "reboot":
            for pairs in action.get("maps") or ():
                attribute |= {key: value for key, value in pairs.items() if key == "unCordon"}
        converted.append(document.Action(name=action["name"], attribute=attribute))
    return tuple(converted)


def _preconditions(names: Sequence[str]) -> None:
    """Checks KCE's table of actions: which action needs which others."""
    kinds = in_policies()
    for name in names:
        for group in kinds[name].needs:
            if not set(group).intersection(names):
                raise PreconditionError(reasons.of("action_needs", name=name, needed=reasons.either(group)))
