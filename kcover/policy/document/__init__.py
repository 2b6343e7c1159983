"""Parse policy documents into typed rules, with every error by its path, and render rules as documents.

KCE's ``rescue.ksyun.com/v1`` is accepted unchanged; ``kcover.io/v1`` is the same and adds per rule ``mode``, ``match``,
``budget``, ``cooldown``, ``approval``, ``onDrainTimeout``, ``verify``, ``validate``, ``escalate`` and the actions of
``kcover.actions`` that are the portal's own (docs/interfaces.md, section 5).
"""

from kcover.policy.document.exported import items as items, without_server_fields as without_server_fields
from kcover.policy.document.model import (
    DRAIN_TIMEOUTS as DRAIN_TIMEOUTS,
    KCOVER as KCOVER,
    KSYUN as KSYUN,
    RESCUE as RESCUE,
    STANDBY as STANDBY,
    Action as Action,
    Approval as Approval,
    Minimum as Minimum,
    Policy as Policy,
    PolicyInvalid as PolicyInvalid,
    Problem as Problem,
    Rule as Rule,
    StandbyPolicy as StandbyPolicy,
    StandbyRule as StandbyRule,
)
from kcover.policy.document.parse import read as read
from kcover.policy.document.serialize import render as render, render_rule as render_rule
