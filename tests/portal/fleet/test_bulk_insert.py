"""Rows that are inserted together are those that ``bulk_create`` would insert."""

from datetime import datetime

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import bulk_sql

pytestmark = pytest.mark.django_db


def test_rows_are_those_of_bulk_create_and_know_their_keys(
    now: datetime, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries
) -> None:
    monkeypatch.setattr(bulk_sql, "INSERTED_TOGETHER", 3)
    cluster = Cluster.objects.create(name="east", created_at=now)

    def made(prefix: str) -> list[Node]:
        more = {"labels": {"a": "ü'\"\\"}, "taints": [{"key": "k"}], "ready": True, "gpus": 8, "past_boots": ["b"]}
        return [
            Node(cluster=cluster, name=f"{prefix}{number}", created_at=now, ready_since=now if number else None, **more)
            for number in range(5)
        ]

    ours = made("a")
    with django_assert_num_queries(2):
        bulk_sql.insert(ours, unique="name")
    theirs = Node.objects.bulk_create(made("b"))

    def columns(row: Node) -> dict[str, object]:
        return {field.attname: getattr(row, field.attname) for field in Node._meta.concrete_fields} | {
            "id": None,
            "name": row.name[1:],
        }

    stored = {row.pk: row for row in Node.objects.all()}
    assert [stored[row.pk].name for row in ours] == [row.name for row in ours]
    assert [columns(stored[row.pk]) for row in ours] == [columns(stored[row.pk]) for row in theirs]
    assert not any(row._state.adding for row in ours)
    bulk_sql.insert([], unique="name")
