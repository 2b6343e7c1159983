"""The errors of the Kubernetes boundary as reasons."""

from kcover import reasons
from kcover_portal.kube import errors


def of(error: errors.KubeError) -> reasons.Reason:
    """What the cluster answered instead of doing what was asked."""
    match error:
        case errors.NotFound():
            return reasons.of("cluster_not_found", error=str(error))
        case errors.RefusedByServer():
            return reasons.of("cluster_rejected", error=str(error))
    return reasons.of("cluster_unavailable", error=str(error))
