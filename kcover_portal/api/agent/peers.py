"""The neighbours that an agent pings on its timer."""

from typing import Any

from django.db import close_old_connections

from kcover_portal.api.agent.credentials import Credential
from kcover_portal.fleet.services import neighbours


def addresses(credential: Credential) -> dict[str, Any]:
    """``{"peers": [address, …]}``, at most 32; none in a cluster with one node."""
    close_old_connections()
    return {"peers": neighbours.addresses(credential.cluster, credential.node)}
