"""Evidence that was collected before a reset or a reboot, or that is missing."""

from kcover import reasons
from kcover.audit.base import Act
from kcover.reasons import Reason


class EvidenceAct(Act, subject="node {node}"):
    """An act on a bundle of evidence. ``number``: its number within the rescue."""

    rescue: int
    node: str
    number: int


class EvidenceKept(EvidenceAct, verb="evidence.kept"):
    """The portal stored a bundle. ``size``: in bytes."""

    sha256: str
    size: int

    @property
    def explanation(self) -> Reason:
        """The hash, by which a copy of the bundle can be checked."""
        return reasons.of("evidence_hash", bytes=self.size, sha256=self.sha256)


class EvidenceMissed(EvidenceAct, verb="evidence.missed"):
    """A step went on without the bundle."""

    step: int
    name: str
    because: Reason
