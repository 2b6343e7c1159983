"""Statements that are built once answer as the query sets that they stand for."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.transaction import TransactionManagementError

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.prepared import Prepared, PreparedUpdate

pytestmark = pytest.mark.django_db


@pytest.fixture
def nodes(now: datetime) -> list[Node]:
    cluster = Cluster.objects.create(name="east", created_at=now, guards={"cooldown": 5})
    return [
        Node.objects.create(
            cluster=cluster, name=f"gpu-{index}", created_at=now + timedelta(hours=index), labels={"a": "b"}
        )
        for index in range(3)
    ]


def test_instances_with_their_relations(nodes: list[Node], django_assert_num_queries: Any) -> None:
    built = []

    def build(node: int) -> QuerySet[Node, Node]:
        built.append(node)
        return Node.objects.select_related("cluster").filter(pk=node)

    statement = Prepared(build, node=int)
    for node in nodes:
        with django_assert_num_queries(1):
            found = statement.get(node=node.pk)
            assert (found, found.name, found.labels, found.created_at) == (node, node.name, {"a": "b"}, node.created_at)
            assert found.cluster.guards == {"cooldown": 5}
    assert len(built) == 1


def test_values_and_the_order_of_parameters(nodes: list[Node], now: datetime) -> None:
    statement = Prepared(
        lambda since, until, name: (
            Node.objects.filter(created_at__lt=until, created_at__gte=since)
            .exclude(name=name)
            .order_by("-name")
            .values_list("name", flat=True)
        ),
        name=str,
        since=datetime,
        until=datetime,
    )
    end = now + timedelta(days=1)
    assert statement.rows(since=now, until=end, name="gpu-1") == ["gpu-2", "gpu-0"]
    assert statement.rows(since=now + timedelta(hours=2), until=end, name="") == ["gpu-2"]
    assert statement.first(since=end, until=end, name="") is None
    with pytest.raises(LookupError):
        statement.get(since=end, until=end, name="")


def test_a_parameter_that_the_statement_does_not_use(nodes: list[Node]) -> None:
    statement = Prepared(lambda node, name: Node.objects.filter(pk=node), node=int, name=str)
    with pytest.raises(ValueError, match="name"):
        statement.rows(node=nodes[0].pk, name="gpu-1")


def test_a_statement_that_calculates_with_a_time(nodes: list[Node], now: datetime) -> None:
    day = timedelta(days=1)
    statement = Prepared(
        lambda at: Node.objects.filter(created_at__gt=at, gone_at__lt=at - day).values("pk"), at=datetime
    )
    with pytest.raises(ValueError, match="calculates"):
        statement.rows(at=now)


def test_columns_are_set(nodes: list[Node], now: datetime, django_assert_num_queries: Any) -> None:
    built = []

    def build(node: int, name: str) -> QuerySet[Node, Node]:
        built.append(node)
        return Node.objects.filter(pk=node, name=name)

    statement = PreparedUpdate(build, node=int, name=str)
    for node in nodes:
        later = node.created_at + timedelta(days=1)
        columns = {"labels": {"name": node.name}, "ready_since": later, "unschedulable": True, "gpus": F("gpus") + 8}
        with django_assert_num_queries(1):
            assert statement.run(columns, node=node.pk, name=node.name) == 1
        node.refresh_from_db()
        assert (node.labels, node.ready_since, node.unschedulable, node.gpus) == ({"name": node.name}, later, True, 8)
        assert statement.run({"ready_since": None}, node=node.pk, name=node.name) == 1
        node.refresh_from_db()
        assert (node.ready_since, node.gpus) == (None, 8)
        assert statement.run({"gpus": F("gpus") + 1}, node=node.pk, name="") == 0
    assert statement.run({"gpus": F("gpus") + 2}, node=nodes[0].pk, name=nodes[0].name) == 1
    nodes[0].refresh_from_db()
    assert nodes[0].gpus == 10
    assert len(built) == 4  # one for each set of columns; another expression is another statement


@pytest.mark.django_db(transaction=True)
def test_rows_are_locked_in_a_transaction_only(nodes: list[Node]) -> None:
    statement = Prepared(lambda node: Node.objects.select_for_update().filter(pk=node), node=int)
    with pytest.raises(TransactionManagementError):
        statement.rows(node=nodes[0].pk)
    with transaction.atomic():
        assert statement.rows(node=nodes[0].pk) == [nodes[0]]
    with pytest.raises(TransactionManagementError):
        statement.rows(node=nodes[0].pk)
