"""Plans of pair tests, which preflight runs itself."""

from kcover.audit.base import Act


class PairPlanAct(Act, subject="preflight plan {pair_plan}"):
    """An act on a plan of pair tests."""

    pair_plan: int


class PairPlanRequested(PairPlanAct, verb="pair_plan.requested"):
    """Pair tests were requested. ``nodes``: the first names of ``count``; ``threshold``: GB/s of bus bandwidth."""

    rule: str
    rounds: int
    threshold: float
    image: str
    nodes: tuple[str, ...]
    count: int
    reason: str = ""


class PairPlanFinished(PairPlanAct, verb="pair_plan.finished"):
    """The verdict is known. ``fabric``: leaf switches. The other names are of nodes, the first ones of each kind.

    ``storm``: so many nodes are suspect that no fault is opened on any.
    """

    rule: str
    tests: int
    errors: int
    slow: tuple[str, ...] = ()
    fabric: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()
    storm: bool = False


class PairPlanCancelled(PairPlanAct, verb="pair_plan.cancelled"):
    """Somebody cancelled the tests that had not ended."""

    reason: str = ""
