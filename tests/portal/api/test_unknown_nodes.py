"""Names that the cluster does not have: they are parked when they enrol, within bounds, and forgotten when silent."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import enrolment as enrolment_service, parked_names
from kcover_portal.api.agent import app
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.fleet.services import node_rows, parked_nodes
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from tests.kube_fake import FakeCluster
from tests.portal.api.door import Answer, Door, fault, report

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def east(now: datetime) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now, watched_at=now)


def enrolment(cluster: Cluster) -> Door:
    return Door(accounts.make_token("agent", cluster=cluster, created_by="user:ada", now=datetime.now(UTC))[1])


def enrol_many(door: Door, count: int, *, prefix: str = "ghost") -> list[int]:
    return [door.enrol({"node": f"{prefix}-{number}"}).status for number in range(count)]


def refused(answer: Answer) -> tuple[str, int]:
    """The code and the seconds to wait."""
    answer.problem(429)
    return answer.body["code"], int(answer.headers["retry-after"])


def list_nodes(cluster: Cluster, *names: str) -> None:
    """What the watch does."""
    kube = FakeCluster()
    for name in names:
        kube.add_node(name, gpus=8)
    node_rows.sync_list(cluster, kube.list_nodes().items, now=datetime.now(UTC))


def test_an_unknown_name_is_parked_until_the_cluster_lists_it(east: Cluster) -> None:
    answer = enrolment(east).enrol({"node": "gpu-1"})
    assert answer.status == 201
    assert list(parked_nodes.parked(east).values_list("name", flat=True)) == ["gpu-1"]
    assert not Node.objects.get().in_cluster
    list_nodes(east, "gpu-1")
    assert Node.objects.get().in_cluster
    assert not parked_nodes.parked(east).exists()
    assert Door(answer.body["token"]).report(report()).status == 202


def test_a_token_enrols_a_bounded_number_of_unknown_names_in_a_minute(east: Cluster) -> None:
    list_nodes(east, "gpu-1", "gpu-2")
    door = enrolment(east)
    assert set(enrol_many(door, parked_names.MAX_UNKNOWN_NAMES)) == {201}
    code, wait = refused(door.enrol({"node": "ghost-more"}))
    assert code == "unknown_nodes_enrolled"
    assert 0 < wait <= parked_names.UNKNOWN_NAMES_WINDOW.total_seconds()
    assert not Node.objects.filter(name="ghost-more").exists()
    assert not ApiToken.objects.filter(node="ghost-more").exists()
    assert door.enrol({"node": "gpu-1"}).status == 201  # the cluster has it
    assert enrolment(east).enrol({"node": "ghost-of-another"}).status == 201
    ApiToken.objects.update(created_at=datetime.now(UTC) - parked_names.UNKNOWN_NAMES_WINDOW)
    assert door.enrol({"node": "ghost-more"}).status == 201


def test_names_that_the_cluster_has_are_not_limited(east: Cluster) -> None:
    count = parked_names.MAX_UNKNOWN_NAMES + 5
    list_nodes(east, *(f"gpu-{number}" for number in range(count)))
    door = enrolment(east)
    assert set(enrol_many(door, count, prefix="gpu")) == {201}
    assert door.enrol({"node": "ghost"}).status == 201


def test_a_name_that_the_cluster_has_is_enrolled_a_few_times_an_hour(east: Cluster) -> None:
    list_nodes(east, "gpu-1", "gpu-2")
    for _ in range(enrolment_service.MAX_REPEATS):
        assert enrolment(east).enrol({"node": "gpu-1"}).status == 201
        ApiToken.objects.filter(node="gpu-1").update(last_used_at=datetime.now(UTC) - timedelta(minutes=3))
    door = enrolment(east)
    code, wait = refused(door.enrol({"node": "gpu-1"}))
    assert code == "node_enrolled_often"
    assert 0 < wait <= enrolment_service.REPEATS_WINDOW.total_seconds()
    assert door.enrol({"node": "gpu-2"}).status == 201
    proven = {"account": "kcover-system/kcover-agent", "expires_at": datetime.now(UTC) + timedelta(days=1)}
    for _ in range(enrolment_service.MAX_REPEATS + 1):  # the cluster proves these
        accounts.enrol_proven(east, "gpu-2", **proven, now=datetime.now(UTC))
    assert door.enrol({"node": "gpu-2"}).status == 201
    ApiToken.objects.update(created_at=datetime.now(UTC) - enrolment_service.REPEATS_WINDOW)
    assert door.enrol({"node": "gpu-1"}).status == 201


def test_the_same_unknown_name_again_counts_again(east: Cluster) -> None:
    door = enrolment(east)
    answers = [door.enrol({"node": "ghost"}) for _ in range(parked_names.MAX_UNKNOWN_NAMES + 1)]
    assert [answer.status for answer in answers[:-1]] == [201] * parked_names.MAX_UNKNOWN_NAMES
    assert refused(answers[-1])[0] == "unknown_nodes_enrolled"


def test_a_cluster_parks_a_bounded_number_of_names(east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_nodes, "MAX_PARKED_NODES", 3)
    door = enrolment(east)
    list_nodes(east, "gpu-1")
    assert set(enrol_many(door, 3)) == {201}
    assert refused(door.enrol({"node": "ghost-3"})) == ("parked_nodes_full", 60)
    assert door.enrol({"node": "ghost-1"}).status == 201  # it is parked already
    assert door.enrol({"node": "gpu-1"}).status == 201
    list_nodes(east, "gpu-1", "ghost-0")
    assert door.enrol({"node": "ghost-3"}).status == 201


def test_before_the_first_list_agents_wait_for_seconds_only(east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.objects.update(watched_at=None)
    monkeypatch.setattr(parked_names, "MAX_UNKNOWN_NAMES", 2)
    door = enrolment(east)
    enrol_many(door, 2)
    assert refused(door.enrol({"node": "gpu-1"})) == ("unknown_nodes_enrolled", parked_names.FIRST_LIST_SECONDS)


def silent_since(name: str, at: datetime) -> None:
    Node.objects.filter(name=name).update(created_at=at)
    Agent.objects.filter(node__name=name).update(seen_at=at)


def test_a_silent_parked_node_is_removed_and_its_credential_revoked(east: Cluster) -> None:
    now = datetime.now(UTC)
    door, past = enrolment(east), now - parked_nodes.PARKED_NODE_RETENTION - timedelta(minutes=1)
    tokens = {name: door.enrol({"node": name}).body["token"] for name in ("gone", "mute", "alive", "fresh")}
    for name in ("gone", "alive"):
        assert Door(tokens[name]).report(report(fault(), node=name)).status == 202
    for name in ("gone", "mute"):
        silent_since(name, past)
    silent_since("alive", now - timedelta(hours=1))
    Node.objects.filter(name="alive").update(created_at=past)
    assert parked_names.prune(now=now) == 2
    assert sorted(Node.objects.values_list("name", flat=True)) == ["alive", "fresh"]
    assert list(Incident.objects.values_list("node__name", flat=True)) == ["alive"]
    revoked = ApiToken.objects.exclude(revoked_at=None).values_list("node", flat=True)
    assert sorted(revoked) == ["gone", "mute"]
    assert set(Entry.objects.filter(verb="token.revoked").values_list("node", flat=True)) == {"gone", "mute"}
    app.known_credentials.forget()
    assert Door(tokens["gone"]).report(report(node="gone")).status == 401
    assert Door(tokens["alive"]).report(report(node="alive")).status == 202
    assert parked_names.prune(now=now) == 0


def test_nodes_that_the_cluster_had_are_not_removed(east: Cluster) -> None:
    now = datetime.now(UTC)
    list_nodes(east, "gpu-1")
    list_nodes(east)
    silent_since("gpu-1", now - timedelta(days=30))
    assert parked_names.prune(now=now) == 0
    assert Node.objects.filter(name="gpu-1").exists()


def test_the_pages_show_a_parked_node(east: Cluster) -> None:
    enrolment(east).enrol({"node": "ghost"})
    viewer = accounts.make_token("viewer", created_by="test", now=datetime.now(UTC))[1]
    headers = {"Authorization": f"Bearer {viewer}"}
    assert Client().get("/api/v1/nodes/east/ghost", headers=headers).json()["in_cluster"] is False
