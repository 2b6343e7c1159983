"""Renewal: a node's credential gets the next one, nobody is locked out by it, and no revocation is undone by it."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from kcover import reasons
from kcover_portal.accounts import services as accounts, tasks
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import renewal, tokens
from kcover_portal.api.agent import app
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests import waiting
from tests.portal.api.door import Answer, Door, loop, report
from tests.portal.row_locks import another_session_waits

pytestmark = pytest.mark.django_db(transaction=True)

NODE = {"node": "gpu-1"}


@pytest.fixture
def cluster(now: datetime) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def agent(cluster: Cluster) -> Door:
    """The agent of a node that has enrolled and reported."""
    _, secret = accounts.make_token("agent", cluster=cluster, created_by="user:ada", now=datetime.now(UTC))
    return spoke(Door(secret).enrol(NODE))


def renewed(answer: Answer) -> Door:
    assert answer.status == 201, answer.body
    return Door(answer.body["token"])


def spoke(answer: Answer) -> Door:
    door = renewed(answer)
    assert door.report(report()).status == 202
    return door


def token_of(door: Door) -> ApiToken:
    return ApiToken.objects.get(digest=accounts.digest(door.secret or ""))


def in_force() -> list[str]:
    rows = ApiToken.objects.filter(node="gpu-1", revoked_at=None, expires_at__gt=datetime.now(UTC))
    return list(rows.order_by("pk").values_list("digest", flat=True))


def digests(*doors: Door) -> list[str]:
    return [accounts.digest(door.secret or "") for door in doors]


def half_an_hour_later() -> None:
    """Nothing in these tests is that long ago, but renewals go every half hour at most."""
    for token in ApiToken.objects.all():
        token.created_at -= renewal.MIN_RENEWAL_INTERVAL
        token.save(update_fields=["created_at"])


def withdraw(door: Door, **more: Any) -> None:
    accounts.revoke_token(token_of(door), actor="user:ada", now=datetime.now(UTC), **more)
    app.known_credentials.forget()  # a revoked one may be heard for a few seconds more


def test_old_and_new_credentials_are_valid_until_the_new_one_is_used(agent: Door) -> None:
    answer = agent.enrol(NODE)
    following = renewed(answer)
    lives = datetime.fromisoformat(answer.body["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < lives <= timedelta(days=30)
    assert agent.report(report()).status == 202
    assert in_force() == digests(agent, following)
    assert following.report(report()).status == 202
    assert in_force() == digests(following)
    app.known_credentials.forget()
    assert "revoked" in agent.report(report()).problem(401)
    made = token_of(following)
    assert (made.kind, made.node, made.cluster, made.scopes) == ("agent", "gpu-1", token_of(agent).cluster, [])


def test_the_first_use_may_be_at_another_door(agent: Door) -> None:
    following = renewed(agent.enrol(NODE))
    assert accounts.find_token(following.secret or "", now=datetime.now(UTC)) == token_of(following)
    assert in_force() == digests(following)


def test_each_issue_and_revocation_is_in_the_ledger(agent: Door) -> None:
    following = spoke(agent.enrol(NODE))
    created, revoked = Entry.objects.filter(node="gpu-1").order_by("-pk")[:2][::-1]
    old, new = token_of(agent).prefix, token_of(following).prefix
    assert (created.verb, created.actor, created.subject) == ("token.created", f"token:{old}", f"token {new}")
    assert (revoked.verb, revoked.actor, revoked.subject) == ("token.revoked", f"token:{new}", f"token {old}")
    assert revoked.data["because"] == reasons.of("token_renewed", token=new).to_json()


def test_a_credential_knows_its_origin_and_its_parent(agent: Door) -> None:
    following = renewed(agent.enrol(NODE))
    old, new = token_of(agent), token_of(following)
    assert (old.origin, old.parent.kind, old.parent.node) == ("enrolment", "agent", "")
    assert (new.origin, new.parent) == ("renewal", old)


def test_the_name_of_a_creator_grants_no_renewal(cluster: Cluster) -> None:
    now = datetime.now(UTC)
    for creator in ("token:kce_aaaa", "token:kca_aaaa"):
        _, secret = accounts.make_token("agent", cluster=cluster, node="gpu-1", created_by=creator, now=now)
        refused = Door(secret).enrol(NODE)
        assert (refused.status, refused.body["code"]) == (403, "credential_bound")


def test_a_renewal_is_repeated_after_a_lost_answer_and_two_credentials_stay_at_most(agent: Door) -> None:
    lost = renewed(agent.enrol(NODE))
    for _ in range(3):
        half_an_hour_later()
        following = renewed(agent.enrol(NODE))
        assert in_force() == digests(agent, following)
    assert lost.report(report()).status == 401
    assert in_force() == digests(agent, following)  # what was withdrawn ends nothing
    assert following.report(report()).status == 202
    assert in_force() == digests(following)


def test_concurrent_renewals_issue_one_credential(agent: Door) -> None:
    async def all_at_once() -> list[Answer]:
        asked = [asyncio.create_task(agent.ask("POST", "enrol", b'{"node": "gpu-1"}')) for _ in range(4)]
        return [await one for one in asked]

    answers = sorted(loop.run(all_at_once()), key=lambda answer: answer.status)
    assert [answer.status for answer in answers] == [201, 429, 429, 429]
    assert answers[1].body["code"] == "renewed_recently"
    assert answers[1].body["params"]["interval"] == {"code": "span_min", "params": {"n": 30}}
    assert 1700 < int(answers[1].headers["retry-after"]) <= 1800
    assert in_force() == digests(agent, renewed(answers[0]))
    half_an_hour_later()
    following = spoke(renewed(answers[0]).enrol(NODE))  # asking is the first use of the one that asks
    assert in_force() == digests(following)


def test_a_withdrawn_credential_does_not_end_the_old_one(agent: Door) -> None:
    """The use of the next one and a late second request for it, at once: the second came first."""
    stale = token_of(renewed(agent.enrol(NODE)))
    half_an_hour_later()
    following = renewed(agent.enrol(NODE))
    assert renewal.begin_to_use(stale, now=datetime.now(UTC)) is False
    assert in_force() == digests(agent, following)


def test_a_renewal_is_for_the_same_node_only(agent: Door) -> None:
    assert "belongs to node gpu-1, not 'gpu-2'" in agent.enrol({"node": "gpu-2"}).problem(403)
    assert not ApiToken.objects.filter(node="gpu-2").exists()
    agent.enrol(NODE, X_Kcover_Cluster="west").problem(403)
    assert in_force() == digests(agent)


def test_a_revoked_or_expired_credential_cannot_be_renewed(agent: Door) -> None:
    now = datetime.now(UTC)
    accounts.revoke_token(token_of(agent), actor="user:ada", now=now)
    agent.enrol(NODE).problem(401)  # it may be remembered still
    with pytest.raises(accounts.Refused, match="expired, revoked or replaced"):
        accounts.renew(token_of(agent), expires_at=now + timedelta(days=30), now=now)
    ApiToken.objects.filter(node="gpu-1").update(revoked_at=None, expires_at=now)
    with pytest.raises(accounts.Refused, match="expired, revoked or replaced"):
        accounts.renew(token_of(agent), expires_at=now + timedelta(days=30), now=now)
    assert ApiToken.objects.filter(node="gpu-1").count() == 1


def test_a_credential_bound_by_an_administrator_keeps_its_end(cluster: Cluster) -> None:
    now = datetime.now(UTC)
    bound, secret = accounts.make_token(
        "agent", cluster=cluster, node="gpu-1", expires_at=now + timedelta(days=1), created_by="user:ada", now=now
    )
    refused = Door(secret).enrol(NODE)
    refused.problem(403)
    assert refused.body["code"] == "credential_bound"
    _, secret = accounts.enrol_proven(cluster, "gpu-1", account="a/b", expires_at=bound.expires_at, now=now)
    Door(secret).enrol(NODE).problem(403)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("which", ["old", "new"])
def test_a_revocation_is_not_undone_by_a_renewal(agent: Door, used: bool, which: str) -> None:
    """The operator saw one of them; whichever it is, and whatever happened since, the node is out."""
    following = renewed(agent.enrol(NODE))
    if used:
        assert following.report(report()).status == 202
    withdraw(agent if which == "old" else following, reason="stolen")
    assert in_force() == []
    for door in (agent, following):
        door.report(report()).problem(401)
        door.enrol(NODE).problem(401)
    last = Entry.objects.filter(verb="token.revoked", node="gpu-1").latest("pk")
    assert (last.actor, last.data["reason"]) == ("user:ada", "stolen")


@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_a_revocation_in_the_middle_of_a_renewal(agent: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the renewal, and takes what that has made, too."""

    def revoke() -> None:
        try:
            accounts.revoke_token(token_of(agent), actor="user:ada", now=datetime.now(UTC))
        finally:
            connections.close_all()

    revoking = threading.Thread(target=revoke)
    make_token = tokens.make_token
    waited: list[bool] = []

    def made_slowly(*given: Any, **named: Any) -> Any:
        made = make_token(*given, **named)
        revoking.start()
        waiting.until(lambda: another_session_waits() or not revoking.is_alive(), "the revocation to wait")
        waited.append(revoking.is_alive())
        return made

    monkeypatch.setattr(tokens, "make_token", made_slowly)
    monkeypatch.setattr(tokens, "LOCK_TIMEOUT_MS", 60_000)
    assert agent.enrol(NODE).status == 201
    revoking.join()
    assert waited == [True]
    assert in_force() == []


@pytest.mark.postgres(reason="SQLite has no locks of rows")
@pytest.mark.parametrize("locked", ["fleet_cluster", "ledger_chain", "accounts_apitoken"])
def test_a_revocation_waits_for_no_lock_for_long(agent: Door, monkeypatch: pytest.MonkeyPatch, locked: str) -> None:
    """One that came minutes after its time would be unknown to the processes that have asked for it by then."""
    monkeypatch.setattr(tokens, "LOCK_TIMEOUT_MS", 50)
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SET idle_in_transaction_session_timeout = '10s'")  # so that a wait without end has one here
        other.execute(f"SELECT * FROM {locked} FOR UPDATE")
        with pytest.raises(OperationalError, match="lock timeout"):
            accounts.revoke_token(token_of(agent), actor="user:ada", now=datetime.now(UTC))
    assert in_force() == digests(agent)
    withdraw(agent)
    assert in_force() == []


def test_a_revocation_keeps_a_credential_of_a_new_enrolment(agent: Door, cluster: Cluster) -> None:
    now = datetime.now(UTC)
    _, secret = accounts.enrol_proven(cluster, "gpu-1", account="a/b", expires_at=now + timedelta(days=1), now=now)
    withdraw(agent)
    assert in_force() == digests(Door(secret))


def test_a_new_enrolment_ends_the_old_and_the_next_credential(agent: Door, cluster: Cluster) -> None:
    renewed(agent.enrol(NODE))
    now = datetime.now(UTC)
    _, secret = accounts.enrol_proven(cluster, "gpu-1", account="a/b", expires_at=now + timedelta(days=1), now=now)
    assert in_force() == digests(Door(secret))


def test_ended_credentials_are_deleted(agent: Door, cluster: Cluster) -> None:
    following = renewed(agent.enrol(NODE))
    assert following.report(report()).status == 202
    now = datetime.now(UTC)
    bound, _ = accounts.make_token("agent", cluster=cluster, node="gpu-1", created_by="user:ada", now=now)
    accounts.revoke_token(bound, actor="user:ada", now=now)
    assert accounts.prune(now=now + timedelta(days=89)) == 0
    ApiToken.objects.exclude(revoked_at=None).update(revoked_at=now - timedelta(days=91))
    tasks.prune()
    assert set(ApiToken.objects.exclude(node="")) == {token_of(following), bound}
    ApiToken.objects.update(expires_at=now - timedelta(days=91))
    tasks.prune()
    assert list(ApiToken.objects.exclude(node="")) == [bound]  # what people made is theirs
    assert Entry.objects.filter(verb="token.created", node="gpu-1").count() == 3
