"""A small installation with rows of every kind in two clusters, and callers of every role."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from kcover import audit
from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app
from kcover_portal.api.v1 import preflight, sources
from kcover_portal.fleet.models import Agent, Cluster, Gpu, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.kube import connections
from kcover_portal.kube.fake import FakeCluster
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Approval, Decision, Rescue, Step
from tests.portal.api import door


class Api:
    """A caller: one token or session, JSON in and out."""

    def __init__(self, secret: str = "", *, client: Client | None = None) -> None:
        self.client = client or Client()
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def call(self, method: str, path: str, body: Any = None, *, text: str | None = None, **headers: str) -> Any:
        """The response; ``text`` is sent as YAML, ``body`` as JSON."""
        content: dict[str, Any] = {} if method == "get" else {"data": b"", "content_type": ""}
        if text is not None:
            content = {"data": text, "content_type": "application/yaml"}
        if body is not None:
            content = {"data": body, "content_type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return getattr(self.client, method)(f"/api/v1/{path}", headers={**self.headers, **named}, **content)

    def get(self, path: str, **headers: str) -> Any:
        return self.call("get", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.call("post", path, {} if body is None and "text" not in more else body, **more)

    def ids(self, path: str) -> list[int]:
        response = self.get(path)
        assert response.status_code == 200, response.content
        return [row["id"] for row in response.json()["results"]]


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem document; asserts what every one of them must have."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["type"] == "about:blank"
    assert isinstance(body["detail"], str)
    return body


def fields(response: Any, status: int = 400) -> dict[str, str]:
    """A problem's fields with their reasons."""
    return {error["field"]: error["reason"] for error in problem(response, status)["errors"]}


@pytest.fixture
def east(now: datetime) -> Iterator[Cluster]:
    cluster = Cluster.objects.create(name="east", created_at=now, kubeconfig="token: hush")
    kube = FakeCluster(clock=lambda: now)
    uninstall = connections.install(cluster.pk, kube)
    kube.add_node("gpu-1", gpus=8)
    kube.add_pod("default", "train-0", node="gpu-1")
    yield cluster
    uninstall()


@pytest.fixture
def west(now: datetime) -> Cluster:
    return Cluster.objects.create(name="west", created_at=now)


def add_node(cluster: Cluster, name: str, now: datetime, **more: Any) -> Node:
    """A healthy node with one GPU and an agent."""
    settings: dict[str, Any] = {"in_cluster": True, "ready": True, "gpus": 8, "pool": "a", **more}
    node = Node.objects.create(cluster=cluster, name=name, created_at=now, **settings)
    Gpu.objects.create(node=node, index=0, uuid=f"GPU-{name}", pci="0000:4e:00", serial=f"S-{name}", seen_at=now)
    Agent.objects.create(node=node, seen_at=now, boot_id="b", boot_seen_at=now)
    return node


def add_story(node: Node, now: datetime, *, code: str = "62", kind: str = "xid", state: str = "held") -> Rescue:
    """A fault of the node, the decision about it, the rescue with two steps, an approval and a ledger entry."""
    incident = Incident.objects.create(
        cluster=node.cluster, node=node, kind=kind, code=code, severity="fatal", count=3, opened_at=now, last_at=now
    )
    Occurrence.objects.create(incident=incident, node=node, source="kmsg", message=f"Xid {code}", at=now)
    decision = Decision.objects.create(
        cluster=node.cluster,
        node=node,
        incident=incident,
        answer="rescue",
        mode="enforce",
        rule="kce#1",
        policy="kce",
        revision=1,
        because=[{"code": "nothing_holds_back", "params": {}}],
        at=now,
        last_at=now,
    )
    rescue = Rescue.objects.create(
        cluster=node.cluster,
        node=node,
        decision=decision,
        origin="policy",
        requested_by="policy:kce#1",
        fault_kind=kind,
        fault_code=str(code),
        rule="kce#1",
        policy="kce",
        revision=1,
        plan_hash="abc",
        state=state,
        opened_at=now,
    )
    rescue.incidents.add(incident)
    Step.objects.create(rescue=rescue, index=0, name="cordon", state="done", attempts=1)
    Step.objects.create(rescue=rescue, index=1, name="drain", args={"seconds": 600})
    Approval.objects.create(rescue=rescue, plan_hash="abc", approved=True, by="user:bo", at=now)
    ledger.record(node.cluster.name, audit.MarksFound(node=node.name, rescue=rescue.pk), actor="system", now=now)
    return rescue


@pytest.fixture
def node(east: Cluster, now: datetime) -> Node:
    return add_node(east, "gpu-1", now)


def caller(kind: str, now: datetime, *, cluster: Cluster | None = None) -> Api:
    """A program with a token of this kind."""
    return Api(accounts.make_token(kind, cluster=cluster, created_by="test", now=now)[1])


def person(name: str, role: str, now: datetime, *, cluster: Cluster | None = None) -> Api:
    """Somebody who is signed in; CSRF is not checked (the test of it makes its own client)."""
    user = accounts.make_user(
        name, password="correct horse battery", role=role, cluster=cluster, created_by="test", now=now
    )
    client = Client()
    client.force_login(user)
    return Api(client=client)


@pytest.fixture(scope="session", autouse=True)
def _agents_loop() -> Iterator[None]:
    yield
    door.loop.close()


@pytest.fixture(autouse=True)
def _no_reports_counted() -> None:
    """Tests share this process, and their nodes have the same names."""
    app.report_rates.forget()
    app.polls.rates.forget()
    app.uploads.rates.forget()
    preflight.report_rates.forget()
    sources.request_rates.forget()


@pytest.fixture
def viewer(db: None, now: datetime) -> Api:
    return caller("viewer", now)


@pytest.fixture
def operator(db: None, now: datetime) -> Api:
    return caller("operator", now)


@pytest.fixture
def admin(db: None, now: datetime) -> Api:
    return person("ada", "admin", now)
