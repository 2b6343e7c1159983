"""A probation, from the return of the node to its end."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from kcover.audit.base import Act, register
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationAct(Act):
    """An act on a probation. ``rescue``: the one that returned the node."""

    rescue: int
    node: str
    probation: int

    @property
    def subject(self) -> str:
        """The node."""
        return f"node {self.node}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationBegan(ProbationAct):
    """The node was returned on probation. ``because``: the basis of its length."""

    VERB: ClassVar[str] = "probation.began"

    until: datetime
    because: Reason


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationEndRequested(ProbationAct):
    """A person or program ended it early. ``reason``: in their own words."""

    VERB: ClassVar[str] = "probation.end_requested"

    reason: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationEnded(ProbationAct):
    """The node is not on probation any more."""

    VERB: ClassVar[str] = "probation.ended"

    because: Reason
