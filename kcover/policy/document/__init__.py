"""Parse policy documents into typed rules, with every error by its path, and render rules as documents.

KCE's ``rescue.ksyun.com/v1`` is accepted unchanged; ``kcover.io/v1`` is the same and adds per rule ``mode``, ``match``,
``budget``, ``cooldown``, ``approval``, ``onDrainTimeout``, ``verify``, ``validate``, ``escalate`` and the actions of
``kcover.actions`` that are the portal's own (docs/interfaces.md, section 5).
"""

from kcover.policy.document.exported import items, without_server_fields
from kcover.policy.document.model import (
    DRAIN_TIMEOUTS,
    KCOVER,
    KSYUN,
    MODES,
    RESCUE,
    RULE_MODES,
    STANDBY,
    Action,
    Approval,
    Minimum,
    Policy,
    PolicyInvalid,
    Problem,
    Rule,
    StandbyPolicy,
    StandbyRule,
)
from kcover.policy.document.parse import read
from kcover.policy.document.serialize import render, render_rule

__all__ = [
    "DRAIN_TIMEOUTS",
    "KCOVER",
    "KSYUN",
    "MODES",
    "RESCUE",
    "RULE_MODES",
    "STANDBY",
    "Action",
    "Approval",
    "Minimum",
    "Policy",
    "PolicyInvalid",
    "Problem",
    "Rule",
    "StandbyPolicy",
    "StandbyRule",
    "items",
    "read",
    "render",
    "render_rule",
    "without_server_fields",
]
