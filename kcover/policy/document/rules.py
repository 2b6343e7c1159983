"""A rule of a RescuePolicy, and the policy around its rules."""

from typing import Any

from kcover import limits
from kcover.policy.document import actions, faults
from kcover.policy.document.notes import Notes
from kcover.policy.document.values import (
    DRAIN_TIMEOUTS,
    KCOVER,
    RULE_MODES,
    Approval,
    Path,
    Policy,
    Rule,
)
from kcover.quoting import shown

KEYS = ("priority", "errorCode", "nodeSelector", "actions")
OWN_KEYS = ("mode", "match", "budget", "cooldown", "approval", "onDrainTimeout", "verify", "escalate")
APPROVAL = ("required", "approvers", "expires")


def read(document: dict[Any, Any], name: str, notes: Notes) -> Policy | None:
    """Reads the ``spec`` of a RescuePolicy; None where it has none."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        notes.problem(("spec",), "spec is missing: write spec: with a list of rules")
        return None
    notes.only(spec, ("rules",), ("spec",))
    rules = spec.get("rules")
    if not isinstance(rules, list) or not rules:
        notes.problem(("spec", "rules"), "rules must be a list with at least one rule")
        return None
    wanted = "a rule is a mapping with priority, errorCode, nodeSelector and actions"
    mappings = notes.mappings(rules, ("spec", "rules"), wanted)
    found = tuple(_rule(rule, index, at, notes) for index, at, rule in mappings)
    return Policy(name=name, api_version=str(document.get("apiVersion")), rules=found)


def _rule(rule: dict[Any, Any], index: int, at: Path, notes: Notes) -> Rule:
    for key in OWN_KEYS:
        if key in rule and not notes.own:
            notes.problem((*at, key), f"{key} needs apiVersion: {KCOVER}")
    notes.only(rule, (*KEYS, *OWN_KEYS), at)
    meant = faults.read(rule, at, notes)
    asked = actions.read(rule, (*at, "actions"), notes)
    selector = _Selector(rule.get("nodeSelector"), (*at, "nodeSelector"), notes)
    verify, verify_agent = _verify(rule.get("verify"), (*at, "verify"), notes)
    read = Rule(
        index=index,
        priority=_priority(rule.get("priority", 0), (*at, "priority"), notes),
        codes=meant.codes,
        sxids=meant.sxids,
        checks=meant.checks,
        kinds=meant.kinds,
        minimum=meant.minimum,
        operator=selector.operator,
        labels=selector.labels,
        actions=asked,
        mode=notes.choice(rule, "mode", RULE_MODES, "enforce", at),
        budget=_budget(rule, at, notes),
        cooldown=notes.wait("cooldown", rule["cooldown"], (*at, "cooldown")) if "cooldown" in rule else None,
        approval=_approval(rule.get("approval"), (*at, "approval"), notes),
        on_drain_timeout=notes.choice(rule, "onDrainTimeout", DRAIN_TIMEOUTS, "hold", at),
        verify=verify,
        verify_agent=verify_agent,
        escalate=_escalate(rule.get("escalate"), (*at, "escalate"), notes),
    )
    if rule.get("actions") == [] and read.escalate is None:
        notes.problem((*at, "actions"), "a rule needs at least one action, cordon for example")
    if "onDrainTimeout" in rule and not any(action.name == "drain" for action in asked):
        notes.problem((*at, "onDrainTimeout"), "onDrainTimeout needs the action drain")
    return read


def _priority(value: object, at: Path, notes: Notes) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
        notes.problem(at, f"priority must be a whole number from 0, not {shown(value)}")
        return 0
    return value


class _Selector:
    """KCE's ``nodeSelector``: an operator and labels; absent: any node."""

    def __init__(self, value: object, at: Path, notes: Notes) -> None:
        self.operator = "all"
        self.labels: Any = None
        if value is None:
            return
        if not isinstance(value, dict):
            notes.problem(at, "nodeSelector is a mapping with operator (any or all) and labels")
            return
        notes.only(value, ("operator", "labels"), at)
        operator = value.get("operator")
        if operator not in ("any", "all"):
            what = "is missing" if operator is None else f"{shown(operator)} is unknown"
            notes.problem((*at, "operator"), f'operator {what}: write "any" (one label is enough) or "all"')
        else:
            self.operator = str(operator)
        labels = value.get("labels")
        self.labels = {} if labels is None else notes.labels(labels, (*at, "labels"))


def _budget(rule: dict[Any, Any], at: Path, notes: Notes) -> limits.Limit | None:
    if "budget" not in rule:
        return None
    try:
        return limits.parse(rule["budget"])
    except limits.LimitError as error:
        notes.problem((*at, "budget"), str(error))
        return None


def _approval(value: object, at: Path, notes: Notes) -> Approval | None:
    """Whether people must say yes: ``true``, or a mapping."""
    if value is None or value is False:
        return None
    if value is True:
        return Approval()
    if not isinstance(value, dict):
        notes.problem(at, "approval is true, or a mapping: approval: {required: true, approvers: 2, expires: 1h}")
        return None
    notes.only(value, APPROVAL, at)
    required, approvers = value.get("required", True), value.get("approvers", 1)
    if not isinstance(required, bool):
        notes.problem((*at, "required"), f"required is true or false, not {shown(required)}")
    if type(approvers) is not int or approvers not in (1, 2):
        notes.problem((*at, "approvers"), f"approvers is 1, or 2 for two persons: not {shown(approvers)}")
    expires = notes.wait("expires", value["expires"], (*at, "expires")) if "expires" in value else None
    return Approval(approvers=approvers, expires=expires) if required is True else None


def _verify(value: object, at: Path, notes: Notes) -> tuple[bool, bool]:
    """Whether to verify, and whether a fresh agent report is part of it (invariant 38)."""
    verify: object = value
    agent: object = True
    if isinstance(value, dict):
        notes.only(value, ("agent",), at)
        verify, agent = True, value.get("agent", True)
    if not isinstance(verify, bool | None) or not isinstance(agent, bool):
        notes.problem(at, "verify is true, or a mapping: verify: {agent: false} when the node has no agent")
    return bool(verify), bool(agent)


def _escalate(value: object, at: Path, notes: Notes) -> str | None:
    if value is None or value is False:
        return None
    if value is True:
        return "a person must look at this node"
    if isinstance(value, str) and 0 < len(value) <= 500:
        return value
    notes.problem(at, "escalate is true, or a sentence of at most 500 characters that says what to do")
    return None
