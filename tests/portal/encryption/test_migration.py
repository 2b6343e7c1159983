"""The migration encrypts what is stored already."""

from datetime import datetime

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from kcover_portal.fleet.models import Cluster
from kcover_portal.notify.models import Channel
from tests.portal.encryption.conftest import KeyFile, column

BEFORE = [("fleet", "0002_heartbeat_fillfactor"), ("notify", "0001_initial")]


@pytest.mark.django_db(transaction=True)
def test_existing_secrets_are_encrypted(use_keys: KeyFile, first: str, now: datetime) -> None:
    use_keys(first)
    executor = MigrationExecutor(connection)
    executor.migrate(BEFORE)
    old = executor.loader.project_state(BEFORE).apps
    old.get_model("fleet", "Cluster").objects.create(name="east", created_at=now, kubeconfig="token: hush")
    old.get_model("notify", "Channel").objects.create(
        name="on-call", kind="slack", url="https://x.example/k", created_by="test", created_at=now
    )
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    assert "hush" not in column("kubeconfig")
    assert "example" not in column("url", table="notify_channel", row="on-call")
    assert (Cluster.objects.get().kubeconfig, Channel.objects.get().url) == ("token: hush", "https://x.example/k")
