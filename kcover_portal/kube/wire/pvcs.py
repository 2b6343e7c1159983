"""Claims of storage."""

from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class ClaimStatus(base.Struct, frozen=True):
    """v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class ClaimObject(base.AnyObject, frozen=True):
    """A PersistentVolumeClaim."""

    status: ClaimStatus = ClaimStatus()

    def value(self) -> values.ClaimState:
        """The port's claim state: one that is going is as good as gone."""
        if self.metadata.deletion_timestamp is not None:
            return values.ClaimState(exists=False)
        return values.ClaimState(exists=True, phase=self.status.phase)
