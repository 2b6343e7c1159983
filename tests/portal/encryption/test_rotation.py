"""Rotation: two keys overlap, a command encrypts everything with the first, and the old one can go."""

import io
from datetime import datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from kcover_portal.encryption import envelope, key_rotation, keyring
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.notify.models import Channel
from tests.portal.encryption.conftest import KeyFile, column, write


def run(verb: str) -> str:
    out = io.StringIO()
    call_command("secrets", verb, stdout=out, stderr=out)
    return out.getvalue()


def test_rotation_without_a_moment_of_unreadable_secrets(
    east: Cluster, use_keys: KeyFile, first: str, second: str, now: datetime
) -> None:
    Channel.objects.create(
        name="on-call", kind="webhook", url="https://x.example", secret="k" * 16, created_by="test", created_at=now
    )
    value = column("kubeconfig").rpartition(":")[2]
    use_keys(second, first)
    assert Cluster.objects.get().kubeconfig == "token: hush"
    run("rotate")
    use_keys(second)
    [key] = keyring.load()
    stored = [column("kubeconfig"), column("decision_secret")]
    stored += [column(name, table="notify_channel", row="on-call") for name in ("url", "secret")]
    assert {envelope.key_of(text) for text in stored} == {key.id}
    assert column("kubeconfig").rpartition(":")[2] == value  # only its data key was encrypted again
    assert (Cluster.objects.get().kubeconfig, Channel.objects.get().secret) == ("token: hush", "k" * 16)
    entry = Entry.objects.get(verb="secrets.rotated")
    assert entry.data == {"key": key.id, "changed": 4}


def test_a_second_rotation_changes_and_records_nothing(
    east: Cluster, use_keys: KeyFile, first: str, second: str
) -> None:
    use_keys(second, first)
    run("rotate")
    before = column("kubeconfig")
    run("rotate")
    assert column("kubeconfig") == before
    assert Entry.objects.filter(verb="secrets.rotated").count() == 1


def test_plain_values_are_encrypted(east: Cluster) -> None:
    write("kubeconfig", "token: plain")
    run("rotate")
    assert column("kubeconfig").startswith(envelope.PREFIX)
    assert Cluster.objects.get().kubeconfig == "token: plain"


def test_an_unreadable_secret_does_not_stop_the_rotation(
    east: Cluster, use_keys: KeyFile, first: str, second: str
) -> None:
    write("decision_secret", column("kubeconfig"))
    use_keys(second, first)
    with pytest.raises(CommandError):
        run("rotate")
    assert envelope.key_of(column("kubeconfig")) == keyring.load()[0].id
    assert [error.place.column for error in key_rotation.unreadable()] == ["fleet_cluster.decision_secret"]
    with pytest.raises(CommandError):
        run("status")


def test_status_counts_by_key(east: Cluster, use_keys: KeyFile, first: str, second: str) -> None:
    use_keys(second, first)
    assert [line.split()[-2] for line in run("status").splitlines()] == ["0", "2"]


def test_a_printed_key_is_a_key(use_keys: KeyFile) -> None:
    use_keys(run("key"))
    assert len(keyring.load()) == 1


def test_without_a_key_nothing_is_rotated(db: None, no_keys: None, settings: Any) -> None:
    with pytest.raises(CommandError):
        run("rotate")
    settings.KCOVER_ENCRYPTION_KEY_FILE = "/nonexistent"
    with pytest.raises(CommandError):
        run("status")
