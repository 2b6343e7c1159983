"""Parse one document into a policy, or raise all its problems at once."""

import re

from kcover import reasons
from kcover.policy.document import rescue_policy, standby_policy
from kcover.policy.document.model import (
    KCOVER,
    KSYUN,
    RESCUE,
    STANDBY,
    Policy,
    PolicyInvalid,
    StandbyPolicy,
)
from kcover.policy.document.problem_collector import ProblemCollector, did_you_mean
from kcover.values.quote import short_repr

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def read(document: object) -> Policy | StandbyPolicy:
    """The policy in a document that YAML or JSON gave. Raises PolicyInvalid with every problem found."""
    own = isinstance(document, dict) and document.get("apiVersion") == KCOVER
    problems = ProblemCollector(own=own)
    policy = _read(document, problems)
    if problems.found or policy is None:
        raise PolicyInvalid(problems.found)
    return policy


def _read(document: object, problems: ProblemCollector) -> Policy | StandbyPolicy | None:
    if not isinstance(document, dict):
        problems.add((), "policy_type")
        return None
    problems.check_keys(document, ("apiVersion", "kind", "metadata", "spec"), ())
    version, kind = document.get("apiVersion"), document.get("kind")
    if version not in (KSYUN, KCOVER):
        known_versions = reasons.either((KSYUN, KCOVER))
        problems.add(("apiVersion",), "policy_version_unknown", version=short_repr(version), known=known_versions)
    if kind not in (RESCUE, STANDBY):
        known = (RESCUE, STANDBY)
        named = {"kind": short_repr(kind), "known": reasons.either(known), "hint": did_you_mean(kind, known)}
        problems.add(("kind",), "policy_kind_unknown", **named)
    name = _name(document.get("metadata"), problems)
    if kind == STANDBY:
        return standby_policy.read(document, name, problems)
    return rescue_policy.read(document, name, problems)


def _name(metadata: object, problems: ProblemCollector) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problems.add(("metadata", "name"), "policy_name_invalid")
    return str(name)
