"""Policies as written: documents in, typed rules out, every mistake named by its path; and back again.

KCE's ``rescue.ksyun.com/v1`` is read unchanged; ``kcover.io/v1`` is the same and adds per rule ``mode``, ``match``,
``budget``, ``cooldown``, ``approval``, ``onDrainTimeout``, ``verify``, ``escalate`` and the actions ``taint``,
``label``, ``gpuReset``, ``restartJobs``, ``notify``, ``webhook`` and ``runChecks`` (semantics section 4, interfaces
section 5).
"""

from kcover.policy.document.actions import ACTIONS, ActionKind
from kcover.policy.document.reading import read
from kcover.policy.document.values import (
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
from kcover.policy.document.writing import render

__all__ = [
    "ACTIONS",
    "DRAIN_TIMEOUTS",
    "KCOVER",
    "KSYUN",
    "MODES",
    "RESCUE",
    "RULE_MODES",
    "STANDBY",
    "Action",
    "ActionKind",
    "Approval",
    "Minimum",
    "Policy",
    "PolicyInvalid",
    "Problem",
    "Rule",
    "StandbyPolicy",
    "StandbyRule",
    "read",
    "render",
]
