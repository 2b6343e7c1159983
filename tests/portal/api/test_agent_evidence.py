"""The endpoint that takes evidence: for the node of the credential, in chunks, at a rate."""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from kcover.evidence import bundle as core
from kcover_portal.api.agent import app, body_room, evidence as endpoint
from kcover_portal.evidence import services
from kcover_portal.evidence.models import Bundle
from kcover_portal.fleet.models import Cluster, Node
from tests.kube_fake import FakeCluster
from tests.portal.api import pods
from tests.portal.api.conftest import add_node
from tests.portal.api.door import Answer
from tests.portal.api.pods import Agent

pytestmark = pytest.mark.django_db(transaction=True)
CONTENT = b"\x1f\x8b" + bytes(range(256)) * 600


@pytest.fixture
def kube(now: datetime) -> Iterator[FakeCluster]:
    with pods.east(now) as made:
        for name in ("gpu-1", "gpu-2"):
            add_node(Cluster.objects.get(), name, now)
        yield made


@pytest.fixture
def bundle(kube: FakeCluster) -> Bundle:
    services.request(Node.objects.get(name="gpu-1"), rescue=1, number=1, boot_id="", now=datetime.now().astimezone())
    return Bundle.objects.get()


def send(kube: FakeCluster, row: Bundle, chunk: bytes, **changes: Any) -> Answer:
    fields = {"offset": 0, "size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest(), "age": 0, **changes}
    query = urlencode({"bundle": row.pk, **fields})
    return Agent(kube).call("POST", "evidence", chunk, query=query, X_Kcover_Cluster="east")


def test_chunks_are_stored_and_the_response_has_the_received_size(kube: FakeCluster, bundle: Bundle) -> None:
    half = 70_000
    first = send(kube, bundle, CONTENT[:half])
    assert (first.status, first.body) == (202, {"received": half, "complete": False})
    again = send(kube, bundle, CONTENT[:half])
    assert again.body == {"received": half, "complete": False}
    last = send(kube, bundle, CONTENT[half:], offset=half)
    assert last.body == {"received": len(CONTENT), "complete": True}
    bundle.refresh_from_db()
    assert bundle.state == "kept"


def test_inv_47_evidence_of_another_node_is_refused(kube: FakeCluster) -> None:
    services.request(Node.objects.get(name="gpu-2"), rescue=1, number=1, boot_id="", now=datetime.now().astimezone())
    other = Bundle.objects.get()
    answer = send(kube, other, CONTENT)
    answer.problem(404)
    assert answer.body["code"] == "evidence_not_wanted"
    other.refresh_from_db()
    assert other.received == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bundle": "x"}, "bundle"),
        ({"offset": -1}, "offset"),
        ({"size": core.MAX_BYTES + 1}, "size"),
        ({"sha256": "x"}, "sha256"),
    ],
)
def test_a_wrong_parameter_is_named(kube: FakeCluster, bundle: Bundle, changes: dict[str, Any], field: str) -> None:
    answer = send(kube, bundle, CONTENT, **changes)
    answer.problem(400)
    assert [error["field"] for error in answer.body["errors"]] == [field]


def test_another_hash_and_a_short_chunk_are_refused(kube: FakeCluster, bundle: Bundle) -> None:
    send(kube, bundle, CONTENT[:70_000])
    assert send(kube, bundle, CONTENT[70_000:], offset=70_000, sha256="0" * 64).body["code"] == "evidence_differs"
    assert send(kube, bundle, b"x", offset=70_000).body["code"] == "evidence_chunk_too_short"
    assert send(kube, bundle, bytes(core.MAX_CHUNK_BYTES + 1)).status == 413
    assert send(kube, bundle, b"").status == 400


def test_a_node_that_uploads_too_fast_waits_and_no_other_does(
    kube: FakeCluster, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = endpoint.UploadRates(clock=lambda: 0.0)
    monkeypatch.setattr(app.uploads, "rates", still)
    for _ in range(endpoint.BURST_CHUNKS):
        assert send(kube, bundle, CONTENT[:70_000]).status == 202
    answer = send(kube, bundle, CONTENT[:70_000])
    assert (answer.status, answer.body["code"]) == (429, "evidence_rate")
    assert int(answer.headers["retry-after"]) >= 1
    still.admit((Cluster.objects.get().pk, "gpu-2"))


def test_without_room_it_comes_later_and_no_report_is_refused() -> None:
    room, bounds = body_room.BodyRoom(), {"total": 10, "each": 6}
    with room.take("a", **bounds) as hold, room.take("b", **bounds) as other:
        hold(6)
        with pytest.raises(body_room.NoRoom):
            hold(1)
        other(4)
        with pytest.raises(body_room.NoRoom):
            other(1)
    with room.take("a", **bounds) as hold:
        hold(6)
