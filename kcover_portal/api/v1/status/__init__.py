"""``GET /status``: Autopilot's on-demand checks, asked of the agents, answered as text or JSON while they come in."""

from kcover_portal.api.v1.status.params import cluster_of
from kcover_portal.api.v1.status.view import Status

__all__ = ["Status", "cluster_of"]
