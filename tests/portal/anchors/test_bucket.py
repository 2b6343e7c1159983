"""Signed heads in an S3 bucket with object lock (moto's server): written each minute, and kept."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from minio import Minio
from minio.error import S3Error
from moto.server import ThreadedMotoServer

from kcover import audit
from kcover_portal.anchors import senders, services
from kcover_portal.anchors.models import Publication
from kcover_portal.config import env, setting_values
from kcover_portal.ledger import services as ledger, signatures
from tests.codes import code_of

pytestmark = pytest.mark.django_db
KEY = "A" * 16 + ":" + "b" * 32


def bucket(url: str) -> setting_values.Bucket | None:
    return setting_values.anchor_bucket(env.read({"KCOVER_ANCHOR_S3": url, "KCOVER_ANCHOR_S3_KEY": KEY}))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    client = Minio(f"{host}:{port}", *KEY.split(":"), secure=False, region="us-east-1")
    client.make_bucket("anchors", object_lock=True)
    client.make_bucket("plain")
    yield f"{host}:{port}"
    running.stop()


@pytest.fixture
def client(server: str, settings: Any, tmp_path: Path) -> Minio:
    settings.KCOVER_SIGNING_KEY = tmp_path / "signing.pem"
    signatures.create_key(settings.KCOVER_SIGNING_KEY)
    settings.KCOVER_ANCHOR_S3 = bucket(f"http://{server}/anchors/prod/east")
    return Minio(server, *KEY.split(":"), secure=False, region="us-east-1")


def publish() -> datetime:
    now = datetime.now(UTC).replace(microsecond=0)
    ledger.record("c1", audit.PasswordChanged(user="ann"), actor="user:ann", now=now)
    services.publish(now=now)
    return now


def problem() -> str:
    return code_of(Publication.objects.get(place="bucket").problem)


def test_the_heads_become_an_object_that_cannot_be_deleted(client: Minio, tmp_path: Path) -> None:
    now = publish()
    assert Publication.objects.get(place="bucket").why is None
    [found] = client.list_objects("anchors", prefix="prod/east/", recursive=True, include_version=True)
    assert str(found.object_name).startswith(f"prod/east/{now:%Y/%m/%d/%H%M%S}-")
    with pytest.raises(S3Error, match="AccessDenied"):
        client.remove_object("anchors", str(found.object_name), version_id=found.version_id)
    copy = tmp_path / "heads.jsonl"  # as a person would fetch it
    client.fget_object("anchors", str(found.object_name), str(copy))
    call_command("ledger", "verify", "--anchor", str(copy))


@pytest.mark.parametrize("name", ["plain", "nowhere"])
def test_a_bucket_without_object_lock_is_a_problem_and_stops_no_other_place(
    client: Minio, server: str, settings: Any, name: str
) -> None:
    settings.KCOVER_ANCHOR_S3 = bucket(f"http://{server}/{name}")
    publish()
    assert problem() == "anchor_bucket_refused"
    assert Publication.objects.get(place="log").why is None


def test_a_server_that_is_away_is_a_problem(client: Minio, settings: Any) -> None:
    settings.KCOVER_ANCHOR_S3 = bucket("http://127.0.0.1:9/anchors")
    publish()
    assert problem() == "anchor_bucket_refused"


def test_a_local_address_is_not_called(client: Minio, server: str, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ()
    settings.KCOVER_ANCHOR_S3 = bucket(f"http://{server}/anchors/blocked")
    publish()
    assert code_of(Publication.objects.get(place="bucket").problem["params"]["error"]) == "address_blocked"
    assert not list(client.list_objects("anchors", prefix="blocked/"))


def test_without_the_setting_there_is_no_such_place(settings: Any) -> None:
    assert "bucket" not in senders.configured()
    publish()
    assert not Publication.objects.filter(place="bucket").exists()


@pytest.mark.parametrize("text", ["s3://anchors", "https://host", "https://host/", "https://a:b@host/x", "host/x"])
def test_addresses_that_name_no_bucket_are_refused(text: str) -> None:
    with pytest.raises(env.SettingsInvalid, match="KCOVER_ANCHOR_S3"):
        env.read({"KCOVER_ANCHOR_S3": text})
    assert setting_values.bucket("https://host/bucket/") == "https://host/bucket"
