"""Enrolments that arrive together: one transaction, and each node is judged as if it had come alone."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import parked_names
from kcover_portal.accounts.services.enrolment import MAX_REPEATS, MAX_UNUSED
from kcover_portal.api.agent import enrolment
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.portal.api.test_unknown_nodes import list_nodes

pytestmark = pytest.mark.django_db(transaction=True)
NODES = [f"gpu-{number}" for number in range(12)]


@pytest.fixture
def token(now: datetime) -> ApiToken:
    east = Cluster.objects.create(name="east", created_at=now, watched_at=now)
    list_nodes(east, *NODES)
    return accounts.make_token("agent", cluster=east, created_by="user:ada", now=now)[0]


def together(token: ApiToken, *nodes: str) -> list[str]:
    """The code of what refuses each node; "" for one that is enrolled."""
    now = datetime.now(UTC)
    answers = accounts.enrol_together(token, nodes, expires_at=now + timedelta(days=1), now=now)
    return [one.reason.code if isinstance(one, accounts.Refused) else "" for one in answers]


def use(token: ApiToken, *nodes: str) -> None:
    """The agents used their credentials, and are silent since."""
    ApiToken.objects.filter(cluster=token.cluster, node__in=nodes).update(
        last_used_at=datetime.now(UTC) - timedelta(minutes=3)
    )


def in_force(node: str) -> int:
    return ApiToken.objects.filter(node=node, revoked_at=None).count()


def test_a_node_that_is_refused_does_not_refuse_the_others(token: ApiToken, now: datetime) -> None:
    together(token, "gpu-1")
    ApiToken.objects.filter(node="gpu-1").update(last_used_at=datetime.now(UTC))
    for _ in range(MAX_REPEATS):
        together(token, "gpu-2")
        use(token, "gpu-2")
    given = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert together(token, *given) == ["", "credential_in_use", "node_enrolled_often", ""]
    assert [in_force(node) for node in given] == [1, 1, 1, 1]
    created = Entry.objects.filter(cluster="east", verb="token.created", node__in=("gpu-0", "gpu-3"))
    assert [entry.node for entry in created.order_by("sequence")] == ["gpu-0", "gpu-3"]


def test_a_node_that_asks_twice_has_one_credential(token: ApiToken) -> None:
    assert together(token, "gpu-0", "gpu-0", "gpu-1") == ["", "", ""]
    assert [in_force("gpu-0"), in_force("gpu-1")] == [1, 1]
    assert together(token, *["gpu-0"] * MAX_UNUSED) == [*[""] * (MAX_UNUSED - 2), *["node_enrolled_often"] * 2]


def test_two_repetitions_of_a_lost_answer_get_one_credential(token: ApiToken) -> None:
    ends = {"expires_at": datetime.now(UTC) + timedelta(days=1), "now": datetime.now(UTC)}
    nodes, keys = ["gpu-0", "gpu-0", "gpu-1"], ["k" * 32, "k" * 32, "k" * 32]
    first = accounts.enrol_together(token, nodes, keys=keys, **ends)
    again = accounts.enrol_together(token, nodes, keys=keys, **ends)
    secrets = [one[1] for one in first if not isinstance(one, accounts.Refused)]
    assert secrets == [one[1] for one in again if not isinstance(one, accounts.Refused)]
    assert (secrets[0] == secrets[1], secrets[0] == secrets[2]) == (True, False)
    assert [in_force("gpu-0"), in_force("gpu-1")] == [1, 1]


def test_unknown_names_have_their_bound_in_a_batch(token: ApiToken) -> None:
    ghosts = [f"ghost-{number:02}" for number in range(parked_names.MAX_UNKNOWN_NAMES + 2)]
    codes = together(token, *ghosts, "gpu-0")
    assert codes[-3:] == ["unknown_nodes_enrolled", "unknown_nodes_enrolled", ""]
    assert codes.count("") == parked_names.MAX_UNKNOWN_NAMES + 1


def test_a_further_node_costs_one_statement(token: ApiToken) -> None:
    def statements(*nodes: str) -> int:
        with CaptureQueriesContext(connection) as found:
            together(token, *nodes)
        return len(found)

    alone = statements("gpu-0")
    assert statements(*NODES[1:]) - alone == len(NODES) - 2


def test_a_batch_serves_several_tokens_and_names_the_refused_one(token: ApiToken) -> None:
    now = datetime.now(UTC)
    revoked = accounts.make_token("agent", cluster=token.cluster, created_by="user:ada", now=now)[0]
    accounts.revoke_token(revoked, actor="user:ada", now=now)
    _, secret = accounts.enrol(token, "gpu-5", expires_at=now + timedelta(days=1), now=now)
    own = Credential(accounts.digest(secret), token.cluster, "gpu-5", None)
    by, by_revoked = (Credential(one.digest, token.cluster, "", None) for one in (token, revoked))
    asked = [(by, "gpu-0", ""), (own, "gpu-5", ""), (by_revoked, "gpu-1", ""), (own, "gpu-6", ""), (by, "gpu-2", "")]
    answers = [one.status if isinstance(one, Refusal) else 201 for one in enrolment.bind(asked)]
    assert answers == [201, 201, 401, 403, 201]


def test_a_deleted_token_or_a_failure_refuses_only_its_own(token: ApiToken) -> None:
    west = Cluster.objects.create(name="west", created_at=datetime.now(UTC))
    deleted = [Credential(digest, west, node, None) for digest, node in (("a" * 64, ""), ("b" * 64, "gpu-7"))]
    pod = Credential("", Cluster(pk=10**6, name="deleted"), "gpu-8", None, account="kcover/agent")
    asked = [(deleted[0], "gpu-6", ""), (deleted[1], "gpu-7", ""), (pod, "gpu-8", "")]
    asked.append((Credential(token.digest, token.cluster, "", None), "gpu-0", ""))
    *refused, failed, enrolled = enrolment.bind(asked)
    assert [one.status for one in refused if isinstance(one, Refusal)] == [401, 401]
    assert isinstance(failed, Exception)
    assert not isinstance(enrolled, Exception)
