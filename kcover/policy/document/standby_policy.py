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
        problems.add(("spec",), "matches_spec_missing")
        return None
    problems.check_keys(spec, ("matches",), ("spec",))
    matches = spec.get("matches")
    if not isinstance(matches, list) or not matches:
        problems.add(("spec", "matches"), "matches_type")
        return None
    mappings = problems.mappings(matches, ("spec", "matches"), "standby_match_type")
    parsed = tuple(_match(match, index, at, problems) for index, at, match in mappings)
    return StandbyPolicy(name=name, api_version=str(document.get("apiVersion")), matches=parsed)


def _match(match: dict[Any, Any], index: int, at: Path, problems: ProblemCollector) -> StandbyRule:
    problems.check_keys(match, SIDES, at)
    origin, target = (_labels_of_side(match, side, at, problems) for side in SIDES)
    return StandbyRule(index=index, origin=origin, target=target)


def _labels_of_side(match: dict[Any, Any], side: str, at: Path, problems: ProblemCollector) -> Mapping[str, str]:
    """The labels of one side; an empty mapping selects every node, a missing one is a problem."""
    if match.get(side) is None:
        problems.add(at if side not in match else (*at, side), "side_missing", side=side, example="{}")
        return {}
    return problems.labels(match[side], (*at, side))
