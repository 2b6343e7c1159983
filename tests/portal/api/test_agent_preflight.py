"""Agents hand preflight reports in with any credential of theirs, and only about their own node."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.kube.errors import Unavailable
from kcover_portal.preflight.models import PreflightRun
from tests.kube_fake import FakeCluster
from tests.portal.api import pods
from tests.portal.api.conftest import add_node
from tests.portal.api.door import encoded
from tests.portal.api.pods import Agent

pytestmark = pytest.mark.django_db(transaction=True)
PAIR = ["10.0.0.1", "10.0.0.2"]


@pytest.fixture
def kube(now: datetime) -> Iterator[FakeCluster]:
    with pods.east(now) as made:
        add_node(Cluster.objects.get(), "gpu-1", now)
        made.add_namespace("ml")
        yield made


def body(**more: Any) -> dict[str, Any]:
    batch = {"batch_idx": 0, "pair": PAIR, "self_ip": PAIR[0], "status": "ok"}
    report = {"workload_size": 2, "workload": "job", "node_name": "gpu-1", "batches": [batch]}
    return {"namespace": "ml", "report": report, **more}


def hand_in(kube: FakeCluster, sent: Any) -> Any:
    return Agent(kube).call("POST", "preflight", encoded(sent), X_Kcover_Cluster="east")


def test_a_pods_token_hands_a_report_in(kube: FakeCluster) -> None:
    assert "shows no pod" in hand_in(kube, body()).problem(400)
    kube.add_pod("ml", "job-0", node="gpu-1", labels={"batch.kubernetes.io/job-name": "job"})
    answer = hand_in(kube, body(within="45m"))
    assert (answer.status, answer.body["change"], answer.body["expected_reports"]) == (202, "counted", 2)
    run = PreflightRun.objects.get()
    assert (run.due_at - run.first_at).total_seconds() == 45 * 60


def test_inv_47_a_pods_token_reports_for_its_own_node_only(kube: FakeCluster) -> None:
    other = body()
    other["report"]["node_name"] = "gpu-2"
    hand_in(kube, other).problem(403)
    assert not PreflightRun.objects.exists()


@pytest.mark.parametrize(
    "sent",
    [b"", b"{", b"[1]", b"{}", b'{"namespace": "ml", "report": 7}', b'{"namespace": "ML", "report": {}}'],
)
def test_an_invalid_report_is_refused(kube: FakeCluster, sent: bytes) -> None:
    assert hand_in(kube, sent).status in (400, 403)


@pytest.mark.parametrize("changes", [{"within": "soon"}, {"within": "5s"}, {"more": 1}, {"workload": "another"}])
def test_a_wrong_field_is_named(kube: FakeCluster, changes: dict[str, Any]) -> None:
    detail = hand_in(kube, body(**changes)).problem(400)
    assert next(iter(changes)) in detail
    nan = encoded(body()).replace(b'"ok"', b"NaN")
    assert "NaN" in hand_in(kube, nan).problem(400)


@pytest.mark.parametrize("text", ['"\\ud800"', '"a", "workload": "b"', "1e400", "[" * 100 + "]" * 100])
def test_json_that_cannot_be_stored_is_refused(text: str, kube: FakeCluster) -> None:
    sent = encoded(body()).replace(b'"job"', text.encode(), 1)
    assert hand_in(kube, sent).problem(400)
    field = encoded(body()).replace(b'"namespace"', b'"\\ud800": 1, "namespace"', 1)
    assert hand_in(kube, field).problem(400)


def test_a_silent_cluster_defers_the_report(kube: FakeCluster) -> None:
    kube.fail("list_pods", Unavailable("down"))
    answer = hand_in(kube, body())
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
