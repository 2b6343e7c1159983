"""What the portal changed on a node, written on the node itself as one annotation.

With it the portal takes back exactly what it added, whoever else changed the node meanwhile (invariants 18, 19, 22),
and a node tells its own story to anyone who looks at it with kubectl.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ANNOTATION = "kcover.io/rescue"
STATE_LABEL = "kcover.io/state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """``rescue``: who wrote it. ``cordon``: the portal cordoned. ``foreign_cordon``: somebody else had before.

    ``taints`` are (key, value, effect) that the portal added. ``labels`` maps each label that the portal set to the
    value that was there before, None for none. ``given``: the values of those that the portal gives once and leaves:
    another value that is found later is somebody else's. The portal's own state label changes and is not among them.
    """

    rescue: int
    cordon: bool = False
    foreign_cordon: bool = False
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    def with_cordon(self, *, was_unschedulable: bool) -> "Marks":
        """After a cordon; one that was there before is somebody else's and stays theirs."""
        if self.cordon or self.foreign_cordon:
            return self
        return replace(self, cordon=not was_unschedulable, foreign_cordon=was_unschedulable)

    def with_taint(self, taint: tuple[str, str, str], *, was_there: bool) -> "Marks":
        """After a taint; one that was there before is somebody else's."""
        if was_there or taint in self.taints:
            return self
        return replace(self, taints=(*self.taints, taint))

    def with_label(self, key: str, *, before: str | None, value: str | None = None) -> "Marks":
        """After setting a label; the first value seen is the one to give back. ``value``: the one it keeps from now."""
        given = self.given if value is None else {**self.given, key: value}
        if key in self.labels:
            return replace(self, given=given)
        return replace(self, labels={**self.labels, key: before}, given=given)

    def labels_back(self, labels: Mapping[str, str]) -> dict[str, str | None]:
        """What to set so that a node with these labels has again what was there before; None: none."""
        return {
            key: before
            for key, before in self.labels.items()
            if labels.get(key) != before and labels.get(key) == self.given.get(key, labels.get(key))
        }

    def to_json(self) -> dict[str, Any]:
        """The annotation's content; also what the database keeps."""
        return {
            "rescue": self.rescue,
            "changed": {
                "cordon": self.cordon,
                "taints": [list(taint) for taint in self.taints],
                "labels": sorted(self.labels),
                **({"given": dict(self.given)} if self.given else {}),
            },
            "before": {"unschedulable": self.foreign_cordon, "labels": dict(self.labels)},
        }

    def render(self) -> str:
        """The annotation's text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def parse(text: str) -> dict[str, Any]:
    """The annotation's JSON; empty for none, or for a text that the portal did not write."""
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read(content: Mapping[str, Any]) -> Marks | None:
    """Marks from what ``to_json`` gave; None for anything else. Unreadable marks are never guessed at."""
    try:
        changed, before = content["changed"], content["before"]
        return Marks(
            rescue=int(content["rescue"]),
            cordon=changed["cordon"] is True,
            foreign_cordon=before["unschedulable"] is True,
            taints=tuple((str(k), str(v), str(e)) for k, v, e in changed["taints"]),
            labels={str(k): None if v is None else str(v) for k, v in before["labels"].items()},
            given={str(k): str(v) for k, v in changed.get("given", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
