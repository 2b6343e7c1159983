"""The portal while a secret cannot be read: it reports this and never uses the secret."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.encryption import keyring
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import senders, services
from kcover_portal.notify.models import Channel
from kcover_portal.rescue.decide import external_decider
from tests.portal.encryption.conftest import KeyFile
from tests.portal.rescue.world import World

MESSAGE: Any = senders.Message(subject="", lines=(), document={}, key="k", events=())


@pytest.fixture
def channel(db: None, use_keys: KeyFile, now: datetime) -> Channel:
    use_keys(keyring.new_key())
    given = {"url": "http://127.0.0.1:9/", "secret": "k" * 16}
    return services.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="test", now=now)


def lose_the_key(use_keys: KeyFile) -> None:
    use_keys(keyring.new_key())


def test_a_channel_with_an_unreadable_secret_receives_nothing(channel: Channel, use_keys: KeyFile) -> None:
    lose_the_key(use_keys)
    with pytest.raises(senders.SendError) as failed:
        senders.send(Channel.objects.get(), MESSAGE)
    assert (failed.value.reason.code, failed.value.later) == ("secret_unreadable", True)
    assert Channel.objects.get().host == ""


def test_a_channel_is_repaired_by_entering_its_secrets_again(
    channel: Channel, use_keys: KeyFile, now: datetime
) -> None:
    lose_the_key(use_keys)
    row = Channel.objects.get()
    with pytest.raises(FieldError) as refused:
        services.CHANNELS.change(row, {"secret": "n" * 16}, actor="test", reason="", now=now)
    assert (refused.value.field, refused.value.reason.code) == ("url", "secret_unreadable")
    both = {"url": "http://127.0.0.1:9/", "secret": "n" * 16}
    assert services.CHANNELS.change(row, both, actor="test", reason="", now=now).secret == "n" * 16


def test_a_secret_is_refused_while_it_cannot_be_encrypted(channel: Channel, settings: Any, now: datetime) -> None:
    settings.KCOVER_ENCRYPTION_KEY_FILE = "/nonexistent"
    with pytest.raises(FieldError) as refused:
        services.CHANNELS.make(Channel(name="b", kind="slack"), {"url": "http://127.0.0.1:9/"}, actor="test", now=now)
    assert refused.value.reason.code == "encryption_file_unreadable"
    assert not Channel.objects.filter(name="b").exists()


def test_a_decision_system_with_an_unreadable_secret_counts_as_silent(db: None, use_keys: KeyFile) -> None:
    use_keys(keyring.new_key())
    world = World()
    world.cluster.decision_mode, world.cluster.decision_url = "external", "http://127.0.0.1:9/"
    world.cluster.decision_secret = "s" * 16
    world.cluster.save()
    world.fault(62)
    lose_the_key(use_keys)
    incident = Incident.objects.select_related("cluster", "node").get()
    answer = external_decider.query(incident, now=world.now)
    assert answer is not None
    assert answer.silence is not None
    assert answer.silence.code == "secret_unreadable"
    world.uninstall()


def test_a_clusters_secret_is_repaired_by_entering_it_again(east: Cluster, use_keys: KeyFile, now: datetime) -> None:
    lose_the_key(use_keys)
    row = Cluster.objects.get()
    cluster_settings.set_cluster(row, {"decision_secret": "n" * 16}, actor="test", reason="", now=now)
    assert Cluster.objects.get().decision_secret == "n" * 16
