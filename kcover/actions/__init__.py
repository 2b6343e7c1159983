"""The actions: one module each, with one ``SPEC``. To add one, write its module and name it in ``_MODULES``.

Belongs here: what an action is called, how a policy asks for it, its place in a plan, what it means for the node, and
what it is told and remembers. Never here: what it does to a cluster, which is the engine's module of the same name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kcover.actions import (
    cordon,
    drain,
    escalate,
    label,
    notify,
    ready,
    reboot,
    release,
    reset,
    restart_jobs,
    run_checks,
    standby,
    taint,
    uncordon,
    verify,
    webhook,
)
from kcover.actions.record import Args, Form, JobsProgress, Progress, Shown, fields_shown
from kcover.actions.spec import ActionSpec, PolicyAction, RuleOptions, Stage

__all__ = [
    "ACTIONS",
    "ActionSpec",
    "Args",
    "Form",
    "JobsProgress",
    "PolicyAction",
    "Progress",
    "RuleOptions",
    "Shown",
    "Stage",
    "fields_shown",
    "in_order",
    "in_policies",
    "names",
    "takes_away",
]

# As policies and their error messages list them: KCE's five, in the order of its help page, then the portal's own.
_MODULES = (
    *(cordon, drain, reboot, standby, uncordon),
    *(taint, label, reset, restart_jobs, notify, webhook, run_checks),
    *(ready, verify, release, escalate),  # no rule lists these among its actions
)

ACTIONS: dict[str, ActionSpec] = {module.SPEC.name: module.SPEC for module in _MODULES}  # by the name in plans


def in_order() -> list[ActionSpec]:
    """The actions in the fixed order of plans, whatever order a rule names."""
    return sorted(ACTIONS.values(), key=lambda spec: spec.place)


def in_policies() -> dict[str, PolicyAction]:
    """What rules may list among their actions, by the name in policies."""
    return {spec.policy.name: spec.policy for spec in ACTIONS.values() if spec.policy is not None}


def names(which: Callable[[ActionSpec], bool]) -> frozenset[str]:
    """The names of the actions for which it holds."""
    return frozenset(spec.name for spec in ACTIONS.values() if which(spec))


def takes_away(name: str, args: Mapping[str, Any]) -> bool:
    """Whether the step takes running work away: then it needs the approval and passes the guards right before it."""
    return ACTIONS[name].takes_away(args)
