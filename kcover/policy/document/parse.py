"""Parse one document into a policy, or raise all its problems at once."""

import re

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
from kcover.quote import short_repr

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
        problems.add((), "a policy must be a mapping with apiVersion, kind, metadata and spec")
        return None
    problems.check_keys(document, ("apiVersion", "kind", "metadata", "spec"), ())
    version, kind = document.get("apiVersion"), document.get("kind")
    if version not in (KSYUN, KCOVER):
        problems.add(("apiVersion",), f"unknown apiVersion {short_repr(version)}: write {KSYUN} or {KCOVER}")
    if kind not in (RESCUE, STANDBY):
        known = (RESCUE, STANDBY)
        problems.add(
            ("kind",), f"unknown kind {short_repr(kind)}: write {' or '.join(known)}{did_you_mean(kind, known)}"
        )
    name = _name(document.get("metadata"), problems)
    if kind == STANDBY:
        return standby_policy.read(document, name, problems)
    return rescue_policy.read(document, name, problems)


def _name(metadata: object, problems: ProblemCollector) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = "a policy needs a name of lower-case letters, digits, '-' and '.', at most 253"
        problems.add(("metadata", "name"), message)
    return str(name)
