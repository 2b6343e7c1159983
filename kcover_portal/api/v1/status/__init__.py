"""``GET /status``: Autopilot's on-demand checks. Results are streamed as text or JSON."""

from kcover_portal.api.v1.status.params import cluster_of as cluster_of
from kcover_portal.api.v1.status.view import Status as Status
