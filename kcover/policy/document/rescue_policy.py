"""Parse a RescuePolicy and its rules."""

from typing import Any

from kcover.actions import ACTIONS, validate
from kcover.nodes import probation
from kcover.policy import modes
from kcover.policy.document import actions, fault_selector
from kcover.policy.document.model import (
    DRAIN_TIMEOUTS,
    KCOVER,
    Action,
    Approval,
    Path,
    Policy,
    Problem,
    Rule,
)
from kcover.policy.document.problem_collector import ProblemCollector
from kcover.sentences import shipped_policies
from kcover.values import durations, limits
from kcover.values.quote import short_repr

KEYS = ("priority", "errorCode", "nodeSelector", "actions")
OWN_KEYS = (
    *("mode", "match", "budget", "cooldown", "approval", "onDrainTimeout"),
    *("verify", "validate", "probation", "escalate"),
)
APPROVAL = ("required", "approvers", "expires")


def read(document: dict[Any, Any], name: str, problems: ProblemCollector) -> Policy | None:
    """The policy in a RescuePolicy document; None if it has no rules to parse."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        problems.add(("spec",), "rules_spec_missing")
        return None
    problems.check_keys(spec, ("rules",), ("spec",), deeper=(*KEYS, *OWN_KEYS))
    rules = spec.get("rules")
    if not isinstance(rules, list) or not rules:
        problems.add(("spec", "rules"), "rules_type")
        return None
    mappings = problems.mappings(rules, ("spec", "rules"), "rule_type")
    parsed = tuple(_rule(rule, index, at, problems) for index, at, rule in mappings)
    return Policy(name=name, api_version=str(document.get("apiVersion")), rules=parsed)


def _rule(rule: dict[Any, Any], index: int, at: Path, problems: ProblemCollector) -> Rule:
    for key in OWN_KEYS:
        if key in rule and not problems.own:
            problems.add((*at, key), "needs_own_version", key=key, version=KCOVER)
    problems.check_keys(rule, (*KEYS, *OWN_KEYS), at)
    selected = fault_selector.read(rule, at, problems)
    parsed_actions = actions.read(rule, (*at, "actions"), problems)
    selector = _Selector(rule.get("nodeSelector"), (*at, "nodeSelector"), problems)
    verify, verify_agent = _verify(rule.get("verify"), (*at, "verify"), problems)
    parsed = Rule(
        index=index,
        priority=_priority(rule.get("priority", 0), (*at, "priority"), problems),
        codes=selected.codes,
        sxids=selected.sxids,
        checks=selected.checks,
        phrases=selected.phrases,
        kinds=selected.kinds,
        application_faults=selected.application_faults,
        minimum=selected.minimum,
        operator=selector.operator,
        labels=selector.labels,
        actions=parsed_actions,
        mode=problems.choice(rule, "mode", modes.RULE_MODES, "enforce", at),
        budget=_budget(rule, at, problems),
        cooldown=problems.duration("cooldown", rule["cooldown"], (*at, "cooldown")) if "cooldown" in rule else None,
        approval=_approval(rule.get("approval"), (*at, "approval"), problems),
        on_drain_timeout=_on_drain_timeout(rule, at, problems),
        verify=verify,
        verify_agent=verify_agent,
        validate=_validate(rule, at, parsed_actions, problems),
        probation=_probation(rule.get("probation"), (*at, "probation"), problems),
        escalate=_escalate(rule.get("escalate"), (*at, "escalate"), problems),
    )
    if rule.get("actions") == [] and parsed.escalate is None:
        problems.add((*at, "actions"), "rule_without_actions")
    if "onDrainTimeout" in rule and not any(action.name == "drain" for action in parsed_actions):
        problems.add((*at, "onDrainTimeout"), "drain_timeout_unused")
    if parsed.probation is not None and not parsed.uncordons:
        problems.add((*at, "probation"), "probation_unreturned")
    return parsed


def _on_drain_timeout(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> str:
    """One of DRAIN_TIMEOUTS; "" if the rule does not say."""
    return problems.choice(rule, "onDrainTimeout", DRAIN_TIMEOUTS, "hold", at) if "onDrainTimeout" in rule else ""


def _priority(value: object, at: Path, problems: ProblemCollector) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
        problems.add(at, "priority_invalid", value=short_repr(value))
        return 0
    return value


class _Selector:
    """KCE's ``nodeSelector``: an operator and labels. ``labels`` is None (any node) if it is absent."""

    def __init__(self, value: object, at: Path, problems: ProblemCollector) -> None:
        self.operator = "all"
        self.labels: Any = None
        if value is None:
            return
        if not isinstance(value, dict):
            problems.add(at, "selector_type")
            return
        problems.check_keys(value, ("operator", "labels"), at)
        operator = value.get("operator")
        if operator not in ("any", "all"):
            if operator is None:
                problems.add((*at, "operator"), "operator_missing")
            else:
                problems.add((*at, "operator"), "operator_unknown", value=short_repr(operator))
        else:
            self.operator = str(operator)
        labels = value.get("labels")
        self.labels = {} if labels is None else problems.labels(labels, (*at, "labels"))


def _budget(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> limits.Limit | None:
    if "budget" not in rule:
        return None
    try:
        return limits.parse(rule["budget"])
    except limits.LimitError as error:
        problems.found.append(Problem((*at, "budget"), error.reason))
        return None


def _approval(value: object, at: Path, problems: ProblemCollector) -> Approval | None:
    """The approval that the rule requires: ``true``, or a mapping; None if it requires none."""
    if value is None or value is False:
        return None
    if value is True:
        return Approval()
    if not isinstance(value, dict):
        problems.add(at, "approval_type", example="{required: true, approvers: 2, expires: 1h}")
        return None
    problems.check_keys(value, APPROVAL, at)
    required, approvers = value.get("required", True), value.get("approvers", 1)
    if not isinstance(required, bool):
        problems.add((*at, "required"), "approval_required_type", value=short_repr(required))
    if type(approvers) is not int or approvers not in (1, 2):
        problems.add((*at, "approvers"), "approvers_invalid", value=short_repr(approvers))
    expires = problems.duration("expires", value["expires"], (*at, "expires")) if "expires" in value else None
    return Approval(approvers=approvers, expires=expires) if required is True else None


def _verify(value: object, at: Path, problems: ProblemCollector) -> tuple[bool, bool]:
    """Return whether to verify, and whether a fresh agent report is part of it (invariant 38)."""
    verify: object = value
    agent: object = True
    if isinstance(value, dict):
        problems.check_keys(value, ("agent",), at)
        verify, agent = True, value.get("agent", True)
    if not isinstance(verify, bool | None) or not isinstance(agent, bool):
        problems.add(at, "verify_type", example="{agent: false}")
    return bool(verify), bool(agent)


def _validate(
    rule: dict[Any, Any], at: Path, parsed_actions: tuple[Action, ...], problems: ProblemCollector
) -> str | None:
    """The profile of the validation; None without one. Only an isolated node can be validated."""
    if rule.get("validate") is None:
        return None
    isolating = {spec.policy.name for spec in ACTIONS.values() if spec.policy is not None and spec.isolates}
    if not any(action.name in isolating for action in parsed_actions):
        problems.add((*at, "validate"), "validate_unisolated", known=", ".join(sorted(isolating)))
    return problems.choice(rule, "validate", validate.PROFILES, validate.PROFILES[0], at)


def _probation(value: object, at: Path, problems: ProblemCollector) -> str | None:
    """The length of the probation in canonical form, or "auto"; None without one."""
    if value is None or value == probation.NONE:
        return None
    if value == probation.AUTO:
        return probation.AUTO
    length = problems.duration("probation", value, at)
    if length > probation.MAX_LENGTH:
        problems.add(at, "probation_long", days=probation.MAX_LENGTH.days)
    return durations.render(length)


def _escalate(value: object, at: Path, problems: ProblemCollector) -> str | None:
    if value is None or value is False:
        return None
    if value is True:
        return shipped_policies.DEFAULT
    if isinstance(value, str) and 0 < len(value) <= 500:
        return value
    problems.add(at, "escalate_invalid")
    return None
