"""The marks of a probation on its node: a label, a taint, the state label, and an annotation that says what was added.

They are separate from the marks of rescues, because a node on probation may get a rescue of its own.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kcover.nodes.node_stage import Stage

LABEL: Final = "kcover.io/probation"
LABEL_VALUE: Final = "true"
TAINT: Final = (LABEL, "", "NoSchedule")  # key, value, effect; work that may be lost tolerates it
ANNOTATION: Final = LABEL
STATE: Final = Stage.PROBATION.value  # of the state label


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationMark:
    """What one probation changed on its node.

    ``tainted``: the portal added the taint; someone else's stays. ``label_before``, ``state_before``: the values of the
    two labels before, None for none.
    """

    probation: int
    rescue: int
    until: datetime
    tainted: bool = True
    label_before: str | None = None
    state_before: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The content of the annotation and of the database row."""
        return {
            "probation": self.probation,
            "rescue": self.rescue,
            "until": self.until.isoformat(),
            "tainted": self.tainted,
            "before": {"label": self.label_before, "state": self.state_before},
        }

    def render(self) -> str:
        """The annotation's text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def read(content: Any) -> ProbationMark | None:
    """The mark from the result of ``to_json``; None for anything else."""
    try:
        until, before, tainted = datetime.fromisoformat(content["until"]), content["before"], content["tainted"]
        if until.tzinfo is None or not isinstance(tainted, bool):
            return None
        return ProbationMark(
            probation=int(content["probation"]),
            rescue=int(content["rescue"]),
            until=until,
            tainted=tainted,
            label_before=_text(before["label"]),
            state_before=_text(before["state"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def parse(text: str) -> ProbationMark | None:
    """The mark in an annotation; None for a text that the portal did not write."""
    try:
        return read(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
