"""Evidence that was collected before a reset or a reboot, or that is missing."""

from dataclasses import dataclass
from typing import ClassVar

from kcover import reasons
from kcover.audit.base import Act, register
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAct(Act):
    """An act on a bundle of evidence. ``number``: its number within the rescue."""

    rescue: int
    node: str
    number: int

    @property
    def subject(self) -> str:
        """The node."""
        return f"node {self.node}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceKept(EvidenceAct):
    """The portal stored a bundle. ``size``: in bytes."""

    VERB: ClassVar[str] = "evidence.kept"

    sha256: str
    size: int

    @property
    def explanation(self) -> Reason:
        """The hash, by which a copy of the bundle can be checked."""
        return reasons.of("evidence_hash", bytes=self.size, sha256=self.sha256)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceMissed(EvidenceAct):
    """A step went on without the bundle."""

    VERB: ClassVar[str] = "evidence.missed"

    step: int
    name: str
    because: Reason
