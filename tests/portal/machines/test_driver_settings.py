"""Rows of machine drivers: refusals, the secret, the audit log, and the command."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kcover_portal.encryption import keyring
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import connections
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines import queries, services
from kcover_portal.machines.models import Driver
from tests.kube_fake import FakeCluster
from tests.portal.machines.controllers import PASSWORD, USERNAME, Controller
from tests.portal.rescue.other_system import OtherSystem

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
URL = "https://{node}-bmc.example"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="east", created_at=NOW, kubeconfig="fake")


def make(cluster: Cluster, name: str = "bmc", **more: Any) -> Driver:
    given = {"url": URL, "username": USERNAME, "password": PASSWORD, "settings": {}, **more}
    return services.DRIVERS.make(Driver(name=name, kind="redfish", cluster=cluster), given, actor="user:ann", now=NOW)


def change(row: Driver, **given: Any) -> Driver:
    return services.DRIVERS.change(row, given, actor="user:ann", now=NOW)


def refused_field(cluster: Cluster, **more: Any) -> tuple[str, str]:
    with pytest.raises(FieldError) as refused:
        make(cluster, **more)
    return refused.value.field, refused.value.reason.code


def test_the_password_is_encrypted_and_in_no_entry(cluster: Cluster, tmp_path: Path, settings: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text(keyring.new_key())
    settings.KCOVER_ENCRYPTION_KEY_FILE = str(keys)
    row = make(cluster)
    change(row, password="another secret")
    with connection.cursor() as cursor:
        cursor.execute("SELECT password FROM machines_driver")
        (stored,) = cursor.fetchone()
    assert "another secret" not in stored
    assert Driver.objects.get().password == "another secret"
    entries = list(Entry.objects.order_by("pk"))
    assert [entry.verb for entry in entries] == ["driver.created", "driver.changed"]
    text = json.dumps([entry.data for entry in entries])
    assert PASSWORD not in text
    assert "another secret" not in text
    assert entries[1].data["changed"]["password"]["after"] == "changed"


@pytest.mark.parametrize(
    "given",
    [
        {"url": "https://{node}.evil.example"},
        {"settings": {"insecure": True}},
        {"settings": {"table": {"gpu-1": "https://evil.example"}}},
        {"settings": {"hosts": ["evil.example"]}},
    ],
)
def test_the_password_is_given_again_where_it_would_go_elsewhere(cluster: Cluster, given: dict[str, Any]) -> None:
    row = make(cluster)
    with pytest.raises(FieldError) as refused:
        change(row, **given)
    assert (refused.value.field, refused.value.reason.code) == ("password", "secret_again")
    assert Driver.objects.get().url == URL
    change(row, **given, password=PASSWORD)
    assert change(Driver.objects.get(), settings={"timeout": 5}).setting("timeout") == 5


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"name": "Not A Name"}, ("name", "driver_name_invalid")),
        ({"url": ""}, ("url", "driver_address_missing")),
        ({"url": "http://{node}-bmc.example"}, ("url", "driver_address_plain")),
        ({"url": "https://u:p@{node}-bmc.example"}, ("url", "address_password")),
        ({"url": "https://{node}-bmc.example/?a=b"}, ("url", "driver_address_query")),
        ({"url": "ftp://{node}"}, ("url", "address_invalid")),
        ({"url": "https://{bmc}"}, ("settings/hosts", "driver_hosts_missing")),
        ({"settings": {"timeout": 13}}, ("settings/timeout", "source_setting_number")),
        ({"settings": {"nonsense": "1"}}, ("settings/nonsense", "driver_setting_unknown")),
        ({"settings": {"check_uuid": "perhaps"}}, ("settings/check_uuid", "source_setting_boolean")),
        ({"settings": {"table": "gpu-1"}}, ("settings/table", "driver_table")),
        ({"settings": {"table": "gpu-1 nowhere"}}, ("settings/table", "driver_table_row")),
        (
            {"settings": {"table": "gpu-1 https://a.example\ngpu-1 https://b.example"}},
            ("settings/table", "driver_table"),
        ),
        ({"username": "a:b"}, ("username", "driver_credential_invalid")),
        ({"username": "x" * 201}, ("username", "text_too_long")),
        ({"password": "x" * 201}, ("password", "text_too_long")),
        ({"password": "a\nb"}, ("password", "driver_credential_invalid")),
    ],
)
def test_invalid_redfish_settings_are_refused(cluster: Cluster, more: dict[str, Any], refusal: tuple[str, str]) -> None:
    assert refused_field(cluster, **more) == refusal
    assert not Driver.objects.exists()
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"url": ""}, ("url", "driver_receiver_missing")),
        ({"password": ""}, ("password", "driver_secret_short")),
        ({"password": "x" * 15}, ("password", "driver_secret_short")),
        ({"username": "a"}, ("username", "driver_username_unused")),
        ({"settings": {"table": "gpu-1 https://one.example"}}, ("settings/table", "driver_setting_unknown")),
    ],
)
def test_invalid_webhook_settings_are_refused(cluster: Cluster, more: dict[str, Any], refusal: tuple[str, str]) -> None:
    given = {"url": "https://cloud.example/", "password": "x" * 16, "settings": {}, **more}
    with pytest.raises(FieldError) as refused:
        services.DRIVERS.make(Driver(name="cloud", kind="webhook", cluster=cluster), given, actor="user:ann", now=NOW)
    assert (refused.value.field, refused.value.reason.code) == refusal


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"url": "https://{node}-bmc.example"}, ("url", "driver_address_ipmi")),
        ({"url": "ipmi://{node}-bmc.example/x"}, ("url", "driver_address_ipmi")),
        ({"url": "ipmi://u:p@{node}"}, ("url", "driver_address_ipmi")),
        ({"url": "ipmi://{node}:0"}, ("url", "driver_address_ipmi")),
        ({"url": "ipmi://{node}:65536"}, ("url", "driver_address_ipmi")),
        ({"url": "", "settings": {"table": "gpu-1 https://one.example"}}, ("settings/table", "driver_table_row")),
        ({"settings": {"insecure": "true"}}, ("settings/insecure", "driver_setting_unknown")),
        ({"username": "x" * 17}, ("username", "driver_ipmi_credential")),
        ({"password": "é" * 11}, ("password", "driver_ipmi_credential")),
    ],
)
def test_invalid_ipmi_settings_are_refused(cluster: Cluster, more: dict[str, Any], refusal: tuple[str, str]) -> None:
    given = {"url": "ipmi://{node}-bmc.example", "username": "u", "password": "p", "settings": {}, **more}
    with pytest.raises(FieldError) as refused:
        services.DRIVERS.make(Driver(name="bmc", kind="ipmi", cluster=cluster), given, actor="user:ann", now=NOW)
    assert (refused.value.field, refused.value.reason.code) == refusal


def test_a_name_is_taken_once(cluster: Cluster) -> None:
    make(cluster)
    assert refused_field(cluster) == ("name", "driver_exists")


def test_a_node_has_the_driver_that_names_it_most_closely(cluster: Cluster) -> None:
    for name, given in (("a", {}), ("b", {"pools": "h100"}), ("c", {"table": "gpu-1 https://one.example"})):
        make(cluster, name, settings=given)
    make(cluster, "d", url="", settings={"table": "gpu-9 https://nine.example"})
    nodes = {
        name: Node.objects.create(cluster=cluster, name=name, pool=pool, created_at=NOW)
        for name, pool in (("gpu-1", "h100"), ("gpu-2", "h100"), ("gpu-3", ""), ("gpu-9", ""))
    }
    found = {name: queries.driver_of(node) for name, node in nodes.items()}
    assert {name: str(driver) for name, driver in found.items()} == {
        "gpu-1": "c",
        "gpu-2": "b",
        "gpu-3": "a",
        "gpu-9": "d",
    }
    Driver.objects.update(enabled=False)
    assert queries.driver_of(nodes["gpu-1"]) is None


# --- the command


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    kube = FakeCluster(clock=lambda: NOW)
    uninstall = connections.install(cluster.pk, kube)
    seen = kube.add_node("gpu-1")
    yield Node.objects.create(cluster=cluster, name="gpu-1", system_uuid=seen.system_uuid, created_at=NOW)
    uninstall()


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("driver", *words, stdout=out)
    return out.getvalue()


def test_the_command_tests_a_webhook(cluster: Cluster, node: Node, tmp_path: Path, settings: Any) -> None:
    receiver = OtherSystem("x" * 16)
    try:
        secret = tmp_path / "secret"
        secret.write_text("x" * 16)
        run("add", "cloud", "--kind", "webhook", "--url", receiver.url, "--password-file", str(secret))
        run("test", "cloud", "--node", "gpu-1")
        assert [(asked["action"], asked["node"]) for asked in receiver.asked] == [("test", "gpu-1")]
        receiver.statuses = [401]
        with pytest.raises(CommandError):
            run("test", "cloud", "--node", "gpu-1")
    finally:
        receiver.stop()


def test_the_command_adds_tests_lists_and_removes(cluster: Cluster, node: Node, tmp_path: Path, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    kube = connections.connect(cluster.pk, kubeconfig="fake", context="", in_cluster=False)
    controller = Controller(uuid=kube.get_node(node.name).system_uuid)
    try:
        secret, table = tmp_path / "secret", tmp_path / "table"
        secret.write_text(f"{PASSWORD}\n")
        table.write_text(f"# node address\ngpu-1 {controller.url}\n")
        files = ("--password-file", str(secret), "--table", str(table))
        run("add", "bmc", "--kind", "redfish", "--username", USERNAME, *files, "--set", "insecure=true")
        shown = run("test", "bmc", "--node", "gpu-1")
        assert "power\ton" in shown
        assert "serial\tSN1" in shown
        assert PASSWORD not in shown + run("list")
        for wrong in (("--set", "insecure="), ("--set", "timeout")):
            with pytest.raises(CommandError):
                run("set", "bmc", *wrong)
        run("set", "--set", "timeout=5", "--set", "off_seconds=1", "bmc")
        assert (Driver.objects.get().setting("timeout"), Driver.objects.get().setting("off_seconds")) == (5, 1)
        run("set", "bmc", "--off")
        assert not Driver.objects.get().enabled
        controller.uuid = "11111111-2222-3333-4444-555555555555"
        with pytest.raises(CommandError):
            run("test", "bmc", "--node", "gpu-1")
        run("remove", "bmc")
        assert not Driver.objects.exists()
    finally:
        controller.stop()
