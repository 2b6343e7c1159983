"""A plan: the steps of one rescue, in order, frozen when it is decided.

Editing a policy never changes a plan; approvals are bound to its hash.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kcover import waits
from kcover.policy import document

DEFAULT_DRAIN_WAIT = timedelta(minutes=10)  # interfaces: "Drain without a wait time: 10min, then hold"

# Steps that always take something away from users of the node; each is guarded again right before it (``takes_away``).
DESTRUCTIVE = frozenset({"restart_jobs", "drain", "reset", "reboot"})

# Steps that a fault which comes back would have repeated for ever; of one plan only one.
MENDING = frozenset({"reset", "reboot"})

DEFAULT_TAINT_KEY = "kcover.io/unhealthy"
DEFAULT_TAINT_EFFECT = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step: a verb's name and its plain JSON arguments (durations in seconds)."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)


def takes_away(name: str, args: Mapping[str, Any]) -> bool:
    """Whether the step takes running work away: then it needs the approval and passes the guards right before it.

    A taint does with the effect NoExecute: Kubernetes ends every pod that does not tolerate it, whatever budgets say.
    """
    return name in DESTRUCTIVE or (name == "taint" and args.get("effect") == "NoExecute")


def of_rule(rule: document.Rule, *, code: str) -> tuple[PlannedStep, ...]:
    """The steps that a rule asks for when ``code`` was reported.

    The order is fixed, whatever order the rule names, because KCE's preconditions allow hardly any other (drain cordons
    first, reboot needs a drain, unCordon comes after the reboot: KCE help page, table of actions):

    1. keep work away: ``cordon``, ``taint``, ``label``;
    2. tell people before anything is taken away: ``notify``;
    3. move the work: ``standby`` (reserved and put into service, so that there is room), ``restart_jobs`` (after the
       cordon, so that no pod comes back to the node), ``drain``;
    4. mend the empty node: ``webhook`` (another system has it), ``reset`` or ``reboot`` and ``ready``;
    5. prove it: ``run_checks``, ``verify``;
    6. ``uncordon``, and ``escalate`` last.
    """
    asked = {action.name: action.attribute for action in rule.actions}
    return (
        *_keep_away(asked, code=code),
        *(_notify(asked["notify"], code=code) if "notify" in asked else []),
        *([PlannedStep(name="standby")] if "enableWarmStandby" in asked else []),
        *([PlannedStep(name="restart_jobs")] if "restartJobs" in asked else []),
        *([drain(asked["drain"], on_timeout=rule.on_drain_timeout)] if "drain" in asked else []),
        *(_webhook(asked["webhook"]) if "webhook" in asked else []),
        *([PlannedStep(name="reset")] if "gpuReset" in asked else []),
        *(reboot(asked["reboot"]) if "reboot" in asked else []),
        *(_checks(asked["runChecks"]) if "runChecks" in asked else []),
        *([verify(agent=rule.verify_agent)] if rule.verify or {"reboot", "gpuReset"} & asked.keys() else []),
        *([PlannedStep(name="uncordon")] if rule.uncordons else []),
        *([PlannedStep(name="escalate", args={"message": rule.escalate})] if rule.escalate is not None else []),
    )


def beyond(rule: document.Rule, *, steps: Collection[str]) -> tuple[document.Problem, ...]:
    """What of a rule needs a step that is not among ``steps``, those that an installation can run.

    Each action is laid down alone, so the mistake is named where it was written. Paths begin at the rule's own.
    """
    alone = dataclasses.replace(rule, verify=False, escalate=None)
    parts = [
        *(
            (("actions", index, "name"), f"action {one.name}", dataclasses.replace(alone, actions=(one,)))
            for index, one in enumerate(rule.actions)
        ),
        (("verify",), "verify", dataclasses.replace(alone, actions=(), verify=rule.verify)),
        (("escalate",), "escalate", dataclasses.replace(alone, actions=(), escalate=rule.escalate)),
    ]
    problems = []
    for path, name, part in parts:
        missing = [step.name for step in of_rule(part, code="0") if step.name not in steps]
        if missing:
            message = f"{name} cannot be carried out: this installation has no step {', '.join(missing)}; take it out"
            problems.append(document.Problem(path, message))
    return tuple(problems)


def drain(attribute: Mapping[str, str], *, on_timeout: str = "hold") -> PlannedStep:
    """The drain step; ``waittime`` is how long to drain (semantics, section 4)."""
    written = waits.parse(attribute.get("waittime", ""))
    wait = DEFAULT_DRAIN_WAIT if written is None else written
    return PlannedStep(name="drain", args={"seconds": int(wait.total_seconds()), "on_timeout": on_timeout})


def reboot(attribute: Mapping[str, str]) -> list[PlannedStep]:
    """The reboot and the wait for the node; ``waittime`` is how long to wait after the drain before the reboot."""
    wait = waits.parse(attribute.get("waittime", ""))
    args = {"wait_seconds": int(wait.total_seconds())} if wait else {}
    return [PlannedStep(name="reboot", args=args), PlannedStep(name="ready")]


def verify(*, agent: bool = True) -> PlannedStep:
    """The proof that the node is healthy; ``agent`` False where it has none (invariant 38)."""
    return PlannedStep(name="verify", args={"agent": agent})


def manual(verb: str, *, by_person: bool = True) -> tuple[PlannedStep, ...]:
    """The plan behind an operator's button or REST call on one node.

    ``reboot`` ends with the node as it was found: uncordon takes back only what the portal itself changed. Somebody
    else's cordon is lifted by a person's word only (``by_person``), and then by ``uncordon`` alone.
    Raises ValueError for a verb that no button has.
    """
    cordon, drained = PlannedStep(name="cordon"), drain({})
    plans: dict[str, tuple[PlannedStep, ...]] = {
        "cordon": (cordon,),
        "uncordon": (PlannedStep(name="uncordon", args={"foreign": True} if by_person else {}),),
        "drain": (cordon, drained),
        "reboot": (cordon, drained, *reboot({}), verify(), PlannedStep(name="uncordon")),
        "release": (PlannedStep(name="release"),),
    }
    if verb not in plans:
        raise ValueError(f"no such action {verb!r}: use one of {', '.join(plans)}")
    return plans[verb]


def digest(steps: Iterable[PlannedStep]) -> str:
    """A short stable hash of the plan, for approvals and for telling two plans apart."""
    canonical = json.dumps([[step.name, step.args] for step in steps], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _keep_away(asked: Mapping[str, Mapping[str, str]], *, code: str) -> Iterable[PlannedStep]:
    if {"cordon", "drain", "reboot", "gpuReset"} & asked.keys():
        yield PlannedStep(name="cordon")
    if "taint" in asked:
        yield PlannedStep(name="taint", args=_taint(asked["taint"], code=code))
    if "label" in asked:
        key, value = asked["label"]["key"], asked["label"].get("value", "true")
        yield PlannedStep(name="label", args={"key": key, "value": _with_code(value, code)})


def _taint(attribute: Mapping[str, str], *, code: str) -> dict[str, str]:
    return {
        "key": attribute.get("key", DEFAULT_TAINT_KEY),
        "value": _with_code(attribute.get("value", "<code>"), code),
        "effect": attribute.get("effect", DEFAULT_TAINT_EFFECT),
    }


def _with_code(value: str, code: str) -> str:
    """A label's value with the code in it, cut to what Kubernetes takes: 63 characters, the ends letters or digits."""
    written = value.replace("<code>", code)[:63]
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", written)


def _notify(attribute: Mapping[str, str], *, code: str) -> Iterable[PlannedStep]:
    """A word to one channel, or to all that ask for rescues' news where the rule names none."""
    args = dict(attribute)
    if "message" in args:
        args["message"] = args["message"].replace("<code>", code)
    yield PlannedStep(name="notify", args=args)


def _webhook(attribute: Mapping[str, str]) -> Iterable[PlannedStep]:
    """The call, and how long the other system may take to call back; without a wait it is only told."""
    wait = waits.parse(attribute.get("waittime", ""))
    args: dict[str, Any] = {"url": attribute["url"]}
    yield PlannedStep(name="webhook", args=args | ({"wait_seconds": int(wait.total_seconds())} if wait else {}))


def _checks(attribute: Mapping[str, str]) -> Iterable[PlannedStep]:
    """The named checks; without names those that the agent runs periodically."""
    names = attribute.get("checks", "")
    yield PlannedStep(name="run_checks", args={"checks": names.split(",")} if names else {})
