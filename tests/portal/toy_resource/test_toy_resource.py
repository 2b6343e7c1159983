"""A new kind of rows that people set is one declaration: every door makes, changes, shows and deletes its rows."""

import csv
import io
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from kcover.audit.base import REGISTRY
from kcover_portal.accounts import services as accounts
from kcover_portal.console import lists
from kcover_portal.encryption import keyring
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from tests.portal.api.conftest import Api, fields, problem
from tests.portal.toy_resource import doors
from tests.portal.toy_resource.beacons import BEACONS, Beacon

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.portal.toy_resource.doors")]
ACTS = {verb: REGISTRY.pop(verb) for verb in ("beacon.created", "beacon.changed", "beacon.deleted")}
URL, TOKEN = "https://lamp.example/on", "hush-hush-hush"
BODY = {"name": "north", "kind": "red", "cluster": "east", "url": URL, "token": TOKEN, "settings": {"row": "7"}}


@pytest.fixture(autouse=True)
def _registered(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for verb, act in ACTS.items():
        monkeypatch.setitem(REGISTRY, verb, act)
    monkeypatch.setitem(lists.LISTINGS, doors.LISTING.name, doors.LISTING)
    with connection.cursor() as cursor:
        cursor.execute(*connection.schema_editor().table_sql(Beacon))


@pytest.fixture
def cluster(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def admin(cluster: Cluster, now: datetime) -> Api:
    return signed_in("ada", "admin", now, cluster)


def signed_in(name: str, role: str, now: datetime, cluster: Cluster | None = None) -> Api:
    user = accounts.make_user(name, password="correct horse", role=role, cluster=cluster, created_by="t", now=now)
    client = Client()
    client.force_login(user)
    return Api(client=client)


def entries() -> list[tuple[str, str, str]]:
    rows = Entry.objects.filter(verb__startswith="beacon.").order_by("pk")
    return [(row.verb, row.subject, row.cluster) for row in rows]


def beacon(cluster: Cluster, now: datetime, **given: Any) -> Beacon:
    row = Beacon(name="north", kind="red", cluster=cluster)
    return BEACONS.make(row, {"url": URL, "token": TOKEN, **given}, actor="user:ada", now=now)


def test_a_row_is_managed_over_rest(admin: Api) -> None:
    made = admin.post("beacons", BODY)
    assert made.status_code == 201, made.content
    assert (made.json()["kind"], made.json()["settings"], made.json()["seconds"]) == ("red", {"row": "7"}, 60)
    changed = admin.call("patch", "beacons/north", {"settings": {"rack": "2"}, "seconds": 5, "reason": "moved"})
    assert (changed.json()["settings"], changed.json()["seconds"]) == ({"row": "7", "rack": "2"}, 5)
    assert set(fields(admin.call("patch", "beacons/north", {"url": "https://other.example"}))) == {"token"}
    assert set(fields(admin.post("beacons", {**BODY, "name": "south", "url": "gopher://x"}))) == {"url"}
    assert set(fields(admin.post("beacons", {**BODY, "pigeon": 1}))) == {"pigeon"}
    assert set(fields(admin.post("beacons", BODY))) == {"name"}
    shown = str([made.json(), changed.json(), admin.get("beacons").json(), admin.get("beacons/north").json()])
    assert admin.call("delete", "beacons/north").status_code == 204
    recorded = str(list(Entry.objects.values_list("data", flat=True)))
    assert TOKEN not in shown + recorded


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_other_roles_read_but_do_not_change_a_row(admin: Api, cluster: Cluster, now: datetime, role: str) -> None:
    beacon(cluster, now)
    other = signed_in("eve", role, now, cluster)
    assert [row["name"] for row in other.get("beacons").json()["results"]] == ["north"]
    problem(other.post("beacons", {**BODY, "name": "south"}), 403)
    problem(other.call("patch", "beacons/north", {"enabled": False}), 403)
    problem(other.call("delete", "beacons/north"), 403)
    for path in ("new/red/", "north/change/", "north/delete/"):
        assert other.client.get(f"/beacons/{path}").status_code == 403
    stranger = signed_in("mallory", "admin", now, Cluster.objects.create(name="west", created_at=now))
    assert stranger.get("beacons").json()["results"] == []
    problem(stranger.call("delete", "beacons/north"), 404)
    assert stranger.client.get("/beacons/north/change/").status_code == 404
    assert Beacon.objects.get().enabled


def test_a_row_is_managed_on_the_console(admin: Api) -> None:
    client = admin.client
    page = client.get("/beacons/new/red/").content.decode()
    for name in ("name", "cluster", "url", "token", "seconds", "settings"):
        assert f'name="{name}"' in page
    assert 'name="enabled"' not in page
    assert client.get("/beacons/new/pigeon/").status_code == 404
    form = {"name": "north", "cluster": "east", "url": URL, "token": TOKEN, "seconds": "60", "settings": "row=7"}
    assert client.post("/beacons/new/red/", {**form, "settings": "row"}).status_code == 422
    assert client.post("/beacons/new/red/", {**form, "settings": "pigeon=1"}).status_code == 422
    assert client.post("/beacons/new/red/", form).status_code == 302
    page = client.get("/beacons/north/change/").content.decode()
    assert "row=7" in page
    assert TOKEN not in page
    form = {"url": URL, "token": "", "seconds": "9", "settings": "rack=2", "enabled": "no", "reason": "dark"}
    assert client.post("/beacons/north/change/", form).status_code == 302
    row = Beacon.objects.get()
    assert (row.token, row.seconds, row.settings, row.enabled) == (TOKEN, 9, {"rack": "2"}, False)
    assert client.post("/beacons/north/delete/", {"reason": "gone"}).status_code == 302
    assert entries() == [(f"beacon.{act}", "beacon north", "east") for act in ("created", "changed", "deleted")]


@pytest.mark.parametrize(
    ("setting", "fitting", "outside", "code"),
    [
        ("url", f"{URL}/{'a' * (999 - len(URL))}", f"{URL}/{'a' * (1000 - len(URL))}", "text_too_long"),
        ("token", "a" * 200, "a" * 201, "text_too_long"),
        ("seconds", 3600, 3601, "seconds_out_of_range"),
        ("seconds", 0, -1, "seconds_out_of_range"),
        ("seconds", 0, None, "seconds_out_of_range"),
    ],
)
def test_settings_outside_the_bounds_of_their_columns_are_refused(
    cluster: Cluster, now: datetime, setting: str, fitting: object, outside: object, code: str
) -> None:
    with pytest.raises(FieldError) as of_new:
        beacon(cluster, now, **{setting: outside})
    row = beacon(cluster, now, **{setting: fitting})
    with pytest.raises(FieldError) as of_change:
        BEACONS.change(row, {"token": TOKEN, setting: outside}, actor="user:ada", now=now)
    assert [(one.value.field, one.value.reason.code) for one in (of_new, of_change)] == [(setting, code)] * 2
    assert getattr(Beacon.objects.get(), setting) == fitting


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(doors.Command(), *words, stdout=out)
    return out.getvalue()


def test_a_row_is_managed_from_the_shell(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    given = (
        "--url",
        URL,
        "--token-file",
        str(tmp_path / "token"),
        "--seconds",
        "5",
        "--set",
        "row=7",
        "--set",
        "rack=2",
    )
    run("add", "north", "--kind", "red", *given)
    run("set", "north", "--off", "--set", "rack=")
    row = Beacon.objects.get()
    assert (row.token, row.seconds, row.settings, row.enabled) == (TOKEN, 5, {"row": "7"}, False)
    assert run("list") == "north\tred\teast\toff\n"
    for words in (("set", "south", "--on"), ("set", "north", "--set", "rack"), ("set", "north", "--url", "gopher://x")):
        with pytest.raises(CommandError):
            run(*words)
    run("remove", "north")
    assert not Beacon.objects.exists()


def test_rows_are_exported_without_their_secret(admin: Api, cluster: Cluster, now: datetime) -> None:
    beacon(cluster, now, settings={"row": "7"})
    response = admin.client.get("/export/beacons.csv")
    text = b"".join(response.streaming_content).decode()
    [row] = csv.DictReader(io.StringIO(text))
    assert (row["name"], row["kind"], row["cluster"], row["enabled"]) == ("north", "red", "east", "true")
    assert "token" not in row
    assert TOKEN not in text


def test_a_stored_secret_is_encrypted_and_follows_no_change(
    cluster: Cluster, now: datetime, tmp_path: Path, settings: Any
) -> None:
    (tmp_path / "keys").write_text(keyring.new_key())
    settings.KCOVER_ENCRYPTION_KEY_FILE = str(tmp_path / "keys")
    row = beacon(cluster, now)
    by: dict[str, Any] = {"actor": "user:ada", "now": now}
    with pytest.raises(FieldError) as refused:
        BEACONS.change(row, {"url": "https://other.example/"}, **by)
    assert (refused.value.field, refused.value.reason.code) == ("token", "secret_again")
    BEACONS.change(row, {"url": "https://other.example/", "token": TOKEN}, **by)
    changed = Entry.objects.get(verb="beacon.changed").data["changed"]
    assert set(changed) == {"url", "token"}
    assert changed["token"]["after"] == "changed"
    with connection.cursor() as cursor:
        cursor.execute("SELECT token FROM toy_resource_beacon")
        assert TOKEN not in cursor.fetchone()[0]


def test_an_unchanged_row_leaves_no_entry_and_deletes_once(cluster: Cluster, now: datetime) -> None:
    row = beacon(cluster, now)
    by: dict[str, Any] = {"actor": "user:ada", "now": now}
    BEACONS.change(row, {"seconds": 60, "url": URL}, **by)
    for given, code in (({"pigeon": 1}, "setting_unknown"), ({"seconds": 3601}, "seconds_out_of_range")):
        with pytest.raises(FieldError) as refused:
            BEACONS.change(row, given, **by)
        assert ({refused.value.field}, refused.value.reason.code) == (set(given), code)
    twin = Beacon.objects.get()
    BEACONS.delete(row, **by)
    for act in (lambda: BEACONS.delete(twin, **by), lambda: BEACONS.change(twin, {"seconds": 5}, **by)):
        with pytest.raises(FieldError) as refused:
            act()
        assert (refused.value.reason.code, refused.value.conflict) == ("setting_gone", True)
    assert [verb for verb, *_ in entries()] == ["beacon.created", "beacon.deleted"]
