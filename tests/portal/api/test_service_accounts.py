"""Service account tokens at the agents' endpoint: only the cluster determines the node of a pod."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent import app, service_accounts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import connections, port
from kcover_portal.ledger.models import Entry
from tests.kube_fake import FakeCluster
from tests.portal.api import pods
from tests.portal.api.door import Answer, Door, loop, report
from tests.portal.api.pods import ACCOUNT, Agent, identity
from tests.portal.operate.test_logs import written_by

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kube(now: datetime) -> Iterator[FakeCluster]:
    with pods.east(now) as made:
        yield made


def reviews(kube: FakeCluster) -> int:
    return sum(call.verb == "review_token" for call in kube.calls)


def test_a_pod_speaks_for_its_node(kube: FakeCluster) -> None:
    agent = Agent(kube)
    assert agent.report(report()).status == 202
    assert Node.objects.get().name == "gpu-1"
    commands = loop.run(agent.ask("GET", "commands", query="wait=0", X_Kcover_Cluster="east"))
    assert (commands.status, commands.body) == (200, {"commands": []})


def test_inv_47_a_pod_reports_for_no_other_node(kube: FakeCluster) -> None:
    agent = Agent(kube)
    assert "belongs to node gpu-1, not 'gpu-2'" in agent.report(report(node="gpu-2")).problem(403)
    asked = loop.run(agent.ask("GET", "commands", query="node=gpu-2", X_Kcover_Cluster="east"))
    assert "belongs to node gpu-1, not 'gpu-2'" in asked.problem(403)
    refused = loop.run(agent.ask("POST", "enrol", b'{"node": "gpu-2"}', X_Kcover_Cluster="east"))
    assert "belongs to node gpu-1, not 'gpu-2'" in refused.problem(403)
    assert not Node.objects.exists()
    assert not ApiToken.objects.exists()


def test_the_cluster_has_to_be_named(kube: FakeCluster) -> None:
    agent = Agent(kube)
    assert "X-Kcover-Cluster: " in agent.report(report(), X_Kcover_Cluster="").problem(401)


def test_a_stranger_does_not_learn_the_names_of_clusters(kube: FakeCluster) -> None:
    agent = Agent(kube)
    unknown = agent.report(report(), X_Kcover_Cluster="west")
    unknown.problem(401)
    assert reviews(kube) == 0
    agent.secret = pods.jwt(jti="forged")
    known = agent.report(report())
    known.problem(401)
    assert (unknown.status, unknown.body["code"]) == (known.status, known.body["code"])


def test_a_token_that_the_cluster_does_not_know(kube: FakeCluster) -> None:
    stranger = Agent(kube)
    stranger.secret = pods.jwt(jti="forged")
    stranger.report(report()).problem(401)


def test_another_pod_may_not_report(kube: FakeCluster, settings: Any) -> None:
    """Every pod can have a token for any audience made; which may speak is the installation's to say."""
    lab = "system:serviceaccount:lab:default"
    who = identity(username=lab, service_account="lab/default")
    tenant, liar = Agent(kube, who, sub=lab), Agent(kube, who)
    for one in (tenant, tenant, liar, liar, liar):
        assert f"{lab} may not report for nodes" in one.report(report()).problem(403)
    assert reviews(kube) == 1  # of what says itself who it is none, and what was refused is not asked about again
    app.known_accounts.forget()
    settings.KCOVER_SERVICE_ACCOUNTS = [ACCOUNT, "lab/default"]
    assert tenant.report(report()).status == 202


@pytest.mark.parametrize(
    ("claims", "code", "reason"),
    [
        ({"aud": ["vault"]}, "token_audience", "not for audience kcover-portal"),
        ({"aud": None}, "token_audience", "not for audience kcover-portal"),
        ({"exp": 1_700_000_000}, "token_expired", "expired at 2023-11-14"),
        ({"exp": None}, "token_expiry", "The token does not expire"),
        ({"exp": "soon"}, "token_expiry", "The token does not expire"),
        ({"exp": 10**15}, "token_expiry", "The token does not expire"),
        ({"sub": "system:node:gpu-1"}, "token_subject", "Not a service account token"),
        ({"sub": "system:serviceaccount:kcover-system"}, "token_subject", "Not a service account token"),
        ({"sub": None}, "token_subject", "Not a service account token"),
    ],
)
def test_a_token_with_invalid_claims_is_refused_without_a_review(
    kube: FakeCluster, claims: Any, code: str, reason: str
) -> None:
    refused = Agent(kube, **claims).report(report())
    assert reason in refused.problem(401)
    assert refused.body["code"] == code
    assert reviews(kube) == 0


@pytest.mark.parametrize("secret", ["eyJ.x.y", "eyJhbGciOiJSUzI1NiJ9.bnVsbA.c2ln", "eyJ.W1tbW1tbW1tb.x"])
def test_an_invalid_token_is_refused(kube: FakeCluster, secret: str) -> None:
    door = Door(secret)
    assert "Neither a portal token nor" in door.report(report(), X_Kcover_Cluster="east").problem(401)


def test_a_review_holds_for_a_while(kube: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(kube)
    assert {agent.report(report()).status for _ in range(3)} == {202}
    assert reviews(kube) == 1
    app.known_accounts.forget()
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_SECONDS", 0.0)
    assert {agent.report(report()).status for _ in range(3)} == {202}
    assert reviews(kube) == 4


def test_calls_at_one_time_are_one_review(kube: FakeCluster) -> None:
    agent = Agent(kube)

    async def all_at_once() -> list[Answer]:
        polls = (agent.ask("GET", "commands", query="wait=0", X_Kcover_Cluster="east") for _ in range(5))
        return await asyncio.gather(*polls)

    assert {answer.status for answer in loop.run(all_at_once())} == {200}
    assert reviews(kube) == 1


def test_a_rotated_token_is_another_one(kube: FakeCluster) -> None:
    before, after = Agent(kube, jti="a"), Agent(kube, jti="b")
    assert before.secret != after.secret
    assert {before.report(report()).status, after.report(report()).status} == {202}
    assert reviews(kube) == 2


def test_an_api_server_that_is_down_keeps_reports_with_their_agents(
    kube: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(kube)
    kube.fail("review_token", port.Unavailable("connection refused"))
    with written_by("kcover_portal.api.agent.service_accounts") as lines:
        for _ in range(2):
            answer = agent.report(report())
            assert "connection refused" in answer.problem(503) or "did not answer recently" in answer.problem(503)
            assert answer.headers["retry-after"] == "5"
    assert [line["cluster"] for line in lines()] == ["east"]
    assert reviews(kube) == 1  # a fleet does not queue up before a server that does not answer
    assert not Node.objects.exists()
    monkeypatch.setattr(service_accounts.time, "monotonic", _later(service_accounts.CIRCUIT_OPEN_SECONDS))
    assert agent.report(report()).status == 202


def test_a_known_agent_is_accepted_while_the_api_server_is_down(
    kube: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, other = Agent(kube, jti="a"), Agent(kube, jti="b")
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_SECONDS", 0.0)
    assert agent.report(report()).status == 202
    kube.fail("review_token", port.Unavailable("connection refused"), times=99)
    assert agent.report(report()).status == 202
    assert other.report(report()).status == 503
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_IN_OUTAGE_SECONDS", 0.0)
    assert agent.report(report()).status == 503


def test_a_restarted_portal_reports_agents_that_it_cannot_review(kube: FakeCluster) -> None:
    """What was believed is gone with the process, and silence is no news where nobody could be asked."""
    agent, now = Agent(kube), datetime.now(UTC)
    assert agent.report(report()).status == 202
    Cluster.objects.update(watched_at=now)
    app.known_accounts.forget()
    kube.fail("review_token", port.Unavailable("connection refused"), times=99)
    app.beat()
    assert fleet.reachable_without_gap(since=now - timedelta(minutes=5), now=now).exists()
    assert agent.report(report()).status == 503
    app.beat()
    assert not fleet.reachable_without_gap(since=now - timedelta(minutes=5), now=now).exists()
    assert app.known_accounts.blind() == set()


def test_a_definite_refusal_clears_the_cache(kube: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(kube)
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_SECONDS", 0.0)
    monkeypatch.setattr(service_accounts, "REJECTION_VALID_SECONDS", 0.0)
    assert agent.report(report()).status == 202
    kube.remove_token(agent.secret or "")
    assert agent.report(report()).status == 401
    kube.fail("review_token", port.Unavailable("connection refused"), times=99)
    assert agent.report(report()).status == 503


def test_a_portal_without_the_right_to_review(kube: FakeCluster) -> None:
    kube.fail("review_token", port.RefusedByServer("tokenreviews is forbidden"))
    assert "tokenreviews is forbidden" in Agent(kube).report(report()).problem(503)


def test_before_kubernetes_1_30_the_pod_determines_the_node(kube: FakeCluster) -> None:
    kube.add_node("gpu-1")
    pod = kube.add_pod("kcover-system", "agent", node="gpu-1")
    agent = Agent(kube, identity(node_name=None, pod_uid=pod.uid))
    assert agent.report(report()).status == 202
    assert "belongs to node gpu-1" in agent.report(report(node="gpu-2")).problem(403)
    unborn = Agent(kube, identity(node_name=None, pod_uid="another", pod_name="agent-2"), jti="2")
    assert "Pod agent-2 of cluster east is not known yet" in unborn.report(report()).problem(503)
    loose = Agent(kube, identity(node_name=None, pod_uid=None), jti="3")
    refused = loose.report(report())
    assert "not bound to a pod" in refused.problem(403)
    assert refused.body["code"] == "token_unbound"
    assert sum(call.verb == "list_pods" for call in kube.calls) == 1


def test_the_cache_of_reviews_is_bounded(kube: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_accounts, "MAX_CACHED_TOKENS", 2)
    agents = [Agent(kube, jti=str(number)) for number in range(4)]
    assert {agent.report(report()).status for agent in agents} == {202}
    assert agents[3].report(report()).status == 202
    assert reviews(kube) == 4
    assert agents[0].report(report()).status == 202
    assert reviews(kube) == 5  # it was forgotten


def test_refused_tokens_do_not_evict_known_agents(kube: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_accounts, "MAX_CACHED_TOKENS", 2)
    monkeypatch.setattr(service_accounts, "MAX_CACHED_REJECTIONS", 2)
    agent = Agent(kube)
    assert agent.report(report()).status == 202
    strangers = [Agent(kube, jti=str(number)) for number in range(4)]
    for stranger in strangers:
        kube.remove_token(stranger.secret or "")
        assert stranger.report(report()).status == 401
    assert (agent.report(report()).status, reviews(kube)) == (202, 5)
    assert (strangers[3].report(report()).status, reviews(kube)) == (401, 5)
    assert (strangers[0].report(report()).status, reviews(kube)) == (401, 6)  # its refusal was forgotten


def test_a_cluster_asks_its_own_api_server_only(kube: FakeCluster, now: datetime) -> None:
    west = FakeCluster()
    uninstall = connections.install(Cluster.objects.create(name="west", created_at=now).pk, west)
    app.known_accounts.forget()
    agent = Agent(kube)
    assert "cluster west" in agent.report(report(), X_Kcover_Cluster="west").problem(401)
    assert agent.report(report()).status == 202
    uninstall()


def test_a_service_account_token_can_be_exchanged_for_a_portal_credential(kube: FakeCluster) -> None:
    """The cluster vouches for the node, so a credential in use is replaced at once."""
    agent = Agent(kube)

    def enrol() -> Answer:
        return loop.run(agent.ask("POST", "enrol", b'{"node": "gpu-1"}', X_Kcover_Cluster="east"))

    first = enrol()
    assert first.status == 201
    lives = datetime.fromisoformat(first.body["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=6) < lives <= timedelta(days=7)
    assert Door(first.body["token"]).report(report()).status == 202
    second = enrol()
    assert Door(second.body["token"]).report(report()).status == 202
    assert ApiToken.objects.filter(node="gpu-1", revoked_at=None).count() == 1
    assert Entry.objects.filter(verb="token.created").latest("id").actor == f"token:service account {ACCOUNT}"


def test_a_credential_bound_by_an_administrator_is_kept(kube: FakeCluster, now: datetime) -> None:
    cluster = Cluster.objects.get(name="east")
    bound, _ = accounts.make_token("agent", cluster=cluster, node="gpu-1", created_by="user:ada", now=now)
    agent = Agent(kube)
    assert loop.run(agent.ask("POST", "enrol", b'{"node": "gpu-1"}', X_Kcover_Cluster="east")).status == 201
    bound.refresh_from_db()
    assert bound.revoked_at is None


def _later(seconds: float) -> Any:
    real = service_accounts.time.monotonic
    return lambda: real() + seconds
