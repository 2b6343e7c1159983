"""Agents in pods of the cluster ``east``: the tokens that they show, and what a review says of them."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from kcover_portal.api.agent import app
from kcover_portal.api.agent.jwt_claims import AUDIENCE
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import connections, port
from tests.kube_fake import FakeCluster
from tests.portal.api.door import Answer, Door

ACCOUNT = "kcover-system/kcover-agent"
NAME = "system:serviceaccount:kcover-system:kcover-agent"


@contextmanager
def east(now: datetime) -> Iterator[FakeCluster]:
    """The cluster; the door has not heard anybody yet."""
    app.known_accounts.forget()
    cluster = Cluster.objects.create(name="east", created_at=now)
    kube = FakeCluster()
    uninstall = connections.install(cluster.pk, kube)
    yield kube
    uninstall()


def jwt(**claims: Any) -> str:
    """A token in a service account's shape; ``None`` takes a claim out."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).timestamp()
    whole = {"sub": NAME, "aud": [AUDIENCE], "exp": int(ends), **claims}
    parts = ({"alg": "RS256"}, {name: value for name, value in whole.items() if value is not None}, "signature")
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def identity(**changes: Any) -> port.TokenIdentity:
    """An agent's pod on gpu-1, as a review tells it."""
    known: dict[str, Any] = {
        "username": NAME,
        "audiences": (AUDIENCE,),
        "node_name": "gpu-1",
        "pod_name": "agent",
        "pod_uid": "uid-1",
        "service_account": ACCOUNT,
        **changes,
    }
    return port.TokenIdentity(**known)


class Agent(Door):
    """An agent with a token that the cluster may know."""

    def __init__(self, kube: FakeCluster, who: port.TokenIdentity | None = None, **claims: Any) -> None:
        super().__init__(jwt(**claims))
        kube.add_token(self.secret or "", who or identity())

    def report(self, body: Any, **headers: str) -> Answer:
        return super().report(body, **{"X_Kcover_Cluster": "east", **headers})
