"""Enrolment: a node gets its own credential, and nobody gets the credential of a node that reports."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import enrolment
from kcover_portal.api.agent import app
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.ledger.models import Entry
from tests.portal.api.door import Answer, Door, loop, report
from tests.portal.api.test_unknown_nodes import list_nodes

pytestmark = pytest.mark.django_db(transaction=True)

NODE = {"node": "gpu-1"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def cluster(now: datetime) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now)


def make(cluster: Cluster, **more: Any) -> tuple[ApiToken, Door]:
    token, secret = accounts.make_token("agent", cluster=cluster, created_by="user:ada", now=datetime.now(UTC), **more)
    return token, Door(secret)


@pytest.fixture
def enrolling(cluster: Cluster) -> Door:
    return make(cluster, name="enrolment")[1]


def of_node() -> ApiToken:
    """The newest credential of the node."""
    return ApiToken.objects.filter(node="gpu-1").latest("pk")


def speak(answer: Answer) -> Door:
    """The agent that was enrolled, once it has reported."""
    assert answer.status == 201, answer.body
    door = Door(answer.body["token"])
    assert door.report(report()).status == 202
    return door


def silent_for(token: ApiToken, **time: float) -> None:
    then = datetime.now(UTC) - timedelta(**time)
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=then)
    Agent.objects.filter(node__name=token.node).update(seen_at=then)


def test_an_enrolled_node_speaks_for_itself(enrolling: Door) -> None:
    answer = enrolling.enrol(NODE)
    assert answer.status == 201
    assert answer.body["token"].startswith("kca_")
    lives = datetime.fromisoformat(answer.body["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < lives <= timedelta(days=30)
    made = of_node()
    assert (made.kind, made.node, made.cluster.name) == ("agent", "gpu-1", "east")
    speak(answer)
    entry = Entry.objects.filter(verb="token.created", node="gpu-1").get()
    assert entry.actor == f"token:{enrolling.secret[:8]}"


def test_a_reporting_node_cannot_be_enrolled_by_another_agent(enrolling: Door) -> None:
    agent = speak(enrolling.enrol(NODE))
    refused = enrolling.enrol(NODE)
    detail = refused.problem(409)
    assert f"Node gpu-1 still uses credential {agent.secret[:8]}" in detail
    assert "wait until it has been unused for 120 s" in detail
    assert refused.body["title"] == "The node's credential is in use"
    assert refused.body["code"] == "credential_in_use"
    assert 110 <= int(refused.headers["retry-after"]) <= 120
    assert ApiToken.objects.filter(node="gpu-1").count() == 1
    assert agent.report(report()).status == 202


def test_a_node_that_was_silent_enrols_again_and_the_old_credential_is_no_more(enrolling: Door) -> None:
    first = speak(enrolling.enrol(NODE))
    old = of_node()
    silent_for(old, seconds=119)
    assert enrolling.enrol(NODE).status == 409
    silent_for(old, seconds=121)
    second = speak(enrolling.enrol(NODE))
    app.known_credentials.forget()  # a revoked token may be heard for a few seconds more
    assert "revoked" in first.report(report()).problem(401)
    assert second.report(report()).status == 202
    entry = Entry.objects.get(verb="token.revoked")
    assert (entry.node, entry.actor, entry.subject) == (
        "gpu-1",
        f"token:{enrolling.secret[:8]}",
        f"token {old.prefix}",
    )
    assert entry.data["because"] == reasons.of("token_enrolled_again", token=second.secret[:8]).to_json()


def test_a_revoked_credential_does_not_prevent_an_enrolment(enrolling: Door) -> None:
    speak(enrolling.enrol(NODE))
    accounts.revoke_token(of_node(), actor="user:ada", now=datetime.now(UTC))
    speak(enrolling.enrol(NODE))


def test_an_enrolment_is_repeated_after_a_lost_answer(enrolling: Door) -> None:
    lost = enrolling.enrol(NODE)
    speak(enrolling.enrol(NODE))
    assert Door(lost.body["token"]).report(report()).status == 401
    assert ApiToken.objects.filter(node="gpu-1", revoked_at=None).count() == 1


def test_a_credential_near_its_end_is_no_more_anybodys_than_before(enrolling: Door) -> None:
    speak(enrolling.enrol(NODE))
    ApiToken.objects.filter(pk=of_node().pk).update(expires_at=datetime.now(UTC) + timedelta(hours=1))
    enrolling.enrol(NODE).problem(409)
    ApiToken.objects.filter(pk=of_node().pk).update(expires_at=datetime.now(UTC) - timedelta(hours=1))
    speak(enrolling.enrol(NODE))  # an agent that did not renew in time


def test_a_credential_that_an_administrator_bound_is_left_alone(enrolling: Door, cluster: Cluster) -> None:
    bound, agent = make(cluster, node="gpu-1")
    assert agent.report(report()).status == 202
    assert enrolling.enrol(NODE).status == 409
    silent_for(bound, minutes=3)
    assert enrolling.enrol(NODE).status == 201
    bound.refresh_from_db()
    assert bound.revoked_at is None


def test_a_node_of_the_same_name_elsewhere_is_another(enrolling: Door, now: datetime) -> None:
    west = Cluster.objects.create(name="west", created_at=now)
    speak(enrolling.enrol(NODE))
    speak(make(west)[1].enrol(NODE))
    assert ApiToken.objects.filter(node="gpu-1", revoked_at=None).count() == 2


def test_concurrent_enrolments_leave_one_credential(enrolling: Door) -> None:
    async def both() -> list[Answer]:
        asked = [asyncio.create_task(enrolling.ask("POST", "enrol", b'{"node": "gpu-1"}')) for _ in range(4)]
        return [await one for one in asked]

    assert [answer.status for answer in loop.run(both())] == [201] * 4
    assert ApiToken.objects.filter(node="gpu-1", revoked_at=None).count() == 1


def test_a_just_revoked_enrolment_token_is_refused(cluster: Cluster) -> None:
    token, door = make(cluster)
    assert door.enrol({"node": "gpu-9"}).status == 201  # it is remembered from here on
    accounts.revoke_token(token, actor="user:ada", now=datetime.now(UTC))
    assert "The enrolment token is expired or revoked" in door.enrol(NODE).problem(401)
    app.known_credentials.forget()
    assert "unknown, expired or revoked" in door.enrol(NODE).problem(401)
    assert not ApiToken.objects.filter(node="gpu-1").exists()


def test_a_token_whose_owner_lost_the_role_gets_403_and_enrolled_agents_report(cluster: Cluster) -> None:
    anna = accounts.make_user("anna", password="correct horse battery", role="admin", created_by="t", now=NOW)
    _, enrolling = make(cluster, owner=anna)
    agent = speak(enrolling.enrol(NODE))
    accounts.bind(anna, "viewer", actor="test", now=NOW)
    refused = enrolling.enrol({"node": "gpu-2"})
    refused.problem(403)
    assert refused.body["code"] == "token_owner_role"
    assert agent.report(report()).status == 202


def keyed(key: str = "k" * 32, node: str = "gpu-1") -> dict[str, str]:
    return {"node": node, "key": key}


def created(node: str = "gpu-1") -> int:
    return Entry.objects.filter(verb="token.created", node=node).count()


def test_inv_56_a_retry_gets_the_same_credential(enrolling: Door) -> None:
    answers = [enrolling.enrol(keyed()) for _ in range(enrolment.MAX_REPEATS + enrolment.MAX_UNUSED + 1)]
    assert {answer.status for answer in answers} == {201}
    assert len({(answer.body["token"], answer.body["expires_at"]) for answer in answers}) == 1
    assert (ApiToken.objects.filter(node="gpu-1").count(), created()) == (1, 1)
    speak(answers[0])


def test_inv_56_retries_at_once_share_a_credential(enrolling: Door) -> None:
    async def together() -> list[Answer]:
        body = json.dumps(keyed()).encode()
        asked = [asyncio.create_task(enrolling.ask("POST", "enrol", body)) for _ in range(4)]
        return [await one for one in asked]

    assert len({answer.body["token"] for answer in loop.run(together())}) == 1
    assert created() == 1


def test_inv_56_a_key_that_was_answered_and_used_gives_another_credential(enrolling: Door) -> None:
    first = speak(enrolling.enrol(keyed()))
    assert enrolling.enrol(keyed()).status == 409
    silent_for(of_node(), minutes=3)
    second = speak(enrolling.enrol(keyed()))
    assert second.secret != first.secret


def test_inv_56_a_key_is_worth_nothing_with_another_token_or_node(enrolling: Door, cluster: Cluster) -> None:
    first = enrolling.enrol(keyed()).body["token"]
    assert enrolling.enrol(keyed(node="gpu-2")).body["token"] != first
    second = make(cluster)[1].enrol(keyed())
    assert second.body["token"] != first
    revoked = enrolling.enrol(keyed())  # its credential was revoked by the one of the other token
    assert revoked.body["token"] not in (first, second.body["token"])
    speak(revoked)


def test_inv_56_credentials_that_were_never_used_block_no_enrolment(enrolling: Door, cluster: Cluster) -> None:
    list_nodes(cluster, "gpu-1")
    for _ in range(enrolment.MAX_UNUSED):  # an agent that chooses no key
        assert enrolling.enrol(NODE).status == 201
    refused = enrolling.enrol(NODE)
    refused.problem(429)
    assert 0 < int(refused.headers["retry-after"]) <= enrolment.UNUSED_WINDOW.total_seconds()
    earlier = datetime.now(UTC) - enrolment.UNUSED_WINDOW
    ApiToken.objects.filter(node="gpu-1").update(created_at=earlier)
    speak(enrolling.enrol(NODE))


@pytest.mark.parametrize("key", ["short", "k" * 65, "with space with space", 7, None, ["k" * 32]])
def test_a_key_of_another_form_is_refused(enrolling: Door, key: object) -> None:
    refused = enrolling.enrol({"node": "gpu-1", "key": key})
    refused.problem(400)
    assert (refused.body["code"], refused.body["errors"][0]["field"]) == ("enrolment_key_invalid", "key")
    assert created() == 0
