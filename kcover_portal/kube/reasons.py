"""Converts the errors of the Kubernetes port to reasons."""

from kcover import reasons
from kcover_portal.kube import errors


def of(error: errors.KubeError) -> reasons.Reason:
    """Returns the reason for an error of the port."""
    match error:
        case errors.NotFound():
            return reasons.of("cluster_not_found", error=error.why)
        case errors.RefusedByServer():
            return reasons.of("cluster_rejected", error=error.why)
    return reasons.of("cluster_unavailable", error=error.why)
