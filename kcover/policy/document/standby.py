"""A WarmStandbyPolicy: which standbys may replace which nodes."""

from collections.abc import Mapping
from typing import Any

from kcover.policy.document.notes import Notes
from kcover.policy.document.values import Path, StandbyPolicy, StandbyRule

SIDES = ("originNode", "targetNode")


def read(document: dict[Any, Any], name: str, notes: Notes) -> StandbyPolicy | None:
    """Reads the ``spec`` of a WarmStandbyPolicy; None where it has none."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        notes.problem(("spec",), "spec is missing: write spec: with a list of matches")
        return None
    notes.only(spec, ("matches",), ("spec",))
    matches = spec.get("matches")
    if not isinstance(matches, list) or not matches:
        message = "matches must be a list with at least one pair of originNode and targetNode"
        notes.problem(("spec", "matches"), message)
        return None
    wanted = "a match is a mapping with the labels of originNode and of targetNode"
    mappings = notes.mappings(matches, ("spec", "matches"), wanted)
    found = tuple(_match(match, index, at, notes) for index, at, match in mappings)
    return StandbyPolicy(name=name, api_version=str(document.get("apiVersion")), matches=found)


def _match(match: dict[Any, Any], index: int, at: Path, notes: Notes) -> StandbyRule:
    notes.only(match, SIDES, at)
    origin, target = (_side(match, side, at, notes) for side in SIDES)
    return StandbyRule(index=index, origin=origin, target=target)


def _side(match: dict[Any, Any], side: str, at: Path, notes: Notes) -> Mapping[str, str]:
    """Labels of one side; an empty mapping means every node, a missing one is a mistake."""
    if match.get(side) is None:
        notes.problem(at if side not in match else (*at, side), f"{side} is missing: write its labels, or {{}} for any")
        return {}
    return notes.labels(match[side], (*at, side))
