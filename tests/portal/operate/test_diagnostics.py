"""The diagnostics bundle: complete also where something is broken, and without secrets."""

import io
import json
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kcover_portal.audit_stream import services as audit_stream
from kcover_portal.audit_stream.models import Sink
from kcover_portal.fleet.models import Cluster
from kcover_portal.notify import services as notify
from kcover_portal.notify.models import Channel
from kcover_portal.operate import diagnostics
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
SECRETS = {
    "KCOVER_SECRET_KEY": "hush-of-the-signing-of-sessions-0123456789",
    "KCOVER_DATABASE_URL": "postgres://kcover:hush@db.example/kcover",
    "KCOVER_ANCHOR_WEBHOOK": "https://anchors.example/hush?key=hush",
    "KCOVER_ENCRYPTION_KEY_COMMAND": "vault read --token hush",
    "KCOVER_PUBLIC_URL": "https://portal.example",
    "KCOVER_MODE": "shadow",
}


@pytest.fixture
def world(db: None):
    made = World()
    yield made
    made.uninstall()


def unpacked(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name).decode() for name in archive.namelist()}


def test_the_bundle_describes_the_installation_and_contains_no_secret(world: World, settings) -> None:
    now = world.now
    Cluster.objects.update(pause_reason="hush", watch_error={"code": "quoted_text", "params": {"text": "hush"}})
    given = {"url": "https://hooks.example/hush", "secret": "hush hush hush hush"}
    notify.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="user:hush", now=now)
    given = {"address": "https://siem.example/hush", "secret": "hush hush hush hush"}
    audit_stream.SINKS.make(Sink(name="siem", kind="webhook"), given, actor="user:hush", now=now)
    world.fault(62)
    world.work()
    files = unpacked(diagnostics.bundle(now=now, environ=SECRETS))
    assert [name for name, text in files.items() if "hush" in text or name.endswith(".error")] == []
    shown = json.loads(files["settings.json"])
    assert {name: shown[name] for name in SECRETS} == {
        "KCOVER_SECRET_KEY": "set",
        "KCOVER_DATABASE_URL": "set",
        "KCOVER_ANCHOR_WEBHOOK": "set" if shown["KCOVER_ANCHOR_WEBHOOK"] == "set" else "https://anchors.example/…",
        "KCOVER_ENCRYPTION_KEY_COMMAND": "vault …",
        "KCOVER_PUBLIC_URL": "https://portal.example/…",
        "KCOVER_MODE": "shadow",
    }
    [cluster] = json.loads(files["clusters.json"])
    assert (cluster["name"], cluster["watch_error"], cluster["open_incidents"]) == ("c1", "quoted_text", {"xid": 1})
    [rescue] = json.loads(files["rescues.json"])
    assert rescue["steps"][0]["name"] == "cordon"
    assert {each["check"] for each in json.loads(files["health.json"])} >= {"database", "sweep", "watch c1"}
    assert "kcover_" in files["metrics.txt"]
    assert any(json.loads(line).get("verb") == "rescue.opened" for line in files["audit.jsonl"].splitlines())


def test_a_part_that_fails_leaves_the_others(db: None, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE notify_alert")
        cursor.execute("DROP TABLE notify_notice")
        cursor.execute("DROP TABLE notify_delivery")
    Channel.objects.create(name="on-call", kind="slack", created_at=now)
    files = unpacked(diagnostics.bundle(now=now, environ={}))
    assert "channels.json.error" in files
    assert {"about.json", "health.json", "packages.txt"} <= set(files)


def test_the_command_overwrites_no_file(db: None, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    call_command("diagnostics", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert "tables.json" in unpacked(path.read_bytes())
    with pytest.raises(CommandError):
        call_command("diagnostics", str(path))
