"""Parse a WarmStandbyPolicy: which standbys may replace which nodes."""

from collections.abc import Mapping
from typing import Any

from kcover.policy.document.model import Path, StandbyPolicy, StandbyRule
from kcover.policy.document.problem_collector import ProblemCollector

SIDES = ("originNode", "targetNode")


def read(document: dict[Any, Any], name: str, problems: ProblemCollector) -> StandbyPolicy | None:
    """The policy in a WarmStandbyPolicy document; None if it has no matches to parse."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        problems.add(("spec",), "spec is missing: write spec: with a list of matches")
        return None
    problems.check_keys(spec, ("matches",), ("spec",))
    matches = spec.get("matches")
    if not isinstance(matches, list) or not matches:
        message = "matches must be a list with at least one pair of originNode and targetNode"
        problems.add(("spec", "matches"), message)
        return None
    message = "a match must be a mapping with the labels of originNode and of targetNode"
    mappings = problems.mappings(matches, ("spec", "matches"), message)
    parsed = tuple(_match(match, index, at, problems) for index, at, match in mappings)
    return StandbyPolicy(name=name, api_version=str(document.get("apiVersion")), matches=parsed)


def _match(match: dict[Any, Any], index: int, at: Path, problems: ProblemCollector) -> StandbyRule:
    problems.check_keys(match, SIDES, at)
    origin, target = (_side(match, side, at, problems) for side in SIDES)
    return StandbyRule(index=index, origin=origin, target=target)


def _side(match: dict[Any, Any], side: str, at: Path, problems: ProblemCollector) -> Mapping[str, str]:
    """The labels of one side; an empty mapping selects every node, a missing one is a problem."""
    if match.get(side) is None:
        problems.add(at if side not in match else (*at, side), f"{side} is missing: write its labels, or {{}} for any")
        return {}
    return problems.labels(match[side], (*at, side))
