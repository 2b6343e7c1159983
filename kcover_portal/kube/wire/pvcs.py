"""PersistentVolumeClaims."""

from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class ClaimStatus(base.Struct, frozen=True):
    """v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class ClaimObject(base.AnyObject, frozen=True):
    status: ClaimStatus = ClaimStatus()

    def value(self) -> values.ClaimState:
        """Returns the port's value; a terminating claim counts as not existing."""
        if self.metadata.deletion_timestamp is not None:
            return values.ClaimState(exists=False)
        return values.ClaimState(exists=True, phase=self.status.phase)
