"""Plans of pair tests, which preflight runs itself."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit.base import Act, register


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlanAct(Act):
    """An act on a plan of pair tests."""

    pair_plan: int

    @property
    def subject(self) -> str:
        """The plan."""
        return f"preflight plan {self.pair_plan}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlanRequested(PairPlanAct):
    """Pair tests were requested. ``nodes``: the first names of ``count``; ``threshold``: GB/s of bus bandwidth."""

    VERB: ClassVar[str] = "pair_plan.requested"

    rule: str
    rounds: int
    threshold: float
    image: str
    nodes: tuple[str, ...]
    count: int
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlanFinished(PairPlanAct):
    """The verdict is known. ``fabric``: leaf switches. The other names are of nodes, the first ones of each kind.

    ``storm``: so many nodes are suspect that no fault is opened on any.
    """

    VERB: ClassVar[str] = "pair_plan.finished"

    rule: str
    tests: int
    errors: int
    slow: tuple[str, ...] = ()
    fabric: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()
    storm: bool = False


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlanCancelled(PairPlanAct):
    """Somebody cancelled the tests that had not ended."""

    VERB: ClassVar[str] = "pair_plan.cancelled"

    reason: str = ""
