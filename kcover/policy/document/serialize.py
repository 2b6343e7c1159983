"""Render a policy as a document in canonical form, without default values."""

from collections.abc import Mapping
from typing import Any

from kcover.policy.document.model import Action, Policy, Rule, StandbyPolicy
from kcover.values import durations, limits


def render(policy: Policy | StandbyPolicy) -> dict[str, Any]:
    """The document that ``read`` parses as this policy; rules are numbered by their order."""
    spec: dict[str, Any]
    if isinstance(policy, StandbyPolicy):
        pairs = ({"originNode": dict(match.origin), "targetNode": dict(match.target)} for match in policy.matches)
        spec = {"matches": list(pairs)}
    else:
        spec = {"rules": [render_rule(rule) for rule in policy.rules]}
    return {
        "apiVersion": policy.api_version,
        "kind": policy.kind,
        "metadata": {"name": policy.name},
        "spec": spec,
    }


def render_rule(rule: Rule) -> dict[str, Any]:
    """The rule as a document writes it, without default values."""
    written: Mapping[str, Any] = {
        "priority": rule.priority,
        "mode": rule.mode if rule.mode != "enforce" else None,
        "errorCode": list(rule.codes) if rule.codes is not None else None,
        "match": _match(rule) or None,
        "nodeSelector": ({"operator": rule.operator, "labels": dict(rule.labels)} if rule.labels is not None else None),
        "budget": limits.render(rule.budget) if rule.budget is not None else None,
        "cooldown": durations.render(rule.cooldown) or None,
        "approval": _approval(rule),
        "actions": [_action(action) for action in rule.actions],
        "onDrainTimeout": rule.on_drain_timeout or None,
        "verify": None if not rule.verify else True if rule.verify_agent else {"agent": False},
        "validate": rule.validate,
        "probation": rule.probation,
        "escalate": rule.escalate,
    }
    return {key: value for key, value in written.items() if value is not None}


def _match(rule: Rule) -> dict[str, Any]:
    match: dict[str, Any] = {"sxid": list(rule.sxids), "checks": list(rule.checks), "kinds": list(rule.kinds)}
    if rule.phrases:
        match["codes"] = {kind: list(codes) for kind, codes in rule.phrases.items()}
    if not rule.application_faults:
        match["applicationFaults"] = False
    if rule.minimum is not None:
        match |= {"minCount": rule.minimum.count, "within": durations.render(rule.minimum.within)}
    return {key: value for key, value in match.items() if value != []}


def _approval(rule: Rule) -> dict[str, Any] | None:
    if rule.approval is None:
        return None
    written = {
        "required": True,
        "approvers": rule.approval.approvers,
        "expires": durations.render(rule.approval.expires),
    }
    return {key: value for key, value in written.items() if value != ""}


def _action(action: Action) -> dict[str, Any]:
    return {"name": action.name, **({"attribute": dict(action.attribute)} if action.attribute else {})}
