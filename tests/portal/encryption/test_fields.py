"""Secrets in rows: encrypted for their row, decrypted when read, never used if they cannot be."""

from datetime import datetime

import pytest

from kcover_portal import encryption
from kcover_portal.encryption import SecretUnreadable, envelope
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from tests.portal.encryption.conftest import KeyFile, column, write


def why(row: Cluster, name: str = "kubeconfig") -> str:
    """The code by which the secret is refused."""
    with pytest.raises(SecretUnreadable) as refused:
        getattr(row, name)
    assert refused.value.place == envelope.SecretLocation(f"fleet_cluster.{name}", row.name)
    return refused.value.why.code


def test_the_database_has_no_readable_secret(east: Cluster) -> None:
    stored = [column("kubeconfig"), column("decision_secret")]
    assert all(value.startswith(envelope.PREFIX) for value in stored)
    assert not any("hush" in value or "sss" in value for value in stored)
    assert (east.kubeconfig, east.decision_secret) == ("token: hush", "s" * 16)
    read = Cluster.objects.get()
    assert (read.kubeconfig, read.decision_secret) == ("token: hush", "s" * 16)


def test_each_value_has_a_data_key_and_a_nonce_of_its_own(east: Cluster, now: datetime) -> None:
    Cluster.objects.create(name="west", created_at=now, kubeconfig="token: hush")
    ours, others = (column("kubeconfig", row=name).split(":") for name in ("east", "west"))
    assert ours[:3] == others[:3]
    assert not set(ours[3:]) & set(others[3:])


def test_saving_other_fields_leaves_the_stored_value(east: Cluster) -> None:
    before = column("kubeconfig")
    read = Cluster.objects.get()
    read.mode = "paused"
    read.save()
    assert column("kubeconfig") == before
    read.kubeconfig = "token: new"
    read.save()
    assert column("kubeconfig") != before
    assert Cluster.objects.get().kubeconfig == "token: new"


def test_an_empty_secret_stays_empty(east: Cluster) -> None:
    east.decision_secret = ""
    east.save()
    assert column("decision_secret") == ""
    assert Cluster.objects.filter(decision_secret="").exists()
    assert not encryption.is_set(Cluster.objects.get(), "decision_secret")


def test_a_value_of_another_row_or_column_is_refused(east: Cluster, now: datetime) -> None:
    Cluster.objects.create(name="west", created_at=now, kubeconfig="token: other")
    write("kubeconfig", column("kubeconfig", row="west"))
    assert why(Cluster.objects.get(name="east")) == "encryption_value_altered"
    write("decision_secret", column("kubeconfig", row="west"), row="west")
    assert why(Cluster.objects.get(name="west"), "decision_secret") == "encryption_value_altered"


@pytest.mark.parametrize("part", [3, 4])
@pytest.mark.parametrize("change", ["", "AAAA", "not base64!"])
def test_an_altered_value_is_refused(east: Cluster, part: int, change: str) -> None:
    parts = column("kubeconfig").split(":")
    parts[part] = change
    write("kubeconfig", ":".join(parts))
    assert why(Cluster.objects.get()) == "encryption_value_altered"


@pytest.mark.parametrize("text", [envelope.PREFIX, f"{envelope.PREFIX}a", f"{envelope.PREFIX}a:b:c:d"])
def test_a_malformed_value_is_refused(east: Cluster, text: str) -> None:
    write("kubeconfig", text)
    assert why(Cluster.objects.get()) == "encryption_value_altered"


def test_plain_text_is_refused_once_there_is_a_key(east: Cluster) -> None:
    write("kubeconfig", "token: of an attacker")
    assert why(Cluster.objects.get()) == "encryption_value_plain"


def test_a_missing_key_is_named(east: Cluster, use_keys: KeyFile, second: str) -> None:
    key = envelope.key_of(column("kubeconfig"))
    use_keys(second)
    with pytest.raises(SecretUnreadable) as refused:
        _ = Cluster.objects.get().kubeconfig
    assert refused.value.why.code == "encryption_key_unknown"
    assert dict(refused.value.why.params)["key"] == key


@pytest.mark.usefixtures("no_keys")
def test_without_keys_values_are_stored_as_they_are(db: None, now: datetime) -> None:
    Cluster.objects.create(name="east", created_at=now, kubeconfig="token: hush")
    assert column("kubeconfig") == "token: hush"
    assert Cluster.objects.get().kubeconfig == "token: hush"


def test_without_keys_an_encrypted_value_is_refused(east: Cluster, no_keys: None) -> None:
    assert why(Cluster.objects.get()) == "encryption_key_unset"


def test_rows_load_and_are_saved_without_their_key(east: Cluster, use_keys: KeyFile, second: str) -> None:
    before = column("kubeconfig")
    use_keys(second)
    read = Cluster.objects.get()
    read.mode = "paused"
    read.save()
    assert column("kubeconfig") == before


def test_a_row_is_read_again_without_its_key(east: Cluster, use_keys: KeyFile, second: str) -> None:
    before = column("kubeconfig")
    use_keys(second)
    deferred = Cluster.objects.defer("kubeconfig").get()
    assert why(deferred) == "encryption_key_unknown"
    east.refresh_from_db()
    assert why(east) == "encryption_key_unknown"
    east.save()
    assert column("kubeconfig") == before


def test_a_cluster_is_not_called_without_its_kubeconfig(east: Cluster, use_keys: KeyFile, second: str) -> None:
    use_keys(second)
    with pytest.raises(port.Unavailable, match="kubeconfig"):
        queries.connect(Cluster.objects.get())


def test_queries_cannot_compare_or_set_a_secret(east: Cluster) -> None:
    with pytest.raises(TypeError):
        Cluster.objects.filter(kubeconfig="token: hush").exists()
    with pytest.raises(TypeError):
        Cluster.objects.update(kubeconfig="token: new")


def test_a_row_without_its_name_cannot_be_saved(db: None, use_keys: KeyFile, first: str, now: datetime) -> None:
    use_keys(first)
    with pytest.raises(ValueError, match="name"):
        Cluster.objects.create(created_at=now, kubeconfig="token: hush")


def test_a_raw_value_does_not_show_in_logs(east: Cluster) -> None:
    assert "hush" not in repr(vars(Cluster.objects.get()))
    [(raw,)] = Cluster.objects.values_list("kubeconfig")
    assert not isinstance(raw, str)
