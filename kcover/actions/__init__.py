"""The actions: one module each, with one ``SPEC``. To add one, write its module and name it in ``_MODULES``.

Belongs here: an action's name, how a policy requests it, its place in a plan, what it means for the node, and its
arguments and progress. Never here: what it does to a cluster, which is in the engine's module of the same name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kcover.actions import (
    cordon,
    drain,
    end_exclusion,
    escalate,
    exclude,
    label,
    notify,
    offline,
    power_cycle,
    quarantine_device,
    ready,
    reboot,
    release,
    repair,
    replace,
    reset,
    restart_jobs,
    run_checks,
    standby,
    stop_jobs,
    taint,
    uncordon,
    validate,
    verify,
    webhook,
)
from kcover.actions.record import (
    Args as Args,
    JobsProgress as JobsProgress,
    Presentation as Presentation,
    Progress as Progress,
    ValueFormat as ValueFormat,
    fields_shown as fields_shown,
)
from kcover.actions.spec import (
    ActionSpec as ActionSpec,
    PolicyAction as PolicyAction,
    RuleOptions as RuleOptions,
    Stage as Stage,
)

# The order in which policies and their error messages list them: KCE's five, in the order of its help page, then the
# portal's own.
_MODULES = (
    *(cordon, drain, reboot, standby, uncordon),
    *(taint, label, quarantine_device, reset, power_cycle, offline, replace, repair),
    *(restart_jobs, stop_jobs, notify, webhook, run_checks),
    *(ready, verify, validate, release, end_exclusion, escalate, exclude),  # a rule cannot list these among its actions
)

ACTIONS: dict[str, ActionSpec] = {module.SPEC.name: module.SPEC for module in _MODULES}  # by the name in plans


def in_order() -> list[ActionSpec]:
    """All actions in the fixed order of plans, whatever order a rule lists them in."""
    return sorted(ACTIONS.values(), key=lambda spec: spec.place)


def in_policies() -> dict[str, PolicyAction]:
    """The actions that rules may list, by the name that policies use."""
    return {spec.policy.name: spec.policy for spec in ACTIONS.values() if spec.policy is not None}


def names(predicate: Callable[[ActionSpec], bool]) -> frozenset[str]:
    """The names of the actions for which ``predicate`` returns True."""
    return frozenset(spec.name for spec in ACTIONS.values() if predicate(spec))


def takes_away(name: str, args: Mapping[str, Any]) -> bool:
    """Return whether the step takes running work away.

    Such a step needs the approval and passes the guards right before it runs.
    """
    return ACTIONS[name].takes_away(args)


def only_isolates(name: str, args: Mapping[str, Any]) -> bool:
    """Return whether the step only keeps new work off the node, tells people, or leaves the rest to a person.

    In approve mode such a step waits for nobody.
    """
    harmless = ACTIONS[name].place[0] in (Stage.KEEP_AWAY, Stage.NOTIFY, Stage.HAND_OVER)
    return harmless and not takes_away(name, args) and not ACTIONS[name].signals(args)
