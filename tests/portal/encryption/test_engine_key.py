"""The engine's own key: web and live reach a cluster with fewer rights, and cannot decrypt the other kubeconfig."""

import io
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from kcover_portal import encryption
from kcover_portal.encryption import envelope, key_rotation
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_access, kubeconfig, registry
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.operate import tasks
from kcover_portal.shared_reads import portal_checks
from tests.portal.encryption.conftest import Become, KeyFile, column, write

SERVER = "https://127.0.0.1:1"


def text(token: str, *, server: str = SERVER) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


def token_of(client: port.Cluster) -> str | None:
    """The credentials that the client sends."""
    load = vars(vars(client)["_connection"])["_load"]
    found: str | None = load().authorization()
    return found


def codes(now: datetime) -> set[str]:
    return {each.because.code for each in portal_checks.problems(now=now) if each.check.startswith("kubeconfig ")}


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


@pytest.fixture
def both(db: None, become: Become, now: datetime) -> Cluster:
    become("worker")
    return Cluster.objects.create(
        name="east", created_at=now, kubeconfig=text("full"), read_kubeconfig=text("fewer"), decision_secret="s" * 16
    )


def test_web_cannot_decrypt_the_engines_kubeconfig_and_uses_the_other(both: Cluster, become: Become) -> None:
    assert token_of(queries.connect(Cluster.objects.get())) == "Bearer full"
    become("web")
    row = Cluster.objects.get()
    with pytest.raises(encryption.SecretUnreadable) as refused:
        _ = row.kubeconfig
    assert refused.value.why.code == "encryption_key_of_engine"
    assert token_of(queries.connect(row)) == "Bearer fewer"
    assert row.decision_secret == "s" * 16
    Cluster.objects.filter(pk=row.pk).update(read_kubeconfig="")
    told = cluster_access.test_registered(Cluster.objects.get(), process="web").unreachable
    assert told is not None
    assert told.code == "secret_unreadable", "the page must not say that the connection was lost"
    row.mode = "shadow"
    row.save()  # keeps what it cannot read
    write("read_kubeconfig", "")
    with pytest.raises(port.Unavailable):
        queries.connect(Cluster.objects.get())
    become("worker")
    assert Cluster.objects.get().kubeconfig == text("full")


def test_rotation_moves_the_kubeconfig_to_the_engines_key_with_a_new_data_key(
    db: None, become: Become, now: datetime
) -> None:
    become("web")
    Cluster.objects.create(name="east", created_at=now, kubeconfig=text("full"), read_kubeconfig=text("fewer"))
    before = column("kubeconfig")
    assert codes(now) == ({"kubeconfig_for_all_processes"} if connection.vendor == "postgresql" else set())
    become("worker")
    assert Cluster.objects.get().kubeconfig == text("full")
    run("secrets", "rotate")
    after = column("kubeconfig")
    assert envelope.is_for_engine(after)
    assert not envelope.is_for_engine(column("read_kubeconfig"))
    assert not set(before.split(":")[3:]) & set(after.split(":")[3:])
    assert run("secrets", "status").count("encrypts and decrypts: 1 secrets") == 2
    become("web")
    assert codes(now) == set()
    with pytest.raises(CommandError):
        run("secrets", "rotate")
    assert column("kubeconfig") == after  # never encrypted again for those who cannot read it
    assert [each.place.column for each in key_rotation.unreadable()] == ["fleet_cluster.kubeconfig"]
    write("read_kubeconfig", "")
    assert codes(now) == {"read_kubeconfig_missing"}


def test_web_stores_no_kubeconfig_for_the_engine(both: Cluster, become: Become, now: datetime) -> None:
    become("web")
    with pytest.raises(registry.ClusterRefused):
        registry.add("west", actor="test", now=now, kubeconfig=text("new"))
    assert not Cluster.objects.filter(name="west").exists()


def test_a_worker_seals_only_kubeconfigs_pasted_into_a_page(both: Cluster, become: Become, now: datetime) -> None:
    pasted = kubeconfig.read_pasted(text("pasted")).text
    become("web")
    registry.add("west", actor="test", now=now, by_page=True, kubeconfig=pasted)
    Cluster.objects.create(name="old", created_at=now, kubeconfig=text("old"))
    assert Cluster.objects.get(name="west").kubeconfig == pasted
    tasks.move_secrets()  # nothing, without the engine's key
    assert Cluster.objects.get(name="west").kubeconfig == pasted
    planted = pasted.replace("https://127", "https://root:s3cret@127")
    Cluster.objects.create(name="north", created_at=now, kubeconfig=planted)
    Cluster.objects.create(name="south", created_at=now, kubeconfig="{kcover.io/pasted: &a [")
    become("worker")
    for _ in range(2):  # the second time finds nothing
        tasks.move_secrets()
    assert Cluster.objects.get(name="west").kubeconfig == pasted
    sealed = Entry.objects.filter(verb="cluster.kubeconfig_sealed").order_by("pk")
    assert [(one.cluster, one.actor, one.data.get("server", "")) for one in sealed] == [
        ("west", "system", SERVER),
        ("north", "system", SERVER),
        ("south", "system", ""),
    ]
    assert not key_rotation.unreadable()
    become("web")
    assert Cluster.objects.get(name="old").kubeconfig == text("old")
    with pytest.raises(encryption.SecretUnreadable):
        _ = Cluster.objects.get(name="west").kubeconfig


def test_read_access_is_set_for_the_same_server_only(both: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text("fresh"))
    run("cluster", "read-access", "east", "--kubeconfig", str(file))
    assert "token: fresh" in Cluster.objects.get().read_kubeconfig
    entry = Entry.objects.get(verb="cluster.changed")
    assert "fresh" not in str(entry.data)
    file.write_text(text("elsewhere", server="https://127.0.0.1:2"))
    with pytest.raises(CommandError):
        run("cluster", "read-access", "east", "--kubeconfig", str(file))
    assert "token: fresh" in Cluster.objects.get().read_kubeconfig
    file.write_text(text("renewed"))
    run("cluster", "add", "east", "--replace", "--kubeconfig", str(file))
    assert "token: fresh" in Cluster.objects.get().read_kubeconfig
    file.write_text(text("moved", server="https://127.0.0.1:2"))
    run("cluster", "add", "east", "--replace", "--kubeconfig", str(file))
    assert Cluster.objects.get().read_kubeconfig == ""  # its server would review the tokens of agents


def test_without_the_new_settings_nothing_changes(db: None, use_keys: KeyFile, first: str, now: datetime) -> None:
    use_keys(first)
    Cluster.objects.create(name="east", created_at=now, kubeconfig=text("full"), read_kubeconfig=text("fewer"))
    assert token_of(queries.connect(Cluster.objects.get())) == "Bearer full"
