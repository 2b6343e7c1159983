"""An export, an import into an empty database, and an export again: equal."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.core.management import CommandError, call_command

from kcover_portal.accounts.models import Passkey, RecoveryCode, RoleBinding, TotpDevice, User
from kcover_portal.audit_stream.models import Sink
from kcover_portal.checks.models import ValidationProfile
from kcover_portal.fleet import queries as fleet, services as fleet_services
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.machines.models import Driver
from kcover_portal.notify.models import Channel
from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import FileInvalid
from kcover_portal.policies import queries as policies
from kcover_portal.settings import PASSWORD_HASHERS as REAL_HASHERS
from kcover_portal.sources.models import Source
from tests.portal.operate.settings_file.world import (
    BY,
    KUBECONFIG,
    PASSPHRASE,
    by_command,
    empty,
    exported,
    fill,
    imported,
    sections,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def filled() -> Cluster:
    return fill()


def test_two_exports_of_the_same_state_are_equal(filled: Cluster) -> None:
    assert exported() == exported()


def test_a_file_with_its_secrets_makes_the_same_portal(filled: Cluster) -> None:
    text = exported(secrets=True)
    before = document.secrets_of(document.read(text.encode()), PASSPHRASE)
    empty()
    outcome = imported(text, keep_modes=True)
    assert not outcome.left
    again = exported(secrets=True)
    assert sections(again) == sections(text)
    assert document.secrets_of(document.read(again.encode()), PASSPHRASE) == before
    east = Cluster.objects.get(name="east")
    assert (east.mode, east.kubeconfig, east.decision_secret) == ("enforce", KUBECONFIG, "0123456789abcdef0")
    assert User.objects.get(username="ann").check_password("a long password 1")
    assert not User.objects.get(username="bob").is_active
    assert TotpDevice.objects.get().seed == "JBSWY3DPEHPK3PXP"
    assert bytes(Passkey.objects.get().public_key) == b"\0\1\xff"
    assert RecoveryCode.objects.count() == 1
    assert Driver.objects.get().password == "hush-hush"
    imported(text)
    assert sections(exported()) == sections(text)


def test_imported_policies_win_in_the_same_order(filled: Cluster) -> None:
    text = exported()
    before = [one.policy for one in sorted(policies.candidates(), key=lambda one: one.created_at)]
    empty()
    imported(text)
    assert [one.policy for one in sorted(policies.candidates(), key=lambda one: one.created_at)] == before


def test_a_new_cluster_acts_no_further_than_shadow(filled: Cluster) -> None:
    text = exported(secrets=True)
    empty()
    imported(text)
    modes = dict(Cluster.objects.values_list("name", "mode"))
    assert modes == {"east": "shadow", "west": "paused"}  # west: perhaps another cluster than that of the old portal


def test_without_secrets_what_needs_one_is_off(filled: Cluster) -> None:
    text = exported()
    assert "secrets" not in json.loads(text)
    for secret in (KUBECONFIG, "XYZ", "0123456789abcdef", "hush-hush", "argon2", "decide.example", "JBSWY3DP"):
        assert secret not in text
    empty()
    outcome = imported(text)
    east = Cluster.objects.get(name="east")
    assert (east.mode, east.resumes_as) == ("paused", "shadow")
    assert set(Channel.objects.filter(enabled=True)) == set()
    assert set(Sink.objects.filter(enabled=True).values_list("name", flat=True)) == {"log"}
    assert not Driver.objects.get().enabled
    assert not Source.objects.get(name="loki").enabled
    assert not User.objects.get(username="ann").has_usable_password()
    told = "\n".join(outcome.notes)
    assert all(f" {name}: " in told for name in ("east", "west", "ann", "bmc", "siem", "chat", "hook", "pager", "loki"))
    assert Channel.objects.get(name="hook").secret not in ("", "https://enter-again.invalid")


def test_an_import_is_in_the_audit_log(filled: Cluster) -> None:
    text = exported(secrets=True)
    assert Entry.objects.filter(verb="settings.secrets_exported").count() == 1
    empty()
    newest = Entry.objects.order_by("-pk").values_list("pk", flat=True)[0]
    imported(text)
    fresh = Entry.objects.filter(pk__gt=newest)
    assert {"cluster.added", "policy.applied", "channel.created", "role.given"} <= set(
        fresh.values_list("verb", flat=True)
    )
    entry = fresh.get(verb="settings.imported")
    assert "cluster east" in entry.data["created"]


def test_what_is_there_stays_without_update(filled: Cluster) -> None:
    text = exported(secrets=True)
    Channel.objects.filter(name="chat").update(language="zh-hans")
    outcome = imported(text)
    assert (outcome.created, outcome.changed) == ([], [])
    assert outcome.left == ["channel chat: language"]
    outcome = imported(text, update=True)
    assert outcome.changed == ["channel chat: language"]
    assert Channel.objects.get(name="chat").language == "en"


def test_an_update_loosens_no_limit_without_keep_modes(filled: Cluster) -> None:
    text = exported(secrets=True)
    fleet_modes = Cluster.objects.filter(name="east")
    fleet_modes.update(mode="shadow", guards={}, acted_on_by="KCE")
    imported(text, update=True)
    east = fleet_modes.get()
    assert (east.mode, east.acted_on_by) == ("shadow", "KCE")
    assert fleet.guards_of(east).storm.enabled
    imported(text, update=True, keep_modes=True)
    east = fleet_modes.get()
    assert (east.mode, east.acted_on_by) == ("enforce", "")
    assert not fleet.guards_of(east).storm.enabled


def test_policies_for_a_cluster_that_acts_need_keep_modes(filled: Cluster) -> None:
    text = json.loads(exported())
    text = json.dumps(
        {name: value for name, value in text.items() if name in ("kind", "version", "portal", "policies")}
    )
    policies.Policy.objects.all().delete()
    outcome = imported(text)
    assert not outcome.created
    assert policies.policies().count() == 0
    imported(text, keep_modes=True)
    assert policies.policies().count() == 2


def test_the_last_admin_stays(filled: Cluster) -> None:
    whole = json.loads(exported())
    [ann] = [one for one in whole["people"] if one["name"] == "ann"]
    ann["enabled"] = False
    with pytest.raises(FileInvalid, match=r"\$\.people"):
        imported(json.dumps(whole), update=True)
    assert User.objects.get(username="ann").is_active
    assert RoleBinding.objects.filter(user__username="ann").count() == 1


def test_secrets_belong_to_the_addresses_of_their_file(filled: Cluster) -> None:
    text = exported(secrets=True)
    moved = text.replace("https://loki.example", "https://evil.example")
    empty()
    with pytest.raises(FileInvalid, match=r"\$\.secrets"):
        imported(moved)
    assert not Cluster.objects.exists()
    imported(moved, secrets=False)
    assert Source.objects.get(name="loki").url == "https://evil.example"


def test_the_commands(filled: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, words = tmp_path / "portal.json", tmp_path / "passphrase"
    words.write_text("correct horse battery\nnothing")
    call_command("export", str(path), "--with-secrets", "--passphrase-file", str(words))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandError):
        call_command("export", str(path))
    text = path.read_text()
    empty()
    capsys.readouterr()
    by_command("import", tmp_path, text, "--dry-run", "--passphrase-file", str(words))
    assert not Cluster.objects.exists()
    shown = capsys.readouterr().out
    assert "create\tcluster east\n" in shown
    by_command("import", tmp_path, text, "--passphrase-file", str(words))
    assert Cluster.objects.count() == 2
    words.write_text("another horse battery")
    with pytest.raises(CommandError):
        by_command("import", tmp_path, text, "--passphrase-file", str(words))


@pytest.mark.parametrize("update", [False, True])
def test_a_file_writes_no_lines_of_its_own(
    filled: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, update: bool
) -> None:
    """Escape sequences could hide from the reader of a dry run that it makes an admin."""
    text = json.loads(exported())
    text["clusters"][0]["settings"]["\x1b[2J\u202e\n0 created, 0 changed, 0 left, 9 equal"] = 1
    capsys.readouterr()
    try:
        by_command("import", tmp_path, json.dumps(text), "--dry-run", *(["--update"] if update else []))
        shown = capsys.readouterr().out
    except CommandError as refusal:
        shown = f"{refusal}\n"
    assert "\\x1b[2J\\u202e\\n0 created" in shown
    assert all(line.isprintable() for line in shown.replace("\t", " ").splitlines())


@pytest.mark.parametrize(
    "costly",
    [
        "argon2$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQxMjM0NTY$RdescudvJCsgt3ub+b4dWRWJTmaasVFBjAVbG0wuY7M",
        "argon2$argon2id$v=19$m=19456,t=1000,p=1$c29tZXNhbHQxMjM0NTY$RdescudvJCsgt3ub+b4dWRWJTmaasVFBjAVbG0wuY7M",
        "pbkdf2_sha256$2000000000$abcdefghijkl$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=",
        "pbkdf2_sha256$-1$abcdefghijkl$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=",  # an error at each sign-in
        "pbkdf2_sha256$870000$$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=",
    ],
)
def test_a_hash_can_be_checked_at_the_cost_of_one_of_a_portal(filled: Cluster, settings: Any, costly: str) -> None:
    """Anybody can ask for the check, by a wrong password."""
    settings.PASSWORD_HASHERS = [*settings.PASSWORD_HASHERS, *REAL_HASHERS]
    User.objects.filter(username="bob").update(password=make_password("a long password 2", hasher=costly.split("$")[0]))
    assert imported(exported(secrets=True)).same
    User.objects.filter(username="bob").update(password=costly)
    text = exported(secrets=True)
    empty()
    with pytest.raises(FileInvalid, match=r"\$\.people\[1\]\.secrets\.password"):
        imported(text)


def test_a_weak_passphrase_is_refused(tmp_path: Path) -> None:
    words = tmp_path / "passphrase"
    words.write_text("short")
    with pytest.raises(CommandError):
        call_command("export", "-", "--with-secrets", "--passphrase-file", str(words))


def test_a_source_for_a_cluster_that_acts_needs_keep_modes(filled: Cluster) -> None:
    text = exported(secrets=True)
    Source.objects.filter(name="loki").delete()
    imported(text)
    assert not Source.objects.get(name="loki").enabled
    Source.objects.filter(name="loki").delete()
    imported(text, keep_modes=True)
    assert Source.objects.get(name="loki").enabled


def test_an_update_enables_nothing_whose_secret_is_still_missing(filled: Cluster) -> None:
    text = exported()
    whole = exported(secrets=True)
    empty()
    imported(text)
    imported(text, update=True, keep_modes=True)
    assert Cluster.objects.get(name="east").mode == "paused"
    assert not Channel.objects.filter(enabled=True).exists()
    assert not Driver.objects.get().enabled
    imported(whole, update=True, keep_modes=True)  # now with them
    assert sections(exported()) == sections(whole)
    assert Cluster.objects.get(name="east").kubeconfig == KUBECONFIG
    assert User.objects.get(username="ann").check_password("a long password 1")


def test_an_update_without_secrets_keeps_those_that_are_there(filled: Cluster) -> None:
    text = exported().replace('"language": "en"', '"language": "zh-hans"')
    outcome = imported(text, update=True)
    assert not [note for note in outcome.notes if "ann" in note]
    assert User.objects.get(username="ann").check_password("a long password 1")
    hook = Channel.objects.get(name="hook")
    assert (hook.language, hook.enabled, hook.secret) == ("zh-hans", True, "0123456789abcdef")


def test_an_update_leads_to_no_other_cluster_without_keep_modes(filled: Cluster) -> None:
    text = exported(secrets=True)
    rows = Cluster.objects.filter(name="east")
    moved = rows.get()
    moved.in_cluster, moved.context, moved.kubeconfig = True, "other", "another kubeconfig"
    moved.save()
    outcome = imported(text, update=True)
    assert "cluster east" not in "\n".join(outcome.changed)
    assert any("in_cluster" in note and "kubeconfig" in note for note in outcome.notes)
    east = rows.get()
    assert (east.mode, east.in_cluster, east.context, east.kubeconfig) == (
        "enforce",
        True,
        "other",
        "another kubeconfig",
    )
    imported(text, update=True, keep_modes=True)
    east = rows.get()
    assert (east.in_cluster, east.context, east.kubeconfig) == (False, "main", KUBECONFIG)


def test_a_paused_cluster_without_access_gets_its_first_one(filled: Cluster) -> None:
    text, whole = exported(), exported(secrets=True)
    empty()
    imported(text)
    imported(whole, update=True)
    east = Cluster.objects.get(name="east")
    assert (east.mode, east.kubeconfig) == ("paused", KUBECONFIG)


def test_an_update_starts_no_source_or_driver_of_a_cluster_that_acts(filled: Cluster) -> None:
    text = exported(secrets=True)
    Source.objects.filter(name="loki").update(enabled=False)
    Driver.objects.update(enabled=False)
    outcome = imported(text, update=True)
    assert sum("enabled" in note for note in outcome.notes) == 2
    assert not Source.objects.get(name="loki").enabled
    assert not Driver.objects.get().enabled
    imported(text, update=True, keep_modes=True)
    assert Source.objects.get(name="loki").enabled
    assert Driver.objects.get().enabled


def test_an_update_changes_no_source_or_driver_at_work_but_can_disable_it(filled: Cluster) -> None:
    whole = json.loads(exported())
    [loki] = [row["settings"] for row in whole["sources"] if row["name"] == "loki"]
    [bmc] = [row["settings"] for row in whole["drivers"]]
    loki["settings"] = {**loki["settings"], "interval": 20}
    bmc["username"] = "admin"
    imported(json.dumps(whole), update=True)
    assert "interval" not in Source.objects.get(name="loki").settings
    assert Driver.objects.get().username == "root"
    loki["enabled"] = bmc["enabled"] = False
    imported(json.dumps(whole), update=True)
    source, driver = Source.objects.get(name="loki"), Driver.objects.get()
    assert (source.enabled, source.settings["interval"]) == (False, 20)
    assert (driver.enabled, driver.username) == (False, "admin")


@pytest.mark.parametrize("paused", ["", "cluster", "portal"])
def test_an_update_changes_nothing_by_which_nodes_of_a_cluster_that_acts_are_judged(
    filled: Cluster, paused: str
) -> None:
    """``paused``: what acts again after a while. The end of the pause says nothing of the import."""
    text = json.loads(exported())
    if paused:
        fleet_services.pause(cluster=filled if paused == "cluster" else None, reason="a look", **BY)
    [its] = [one["settings"] for one in text["clusters"] if one["name"] == "east"]
    trusting = {"event_namespace": "tenant", "job_image": "registry.example/other:1", "burn_in": "off"}
    its.update(trusting, gpu_hour_price="3")
    text["profiles"][0]["document"].update(checks=[{"check": "remapped", "required": True}])
    changed = json.dumps(text)
    imported(changed, update=True)
    east, profile = Cluster.objects.get(name="east"), ValidationProfile.objects.get()
    assert not trusting.items() & {name: getattr(east, name) for name in trusting}.items()
    assert (east.gpu_hour_price, len(profile.document["checks"]) > 1) == (3, True)
    imported(changed, update=True, keep_modes=True)
    east = Cluster.objects.get(name="east")
    assert {name: getattr(east, name) for name in trusting} == trusting
    assert len(ValidationProfile.objects.get().document["checks"]) == 1
