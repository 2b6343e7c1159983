"""A probation, from the return of the node to its end."""

from datetime import datetime

from kcover.audit.base import Act
from kcover.reasons import Reason


class ProbationAct(Act, subject="node {node}"):
    """An act on a probation. ``rescue``: the one that returned the node."""

    rescue: int
    node: str
    probation: int


class ProbationBegan(ProbationAct, verb="probation.began"):
    """The node was returned on probation. ``because``: the basis of its length."""

    until: datetime
    because: Reason


class ProbationEndRequested(ProbationAct, verb="probation.end_requested"):
    """A person or program ended it early. ``reason``: in their own words."""

    reason: str


class ProbationEnded(ProbationAct, verb="probation.ended"):
    """The node is not on probation any more."""

    because: Reason
