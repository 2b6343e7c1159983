"""Parts by serial number that need a person."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit import subjects
from kcover.audit.base import Act, register
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAct(Act):
    """An act on a part. ``node``: the name of the node in which it is."""

    part: int
    kind: str
    serial: str
    node: str
    slot: str = ""

    @property
    def subject(self) -> str:
        """The part."""
        return subjects.part(self.part)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PartFlagged(PartAct):
    """The portal found that a person should look at a part."""

    VERB: ClassVar[str] = "part.flagged"

    because: tuple[Reason, ...]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PartReviewed(PartAct):
    """A person has looked at a flagged part and keeps it where it is."""

    VERB: ClassVar[str] = "part.reviewed"

    reason: str = ""
