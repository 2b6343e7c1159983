"""A plan: the steps of one rescue, in order, frozen when it is decided.

Editing a policy never changes a plan; approvals are bound to its hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcover import actions
from kcover.nodes import foreign_taints, readiness_taint
from kcover.policy import document

# The buttons of a node, in the order in which they are shown.
VERBS = ("cordon", "uncordon", "drain", "reboot", "offline", "release", "exclude", "end_exclusion")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step: an action's name and its plain JSON arguments (durations in seconds)."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)


def of_rule(rule: document.Rule, *, code: str, on_drain_timeout: str = "hold") -> tuple[PlannedStep, ...]:
    """The steps that a rule requests when ``code`` was reported.

    ``on_drain_timeout``: what the cluster says, for a rule that says nothing; those of KCE cannot.

    Their order is fixed by ``actions.Stage``, whatever order the rule lists them in.
    """
    listed = {action.name: action.attribute for action in rule.actions}
    options = actions.RuleOptions(
        code=code,
        on_drain_timeout=rule.on_drain_timeout or on_drain_timeout,
        verify=rule.verify,
        verify_agent=rule.verify_agent,
        validate=rule.validate,
        uncordons=rule.uncordons,
        probation=rule.probation,
        escalate=rule.escalate,
        drain=listed.get(actions.drain.SPEC.name, {}),
    )
    requested = [
        spec
        for spec in actions.ACTIONS.values()
        if (spec.policy is not None and spec.policy.name in listed) or spec.requested_by(options)
    ]
    wanted = {spec.name for spec in requested} | {name for spec in requested for name in spec.implies}
    return tuple(
        _step(spec, listed.get(spec.policy.name, {}) if spec.policy else {}, options)
        for spec in actions.in_order()
        if spec.name in wanted
    )


def manual(verb: str, *, by_person: bool = True, taints_of: str = "") -> tuple[PlannedStep, ...]:
    """The plan behind an operator's button or REST call on one node.

    ``reboot`` returns the node to its state before: uncordon takes back only what the portal itself changed.
    ``offline`` is KCE's node offline: the repair desk has the node until a passed validation closes the repair. Only a
    person may lift somebody else's cordon (``by_person``), and only with ``uncordon``. ``taints_of``: the system whose
    taint a person's ``release`` removes, too. Raises ValueError for an unknown verb or system.
    """
    cordon, drained = _default("cordon"), _default("drain")
    key, value, effect = actions.offline.TAINT
    plans: dict[str, tuple[PlannedStep, ...]] = {
        "cordon": (cordon,),
        "uncordon": (PlannedStep(name="uncordon", args={"foreign": True} if by_person else {}),),
        "drain": (cordon, drained),
        "reboot": (
            *(cordon, drained, _default("reboot"), _default("ready")),
            *(_default("verify"), _default("uncordon")),
        ),
        "offline": (
            *(cordon, PlannedStep(name="taint", args={"key": key, "value": value, "effect": effect}), drained),
            *(_default("repair"), _default("verify"), _default("uncordon")),
        ),
        "release": (PlannedStep(name="release", args={"taints_of": taints_of} if taints_of and by_person else {}),),
        **{name: (_default(name),) for name in ("exclude", "end_exclusion")},
    }
    if verb not in plans:
        raise ValueError(f"unknown action {verb!r}; use one of {', '.join(plans)}")
    if taints_of and taints_of not in foreign_taints.KNOWN:
        raise ValueError(f"unknown system {taints_of!r}; use one of {', '.join(foreign_taints.KNOWN)}")
    return plans[verb]


def burn_in(profile: str, *, taints: bool) -> tuple[PlannedStep, ...]:
    """The plan for a new node: no work before it has passed the profile. ``taints``: the node lacks the taint."""
    key, value, effect = readiness_taint.TAINT
    taint = PlannedStep(name="taint", args={"key": key, "value": value, "effect": effect})
    return (
        *((taint,) if taints else ()),
        PlannedStep(name="validate", args={"profile": profile, "burn_in": True}),
        PlannedStep(name="uncordon", args={"first_work": True}),
    )


def first_to_approve(steps: Sequence[PlannedStep]) -> int | None:
    """The first step that does more than keep new work off the node and tell people; None if no step does.

    In approve mode the steps before it run first, so that a faulty node takes no new work while people are asked.
    """
    asks = (index for index, step in enumerate(steps) if not actions.only_isolates(step.name, step.args))
    return next(asks, None)


def digest(steps: Iterable[PlannedStep]) -> str:
    """A short stable hash of the plan, for approvals and for comparing plans."""
    canonical = json.dumps([[step.name, step.args] for step in steps], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _step(spec: actions.ActionSpec, attribute: Mapping[str, str], options: actions.RuleOptions) -> PlannedStep:
    return PlannedStep(name=spec.name, args=spec.plan(attribute, options).to_json())


def _default(name: str) -> PlannedStep:
    """The step as a rule without further options requests it."""
    return _step(actions.ACTIONS[name], {}, actions.RuleOptions())
