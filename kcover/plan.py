"""A plan: the steps of one rescue, in order, frozen when it is decided.

Editing a policy never changes a plan; approvals are bound to its hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kcover import waits
from kcover.policy import document

DEFAULT_DRAIN_WAIT = timedelta(minutes=10)  # interfaces: "Drain without a wait time: 10min, then hold"

# Steps that take something away from users of the node; each is guarded again right before it.
DESTRUCTIVE = frozenset({"drain", "reboot"})

DEFAULT_TAINT_KEY = "kcover.io/unhealthy"
DEFAULT_TAINT_EFFECT = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step: a verb's name and its plain JSON arguments (durations in seconds)."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)


def of_rule(rule: document.Rule, *, code: str) -> tuple[PlannedStep, ...]:
    """The steps that a rule asks for when ``code`` was reported.

    The order is fixed (taint, cordon, drain, reboot, ready, verify, uncordon, escalate) whatever order the rule names,
    because KCE's preconditions allow no other: drain cordons first, reboot needs a drain, unCordon comes after the
    reboot (KCE help page, table of actions).
    """
    asked = {action.name: action.attribute for action in rule.actions}
    steps: list[PlannedStep] = []
    if "taint" in asked:
        steps.append(PlannedStep(name="taint", args=_taint(asked["taint"], code=code)))
    if "cordon" in asked or "drain" in asked or "reboot" in asked:
        steps.append(PlannedStep(name="cordon"))
    if "drain" in asked:
        steps.append(drain(asked["drain"], on_timeout=rule.on_drain_timeout))
    if "reboot" in asked:
        steps += reboot(asked["reboot"], verify_agent=rule.verify_agent)
    elif rule.verify:
        steps.append(PlannedStep(name="verify", args={"agent": rule.verify_agent}))
    if rule.uncordons:
        steps.append(PlannedStep(name="uncordon"))
    if rule.escalate is not None:
        steps.append(PlannedStep(name="escalate", args={"message": rule.escalate}))
    return tuple(steps)


def drain(attribute: Mapping[str, str], *, on_timeout: str = "hold") -> PlannedStep:
    """The drain step; ``waittime`` is how long to drain (semantics, section 4)."""
    written = waits.parse(attribute.get("waittime", ""))
    wait = DEFAULT_DRAIN_WAIT if written is None else written
    return PlannedStep(name="drain", args={"seconds": int(wait.total_seconds()), "on_timeout": on_timeout})


def reboot(attribute: Mapping[str, str], *, verify_agent: bool = True) -> list[PlannedStep]:
    """The reboot and what proves it; ``waittime`` is how long to wait after the drain before the reboot."""
    wait = waits.parse(attribute.get("waittime", ""))
    args = {"wait_seconds": int(wait.total_seconds())} if wait else {}
    return [
        PlannedStep(name="reboot", args=args),
        PlannedStep(name="ready"),
        PlannedStep(name="verify", args={"agent": verify_agent}),
    ]


def manual(verb: str) -> tuple[PlannedStep, ...]:
    """The plan behind an operator's button or REST call on one node.

    ``reboot`` ends with the node as it was found: uncordon takes back only what the portal itself changed.
    Raises ValueError for a verb that no button has.
    """
    cordon, drained = PlannedStep(name="cordon"), drain({})
    plans: dict[str, tuple[PlannedStep, ...]] = {
        "cordon": (cordon,),
        "uncordon": (PlannedStep(name="uncordon", args={"foreign": True}),),
        "drain": (cordon, drained),
        "reboot": (cordon, drained, *reboot({}), PlannedStep(name="uncordon")),
        "release": (PlannedStep(name="release"),),
    }
    if verb not in plans:
        raise ValueError(f"no such action {verb!r}: use one of {', '.join(plans)}")
    return plans[verb]


def digest(steps: Iterable[PlannedStep]) -> str:
    """A short stable hash of the plan, for approvals and for telling two plans apart."""
    canonical = json.dumps([[step.name, step.args] for step in steps], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _taint(attribute: Mapping[str, str], *, code: str) -> dict[str, str]:
    return {
        "key": attribute.get("key", DEFAULT_TAINT_KEY),
        "value": attribute.get("value", "<code>").replace("<code>", code),
        "effect": attribute.get("effect", DEFAULT_TAINT_EFFECT),
    }
