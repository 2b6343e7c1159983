"""Locks are taken in one order, which prevents deadlocks: nodes, their cluster, tokens, and the ledger's chain."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import services
from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import registry
from kcover_portal.ledger.models import Entry
from tests.portal.api.test_unknown_nodes import list_nodes

pytestmark = pytest.mark.django_db


@pytest.fixture
def east(now: datetime) -> Cluster:
    cluster = Cluster.objects.create(name="east", created_at=now)
    Node.objects.create(cluster=cluster, name="gpu-1", created_at=now)
    return cluster


@pytest.fixture
def enrolled(east: Cluster, now: datetime) -> ApiToken:
    return services.enrol_proven(east, "gpu-1", account="a/b", expires_at=now + timedelta(days=1), now=now)[0]


def statements(act: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as asked:
        act()
    return [query["sql"] for query in asked if "SAVEPOINT" not in query["sql"]]


def assert_the_chain_is_last(asked: list[str], changed: str) -> None:
    changes = [at for at, sql in enumerate(asked) if changed in sql and not sql.startswith("SELECT")]
    chain = [at for at, sql in enumerate(asked) if "ledger_chain" in sql]
    assert max(changes) < min(chain)


def test_enrolling(east: Cluster, enrolled: ApiToken, now: datetime) -> None:
    token, _ = services.make_token("agent", cluster=east, created_by="user:ada", now=now)
    later = now + timedelta(hours=1)
    ends = {"expires_at": now + timedelta(days=1), "now": later}
    assert_the_chain_is_last(statements(lambda: services.enrol(token, "gpu-1", **ends)), "accounts_apitoken")
    asked = statements(lambda: services.enrol_proven(east, "gpu-1", account="a/b", **ends))
    assert_the_chain_is_last(asked, "accounts_apitoken")
    assert Entry.objects.filter(verb="token.revoked").count() == 2


def test_new_names_are_inserted_in_their_order(east: Cluster, now: datetime) -> None:
    token, _ = services.make_token("agent", cluster=east, created_by="user:ada", now=now)
    given = ["gpu-b", "gpu-c", "gpu-a"]
    made = services.enrol_together(token, given, expires_at=now + timedelta(days=1), now=now)
    assert [one[0].node for one in made if isinstance(one, tuple)] == given
    list_nodes(east, "gpu-f", "gpu-d", "gpu-e")
    rows = Node.objects.filter(cluster=east).order_by("pk").values_list("name", flat=True)
    assert list(rows) == ["gpu-1", *(f"gpu-{letter}" for letter in "abcdef")]


def test_revoking_a_line(enrolled: ApiToken, now: datetime) -> None:
    ApiToken.objects.filter(pk=enrolled.pk).update(origin="enrolment")
    enrolled.refresh_from_db()
    services.renew(enrolled, expires_at=now + timedelta(days=30), now=now)
    asked = statements(lambda: services.revoke_token(enrolled, actor="user:ada", now=now))
    assert_the_chain_is_last(asked, "accounts_apitoken")
    assert Entry.objects.filter(verb="token.revoked").count() == 2


def test_forgetting_a_cluster(east: Cluster, enrolled: ApiToken, now: datetime) -> None:
    asked = statements(lambda: registry.remove(east, actor="command:root", now=now))
    for sql, table in zip(asked, ("fleet_node", "fleet_cluster"), strict=False):
        assert sql.startswith(f'SELECT "{table}"."id"')
        assert connection.vendor == "sqlite" or "FOR UPDATE" in sql
    assert_the_chain_is_last(asked, "DELETE FROM")
    assert Entry.objects.latest("pk").verb == "cluster.removed"
    assert not Cluster.objects.exists()
