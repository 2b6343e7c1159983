"""Sinks over REST, on the console and from the shell: for admins of everything, and no secret ever comes back."""

import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kcover_portal.audit_stream.models import Sink
from kcover_portal.ledger.models import Entry
from tests.portal.api.conftest import Api, fields, person as account, problem
from tests.portal.audit_stream.conftest import SECRET

pytestmark = pytest.mark.django_db
HOOK = {"name": "siem", "kind": "webhook", "address": "https://siem.example/in/hush?key=hush", "secret": SECRET}


@pytest.fixture
def admin(db: None, now: datetime) -> Api:
    return account("ada", "admin", now)


@pytest.fixture
def folder(tmp_path: Path, settings) -> Iterator[Path]:
    settings.KCOVER_AUDIT_FOLDER = tmp_path
    return tmp_path


def test_a_sink_is_made_changed_and_deleted_and_its_secrets_are_never_shown(admin: Api) -> None:
    response = admin.post("audit-sinks", HOOK)
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["name"], made["address"], made["signed"], made["topics"], made["behind"]) == (
        *("siem", "https://siem.example", True, ["audit"]),
        1,
    )
    elsewhere = {"enabled": False, "address": "https://b.example/hush"}
    assert set(fields(admin.call("patch", "audit-sinks/siem", elsewhere))) == {"secret"}
    changed = admin.call("patch", "audit-sinks/siem", {**elsewhere, "secret": SECRET})
    assert (changed.json()["enabled"], changed.json()["address"]) == (False, "https://b.example")
    said = str([admin.get("audit-sinks").json(), admin.get("audit-sinks/siem").json(), made, changed.json()])
    assert admin.call("delete", "audit-sinks/siem").status_code == 204
    created, moved, deleted = Entry.objects.filter(verb__startswith="audit_sink.").order_by("sequence")
    assert moved.data["changed"]["address"] == {"before": "", "after": "changed"}
    assert deleted.data["behind"] == 2
    for text in (said, str([created.data, moved.data, deleted.data])):
        assert "hush" not in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("body", "field", "status"),
    [
        ({"name": "Siem"}, "name", 400),
        ({"kind": "pigeon"}, "kind", 400),
        ({"secret": "short"}, "secret", 400),
        ({"address": "ftp://x"}, "address", 400),
        ({"address": "https://anna:pass@x.example/"}, "address", 400),
        ({"topics": []}, "topics", 400),
        ({"topics": ["weather"]}, "topics.0", 400),
        ({"kind": "syslog", "address": "tcp://x:601"}, "secret", 400),
        ({"kind": "syslog", "address": "tcp://x:601/path", "secret": ""}, "address", 400),
        ({"kind": "syslog", "address": "tcp://x:99999999", "secret": ""}, "address", 400),
        ({"kind": "syslog", "address": "https://x", "secret": ""}, "address", 400),
        ({"kind": "file", "address": "../etc/cron.d/x", "secret": ""}, "address", 400),
        ({"kind": "file", "address": ".profile", "secret": ""}, "address", 400),
        ({"pigeon": 1}, "pigeon", 400),
    ],
)
def test_bad_settings_are_refused(admin: Api, folder: Path, body: dict[str, Any], field: str, status: int) -> None:
    response = admin.post("audit-sinks", {**HOOK, **body})
    assert response.status_code == status
    assert field in str(problem(response, status))
    assert not Sink.objects.exists()


def test_file_sinks_need_a_folder(admin: Api, settings) -> None:
    settings.KCOVER_AUDIT_FOLDER = None
    response = admin.post("audit-sinks", {"name": "a", "kind": "file", "address": "audit.jsonl"})
    assert response.status_code == 400
    assert "KCOVER_AUDIT_FOLDER" in str(response.json())


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_sinks_are_for_admins(admin: Api, role: str, now: datetime) -> None:
    admin.post("audit-sinks", HOOK)
    other = account("eve", role, now)
    assert other.get("audit-sinks").status_code == 403
    assert other.post("audit-sinks", HOOK).status_code == 403
    for method in ("get", "patch", "delete"):
        assert other.call(method, "audit-sinks/siem").status_code == 403
    for path in ("", "new/syslog/", "siem/change/", "siem/delete/"):
        assert other.client.get(f"/audit/sinks/{path}").status_code == 403
    assert "/audit/sinks/" not in other.client.get("/audit/").content.decode()


def test_the_console_makes_changes_and_deletes_a_sink(admin: Api, folder: Path) -> None:
    client = admin.client
    assert "/audit/sinks/" in client.get("/audit/").content.decode()
    assert client.get("/audit/sinks/new/pigeon/").status_code == 404
    refused = client.post("/audit/sinks/new/file/", {"name": "log", "address": "a/b", "whole": "no", "topics": "audit"})
    assert refused.status_code == 422
    first = {"name": "log", "address": "audit.jsonl", "whole": "yes", "topics": ["audit", "healing"]}
    assert client.post("/audit/sinks/new/file/", first).status_code == 302
    assert "audit.jsonl" in client.get("/audit/sinks/").content.decode()
    form = {"address": "", "enabled": "no", "reason": "moving", "topics": ["healing", "tickets"]}
    assert client.post("/audit/sinks/log/change/", form).status_code == 302
    assert (Sink.objects.get().address, Sink.objects.get().topics) == ("audit.jsonl", ["healing", "tickets"])
    assert client.post("/audit/sinks/log/delete/", {"reason": "moved"}).status_code == 302
    assert not Sink.objects.exists()


def test_the_command_adds_sends_lists_and_removes(folder: Path, now: datetime) -> None:
    call_command("audit_stream", "add", "log", kind="file", address="audit.jsonl")
    out = io.StringIO()
    call_command("audit_stream", "send", "log", stdout=out)
    assert out.getvalue() == "1 records sent\n"
    call_command("audit_stream", "list", stdout=out)
    assert "log: file audit.jsonl, enabled, 0 records behind" in out.getvalue()
    call_command("audit_stream", "disable", "log")
    assert not Sink.objects.get().enabled
    call_command("audit_stream", "remove", "log")
    for verb in ("send", "remove", "enable"):
        with pytest.raises(CommandError):
            call_command("audit_stream", verb, "log")
    with pytest.raises(CommandError):
        call_command("audit_stream", "add", "log", kind="file", address="/etc/passwd")


def test_the_shell_names_the_field_that_it_refuses(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    with pytest.raises(CommandError, match=r"^secret: "):
        call_command("audit_stream", "add", "hook", "--kind", "webhook", "--address", HOOK["address"])
