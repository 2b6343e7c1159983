"""Parts by serial number that need attention."""

from kcover.audit import subjects
from kcover.audit.base import Act
from kcover.reasons import Reason


class PartAct(Act):
    """An act on a part. ``node``: the name of the node in which it is."""

    part: int
    kind: str
    serial: str
    node: str
    slot: str = ""

    @property
    def subject(self) -> str:
        return subjects.part(self.part)


class PartFlagged(PartAct, verb="part.flagged"):
    """The portal found that a person should look at a part."""

    because: tuple[Reason, ...]


class PartReviewed(PartAct, verb="part.reviewed"):
    """A person has looked at a flagged part and keeps it where it is."""

    reason: str = ""
