"""A small installation with rows of every kind in two clusters, and callers of every role."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from kcover import audit, reasons
from kcover.decisions import guards
from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app
from kcover_portal.api.v1.checks import preflight
from kcover_portal.api.v1.sources import sources
from kcover_portal.fleet.models import Agent, Cluster, Gpu, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import connections
from kcover_portal.kube.port import KUBEFLOW_JOB_LABEL
from kcover_portal.ledger import services as ledger
from kcover_portal.parts.models import Part, Placement
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Approval, Decision, Rescue, Step
from kcover_portal.sources.models import Source
from tests.kube_fake import FakeCluster
from tests.portal.api import door

WATCH_FAILURE = reasons.of("cluster_rejected", error="forbidden")
WHY = reasons.of("pod_gone").to_json()


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


def run_job(kube: FakeCluster, name: str, numbers: Iterable[int]) -> None:
    """Pods of a PyTorchJob, each with eight GPUs on the node of its number."""
    labels, owner = {KUBEFLOW_JOB_LABEL: name}, {"owner_kind": "PyTorchJob", "owner_name": name}
    for number in numbers:
        kube.add_pod("train", f"{name}-{number}", node=f"gpu-{number}", labels=labels, gpus=8, **owner)


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


def add_fault(node: Node, now: datetime) -> Incident:
    """A fault that nothing handles."""
    return Incident.objects.create(
        cluster=node.cluster, node=node, kind="xid", code="79", severity="fatal", opened_at=now, last_at=now
    )


@pytest.fixture
def node(east: Cluster, now: datetime) -> Node:
    return add_node(east, "gpu-1", now)


@pytest.fixture
def waiting(node: Node, now: datetime) -> dict[str, str]:
    """One item of each kind in the cluster east; their ids or names by kind."""
    east = node.cluster
    asked, left = add_story(node, now), add_story(add_node(east, "gpu-2", now), now)
    until = now + timedelta(hours=1)
    Rescue.objects.filter(pk=asked.pk).update(state="held", hold="approval", expires_at=until)
    Rescue.objects.filter(pk=left.pk).update(state="failed", marks={"cordon": True}, because=WHY, closed_at=now)
    fault = add_fault(add_node(east, "gpu-3", now), now)
    shared = guards.Symptom(trait="switch", value="leaf-3", nodes=3)
    storm, _ = incidents.keep_storm(east, shared, nodes=["gpu-1"], now=now)
    found = reasons.of("storm_of_switch", value="x")
    ledger, _ = incidents.keep_cluster_incident(east, kind="ledger", code="diverged", because=found, now=now)
    order = JobOrder.objects.create(
        cluster=east,
        namespace="train",
        kind="Job",
        name="llm",
        action="restart",
        cause="person",
        requested_by="user:ann",
        requested_at=now,
        state="held",
        because=WHY,
        due_at=now,
    )
    repair = Repair.objects.create(
        cluster=east, node=node, node_name=node.name, opened_by="t", reported_at=now, due=now - timedelta(days=9999)
    )
    part = Part.objects.create(kind="gpu", serial="1652", first_seen_at=now)
    flag = reasons.of("part_on_two_nodes", serial="1652").to_json()
    where = {"cluster": east, "node": node, "node_name": node.name}
    Placement.objects.create(part=part, since=now, flags=[flag], flagged_at=now, **where)
    Cluster.objects.filter(pk=east.pk).update(watch_error=WATCH_FAILURE.to_json(), watched_at=now)
    source = Source.objects.create(
        name="alerts", kind="alertmanager", cluster=east, created_by="t", created_at=now, error=WHY, error_at=now
    )
    return {
        "approval": str(asked.pk),
        "rescue": str(left.pk),
        "incident": str(fault.pk),
        "storm": str(storm.pk),
        "ledger": str(ledger.pk),
        "job": str(order.pk),
        "repair": str(repair.pk),
        "part": str(part.pk),
        "watch": east.name,
        "source": source.name,
    }


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
