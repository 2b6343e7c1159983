"""What publishing a text would switch off: rules that never run, and rules that a shadow rule keeps from acting."""

from kcover import reasons
from kcover.values import digests
from kcover_portal.policies import queries
from kcover_portal.policies.services import advice
from kcover_portal.policies.services.validation import ValidationResult
from kcover_portal.policies.services.yaml_reader import Problem


def effects(validated: ValidationResult) -> tuple[Problem, ...]:
    """Returns the warnings about rules that would stop acting; without those that hold for the active policies too."""
    found = tuple(problem for problem in validated.warnings if _switches_off(problem.reason))
    if not found:
        return ()
    names = {name for kind, name in (policy.key for policy in validated.policies) if kind == queries.RESCUE}
    present = {digests.digest(item.reason.to_json()) for item in advice.weigh(queries.candidates(), fresh=names)}
    return tuple(problem for problem in found if digests.digest(problem.reason.to_json()) not in present)


def digest_of_effects(found: tuple[Problem, ...]) -> str:
    """Identifies these effects, so that a person agrees to what they read; "" for none."""
    return digests.digest([problem.reason.to_json() for problem in found]) if found else ""


def _switches_off(reason: reasons.Reason) -> bool:
    tied = reasons.saying(reason, "same_priority")
    never_runs = any(dict(part.params)["note"] for part in tied)
    return never_runs or reasons.says(reason, "rule_covered", "rule_shadowed")
