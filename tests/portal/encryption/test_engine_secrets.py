"""Secrets that only the engine reads: web stores them and cannot read them, and each goes to its own server only."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from kcover_portal import encryption
from kcover_portal.audit_stream import services as sinks
from kcover_portal.audit_stream.models import Sink
from kcover_portal.encryption import envelope
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from kcover_portal.notify import services as notify
from kcover_portal.notify.models import Channel
from kcover_portal.operate.tasks import move_secrets
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source, SourceTest
from kcover_portal.sources.services import worker_trial
from tests.portal.encryption.conftest import Become, column
from tests.portal.sources.stand_ins import StandIns

HUSH = "hush-hush-hush-hush"
URL = "https://a.example/in"
SECOND = timedelta(seconds=1)
# The table, and its columns that only the engine reads; what an attacker with the database writes.
ROWS: list[tuple[type[Any], str, tuple[str, ...], dict[str, Any]]] = [
    (Channel, "notify_channel", ("url", "secret"), {"url": "https://evil.example/in"}),
    (Source, "sources_source", ("token",), {"url": "https://evil.example/in"}),
    (Source, "sources_source", ("token",), {"settings": {"insecure": True}}),
    (Sink, "audit_stream_sink", ("secret",), {"address": "https://evil.example/in"}),
    (Driver, "machines_driver", ("password",), {"url": "https://evil.example/"}),
    (Driver, "machines_driver", ("password",), {"settings": {"table": {"gpu-1": "https://evil.example"}}}),
]


@pytest.fixture
def stored(db: None, become: Become, now: datetime) -> None:
    """Web stores one secret of each kind, an admin in worker the password of a driver."""
    become("web")
    by: dict[str, Any] = {"actor": "user:ann", "now": now}
    cluster = Cluster.objects.create(name="c", created_at=now)
    notify.CHANNELS.make(Channel(name="east", kind="webhook"), {"url": URL, "secret": HUSH}, **by)
    sources.SOURCES.make(
        Source(name="east", kind="gpud", cluster=cluster),
        {"url": URL, "token": HUSH, "settings": {"node": "gpu-1"}},
        **by,
    )
    Node.objects.create(cluster=cluster, name="gpu-1", in_cluster=True, gpus=8, created_at=now)
    sinks.SINKS.make(Sink(name="east", kind="webhook"), {"address": URL, "secret": HUSH}, **by)
    become("worker")
    machines.DRIVERS.make(
        Driver(name="east", kind="redfish", cluster=cluster), {"url": "https://{node}.example", "password": HUSH}, **by
    )
    become("web")
    move_secrets()  # does nothing here
    assert not envelope.is_for_engine(column("token", table="sources_source"))
    become("worker")
    move_secrets()
    become("web")


@pytest.mark.parametrize(("model", "table", "names", "planted"), ROWS)
def test_only_the_engine_reads_a_secret_and_only_for_its_server(
    stored: None, become: Become, model: type[Any], table: str, names: tuple[str, ...], planted: dict[str, Any]
) -> None:
    for name in names:
        assert envelope.is_for_engine(column(name, table=table))
        with pytest.raises(encryption.SecretUnreadable):
            getattr(model.objects.get(), name)
    row = model.objects.get()
    become("worker")
    assert getattr(row, names[-1]) == HUSH
    become("web")
    for name, value in planted.items():
        setattr(row, name, value)
    row.save(update_fields=[*planted])  # as web can, with its own key
    become("worker")
    move_secrets()
    with pytest.raises(encryption.SecretUnreadable) as refused:
        getattr(model.objects.get(), names[-1])
    assert refused.value.why.code == "encryption_value_altered"


def test_web_changes_fields_it_can_check_and_asks_for_the_secret_again(
    stored: None, become: Become, now: datetime
) -> None:
    by: dict[str, Any] = {"actor": "user:ann", "reason": "", "now": now}
    channel, source, sink = Channel.objects.get(), Source.objects.get(), Sink.objects.get()
    notify.CHANNELS.change(channel, {"enabled": False}, **by)
    sources.SOURCES.change(source, {"enabled": False, "url": f"{URL}/other"}, **by)
    sinks.SINKS.change(sink, {"enabled": False, "address": f"{URL}/other"}, **by)
    assert channel.host == ""
    for change in (
        lambda: notify.CHANNELS.change(channel, {"url": f"{URL}/other"}, **by),
        lambda: sources.SOURCES.change(source, {"settings": {"insecure": True}}, **by),
        lambda: sinks.SINKS.change(sink, {"address": "https://b.example/"}, **by),
    ):
        with pytest.raises(FieldError) as refused:
            change()
        assert (refused.value.field in ("secret", "token"), refused.value.reason.code) == (True, "secret_again")
    notify.CHANNELS.change(channel, {"url": "https://b.example/", "secret": HUSH}, **by)
    sources.SOURCES.change(source, {"settings": {"insecure": True}, "token": HUSH}, **by)
    become("worker")
    move_secrets()
    assert (Channel.objects.get().secret, Source.objects.get().token, Sink.objects.get().secret) == (HUSH, HUSH, HUSH)
    sources.SOURCES.change(source, {"settings": {"insecure": False}}, **by)
    machines.DRIVERS.change(Driver.objects.get(), {"url": "https://b.example", "password": HUSH}, actor="x", now=now)
    assert (Source.objects.get().token, Driver.objects.get().password) == (HUSH, HUSH)


def test_a_plain_value_is_not_made_genuine(stored: None, become: Become) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sources_source SET token = 'planted'")
    become("worker")
    move_secrets()
    assert column("token", table="sources_source") == "planted"


def test_a_worker_tests_a_source_whose_token_web_cannot_read(
    stored: None, become: Become, now: datetime, settings: Any
) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    moments = iter(range(100))

    def test(wait: Callable[[float], None]) -> worker_trial.Trial:
        row = Source.objects.get()
        return sources.try_here_or_by_worker(row, clock=lambda: now + next(moments) * 10 * SECOND, wait=wait)

    def work(_seconds: float) -> None:
        become("worker")
        sources.answer_test(SourceTest.objects.latest("pk").pk, now=now)
        become("web")

    with StandIns() as gpud:
        become("worker")
        by = {"actor": "user:ann", "reason": "", "now": now}
        sources.SOURCES.change(Source.objects.get(), {"url": f"{gpud.url}/gpud/gpu-1", "token": HUSH}, **by)
        become("web")
        trial = test(work)
        assert (trial.ok, trial.error, gpud.asked[-1].headers["Authorization"]) == (True, None, f"Bearer {HUSH}")
    late = test(lambda _seconds: None)
    assert (late.ok, late.error.code if late.error else "") == (False, "source_test_unanswered")
    sources.answer_test(SourceTest.objects.latest("pk").pk, now=now + timedelta(hours=1))
    assert SourceTest.objects.latest("pk").answered_at is None
