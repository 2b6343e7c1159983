"""Signed heads outside of the database: they reveal a consistent rewrite by a forger with the database's account."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from prometheus_client.parser import text_string_to_metric_families

from kcover import audit
from kcover_portal import needs_person
from kcover_portal.anchors import queries, senders, services, signed_heads
from kcover_portal.anchors.models import Divergence, Publication
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger, services as ledger_services, signatures
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.operate import health, metrics
from kcover_portal.runtime import queries as runtime
from tests.portal.anchors.conftest import SECRET
from tests.portal.ledger.tampered_rows import unguarded

pytestmark = pytest.mark.django_db


def reported(name: str) -> audit.Act:
    return audit.PasswordChanged(user=name)


@pytest.fixture
def anchor(tmp_path: Path, settings, now: datetime) -> Path:
    """An anchor, a key, and a cluster with six entries, four of which are published."""
    settings.KCOVER_SIGNING_KEY = tmp_path / "keys" / "signing.pem"
    settings.KCOVER_ANCHOR = tmp_path / "anchors" / "heads.jsonl"
    signatures.create_key(settings.KCOVER_SIGNING_KEY)
    Cluster.objects.create(name="c1", created_at=now)
    for n in range(1, 5):
        ledger_services.record("c1", reported(f"thing {n}"), actor="user:anna", now=now)
    ledger_services.record("", reported("of the installation"), actor="user:anna", now=now)
    services.publish(now=now)
    for n in range(5, 7):
        ledger_services.record("c1", reported(f"thing {n}"), actor="user:anna", now=now)
    return settings.KCOVER_ANCHOR


def rewritten(entries: list[Entry]) -> None:
    """What only somebody with the database's account can do: rewrite, and chain everything anew."""
    previous = ""
    with unguarded():
        for entry in entries:
            entry.previous = previous
            entry.digest = previous = ledger.digest(entry)
            entry.save()
        Chain.objects.filter(cluster="c1").update(sequence=entries[-1].sequence, digest=previous)


def rewrite() -> None:
    entries = list(Entry.objects.filter(cluster="c1").order_by("sequence"))
    entries[1].actor = "user:somebody-else"
    rewritten(entries)


def cut() -> None:
    with unguarded():
        Entry.objects.filter(cluster="c1", sequence__gt=3).delete()
    rewritten(list(Entry.objects.filter(cluster="c1").order_by("sequence")))


def remove() -> None:
    entries = list(Entry.objects.filter(cluster="c1").order_by("sequence"))
    with unguarded():
        entries[1].delete()
    left = [entry for entry in entries if entry.sequence != 2]
    with unguarded():
        for number, entry in enumerate(left, start=1):
            Entry.objects.filter(pk=entry.pk).update(sequence=number)
            entry.sequence = number
    rewritten(left)


def delete_chain() -> None:
    with unguarded():
        Entry.objects.filter(cluster="c1").delete()
        Chain.objects.filter(cluster="c1").delete()


FORGERIES: dict[str, tuple[Callable[[], None], str]] = {
    "rewritten consistently": (rewrite, "anchored_chain_rewritten"),
    "tail cut and head set back": (cut, "anchored_chain_behind"),
    "entry removed and renumbered": (remove, "anchored_chain_rewritten"),
    "chain deleted": (delete_chain, "anchored_chain_missing"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_inv_46_an_anchor_shows_a_consistent_rewrite(
    anchor: Path, forgery: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("ledger", "verify", anchor=[anchor])
    assert "all in the database" in capsys.readouterr().out
    forge, code = FORGERIES[forgery]
    forge()
    if forgery != "chain deleted":
        call_command("ledger", "verify")  # the chain by itself proves nothing against this forger
    heads = queries.read_anchor(anchor, signatures.public_keys()).genuine
    assert [each.because.code for each in queries.contradictions(heads)] == [code]
    with pytest.raises(CommandError) as raised:
        call_command("ledger", "verify", anchor=[anchor])
    assert raised.value.returncode == 1


def test_a_registered_cluster_without_a_chain_is_an_alarm(anchor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delete_chain()
    with pytest.raises(CommandError, match="1 of 2 chains are broken"):
        call_command("ledger", "verify")
    assert "c1: the chain is missing" in capsys.readouterr().out
    with pytest.raises(CommandError, match="1 of 1 chains"):
        call_command("ledger", "verify", cluster="c1")


def test_every_signed_head_is_compared_and_since_leaves_older_ones_out(anchor: Path, now: datetime) -> None:
    """After a restore that people know of, the heads before it are left out."""
    cut()
    later = now + timedelta(hours=1)
    services.publish(now=later)
    assert len(anchor.read_text().splitlines()) == 2
    with pytest.raises(CommandError) as raised:
        call_command("ledger", "verify", anchor=[anchor])
    assert raised.value.returncode == 1
    call_command("ledger", "verify", anchor=[anchor], since=later)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda text: text.replace('"sequence":4', '"sequence":3'), 3),
        (lambda text: text[: len(text) // 2], 3),
        (lambda text: "", 3),
        (lambda text: text + '{"kind": "other"}\n', 3),
        (lambda text: text + text, 0),
    ],
    ids=["altered", "cut", "empty", "foreign line", "twice"],
)
def test_an_anchor_that_proves_nothing_has_a_status_of_its_own(
    anchor: Path, change: Callable[[str], str], status: int
) -> None:
    anchor.write_text(change(anchor.read_text()))
    if not status:
        call_command("ledger", "verify", anchor=[anchor])
        return
    with pytest.raises(CommandError) as raised:
        call_command("ledger", "verify", anchor=[anchor])
    assert raised.value.returncode == status


def test_an_anchor_signed_with_another_key_is_no_proof(anchor: Path, tmp_path: Path, settings) -> None:
    signatures.create_key(tmp_path / "other.pem")
    with pytest.raises(CommandError, match="without a valid signature") as raised:
        call_command("ledger", "verify", anchor=[anchor], keys=tmp_path / "other.pem.pub")
    assert raised.value.returncode == 3
    call_command("ledger", "verify", anchor=[anchor], keys=Path(f"{settings.KCOVER_SIGNING_KEY}.pub"))
    for missing in ({"anchor": [tmp_path / "none"]}, {"anchor": [anchor], "keys": tmp_path / "none"}):
        with pytest.raises(CommandError) as raised:
            call_command("ledger", "verify", **missing)
        assert raised.value.returncode == 3


def test_lines_signed_before_a_rotation_stay_valid(anchor: Path, settings, now: datetime) -> None:
    signatures.rotate_key(settings.KCOVER_SIGNING_KEY)
    services.publish(now=now + timedelta(minutes=1))
    call_command("ledger", "verify", anchor=[anchor])
    assert len(queries.read_anchor(anchor, signatures.public_keys()).genuine) == 2


def test_a_published_line_has_every_chain(anchor: Path) -> None:
    line = json.loads(anchor.read_text())
    head = Entry.objects.get(cluster="c1", sequence=4)
    assert line["kind"] == "kcover-ledger-heads"
    assert line["heads"][1] == {"cluster": "c1", "sequence": 4, "digest": head.digest, "entries": 4}
    assert [each["cluster"] for each in line["heads"]] == ["", "c1"]
    assert signed_heads.parse(anchor.read_text()).is_genuine(signatures.public_keys())
    assert anchor.stat().st_mode & 0o007 == 0


def test_a_line_that_a_crash_cut_is_passed_over(anchor: Path, now: datetime) -> None:
    whole = anchor.read_text()
    anchor.write_text(whole + whole[:50])
    services.publish(now=now + timedelta(minutes=1))
    assert Divergence.objects.count() == 0
    lines = anchor.read_text().splitlines()
    assert (lines[1], len(lines)) == (whole[:50], 3)
    assert signed_heads.newest(anchor, signatures.public_keys()).at == now + timedelta(minutes=1)


# ------------------------------------------------------------------------------------------------------------- places
def well(now: datetime) -> dict[str, bool]:
    return {found.name: found.well for found in health.findings(now=now) if found.name.startswith("audit log")}


def test_a_place_that_fails_is_shown_and_the_others_get_the_heads(
    anchor: Path, settings, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    assert well(now) == {"audit log file": True, "audit log key": True, "audit log log": True}
    settings.KCOVER_ANCHOR_WEBHOOK = "http://127.0.0.1:1/heads"
    anchor.unlink()
    anchor.mkdir()
    later = now + timedelta(minutes=1)
    caplog.set_level("INFO")
    heads = services.publish(now=later)
    assert heads.line() in [record.getMessage() for record in caplog.records]
    codes = {row.place: row.why.code if row.why else "" for row in Publication.objects.all()}
    assert codes == {"file": "anchor_not_written", "key": "", "log": "", "webhook": "host_not_answering"}
    assert well(later) == {
        "audit log file": False,
        "audit log key": True,
        "audit log log": True,
        "audit log webhook": False,
    }
    shown = metrics.render().decode()
    assert 'kcover_ledger_heads_failing{place="file"} 1.0' in shown
    assert 'kcover_ledger_heads_failing{place="log"} 0.0' in shown
    assert 'kcover_ledger_sequence{cluster="c1"} 6.0' in shown
    digest = Chain.objects.get(cluster="c1").digest
    [family] = [each for each in text_string_to_metric_families(shown) if each.name == "kcover_ledger_digest"]
    assert {sample.labels["cluster"]: sample.value for sample in family.samples}["c1"] == int(digest[:12], 16)
    anchor.rmdir()
    anchor.write_text("rotated\n")
    settings.KCOVER_ANCHOR_WEBHOOK = ""
    services.publish(now=later)
    assert all(well(later).values())
    assert not all(well(later + timedelta(minutes=4)).values()), "heads that stop coming are an alarm"


def test_without_a_key_heads_are_unsigned_and_that_is_shown(anchor: Path, settings, now: datetime) -> None:
    settings.KCOVER_SIGNING_KEY.unlink()
    later = now + timedelta(minutes=1)
    services.publish(now=later)
    assert Publication.objects.get(place="key").why.code == "signing_key_unreadable"
    assert well(later)["audit log key"] is False
    with pytest.raises(CommandError, match="1 unsigned lines") as raised:
        call_command("ledger", "verify", anchor=[anchor])
    assert raised.value.returncode == 3


def test_the_webhook_gets_the_signed_document(anchor: Path, settings, now: datetime, receiver) -> None:
    settings.KCOVER_ANCHOR_WEBHOOK, settings.KCOVER_ANCHOR_WEBHOOK_SECRET = receiver.url, SECRET
    heads = services.publish(now=now)
    [body] = receiver.bodies
    assert signed_heads.parse(body.decode()) == heads
    assert receiver.signed == [True]
    assert receiver.headers[0]["X-Kcover-Signature"].startswith("sha256=")
    receiver.statuses = [500]
    services.publish(now=now)
    assert Publication.objects.get(place="webhook").why.code == "anchor_webhook_refused"


def test_no_file_is_no_place(anchor: Path, settings, now: datetime) -> None:
    settings.KCOVER_ANCHOR = None
    services.publish(now=now)
    assert list(senders.configured()) == ["log"]
    assert not Publication.objects.filter(place="file").exists()


# ------------------------------------------------------------------------------------------------- a restored database
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_restored_database_starts_paused_and_names_its_gap(anchor: Path, now: datetime, forgery: str) -> None:
    FORGERIES[forgery][0]()
    later = now + timedelta(hours=1)
    assert services.compare(now=later)
    whole = runtime.installation()
    assert (whole.mode, whole.resumes_as, whole.changed_by) == ("paused", "enforce", "system")
    incident = Incident.objects.get(kind="ledger", state="open")
    assert [part.code for part in incident.message_reason.parts] == ["database_diverged", FORGERIES[forgery][1]]
    assert needs_person.counts([incident.cluster], now=later)["c1", "ledger"] == 1
    entry = Entry.objects.get(verb="ledger.diverged")
    act = audit.from_entry(entry)
    assert isinstance(act, audit.DatabaseDiverged)
    assert (act.anchored_at, act.because[0].code) == (now, FORGERIES[forgery][1])
    assert well(later)["audit log anchor"] is False
    assert "kcover_ledger_diverged 1.0" in metrics.render().decode()


def test_an_old_line_that_somebody_appends_again_hides_no_newer_one(anchor: Path, now: datetime) -> None:
    [early] = anchor.read_text().splitlines()
    services.publish(now=now + timedelta(hours=1))
    with unguarded():
        Entry.objects.filter(cluster="c1", sequence__gt=5).delete()
    rewritten(list(Entry.objects.filter(cluster="c1").order_by("sequence")))
    with anchor.open("a") as file:
        file.write(f"{early}\n")
    [found] = services.compare(now=now + timedelta(hours=2))
    assert (found.cluster, found.because.code) == ("c1", "anchored_chain_behind")


def test_a_person_resumes_and_the_portal_does_not_pause_again(anchor: Path, now: datetime) -> None:
    cut()
    later = now + timedelta(hours=1)
    services.publish(now=later)
    services.publish(now=later + timedelta(minutes=1))
    assert Divergence.objects.count() == 1
    fleet.resume(cluster=None, reason="restored by us", actor="user:anna", now=later + timedelta(minutes=2))
    services.publish(now=later + timedelta(minutes=3))
    assert runtime.installation().mode == "enforce"
    assert well(later + timedelta(minutes=3))["audit log file"]
    assert "audit log anchor" not in well(later + timedelta(minutes=3))


def test_a_divergence_is_reported_once_even_where_the_anchor_cannot_be_written(anchor: Path, now: datetime) -> None:
    cut()
    services.compare(now=now)
    fleet.resume(cluster=None, reason="known", actor="user:anna", now=now + timedelta(minutes=1))
    services.compare(now=now + timedelta(minutes=2))
    assert runtime.installation().mode == "enforce"


def test_an_intact_or_new_database_is_not_paused(anchor: Path, now: datetime) -> None:
    assert services.compare(now=now) == []
    anchor.unlink()
    assert services.compare(now=now) == []
    anchor.mkdir()
    assert services.compare(now=now) == []
    assert runtime.installation().mode == "enforce"
    assert not Incident.objects.exists()


@pytest.mark.parametrize("emptied", [False, True])
def test_an_anchor_file_that_vanishes_is_an_alarm_for_a_day(anchor: Path, now: datetime, emptied: bool) -> None:
    anchor.write_text("") if emptied else anchor.unlink()
    services.publish(now=now)
    for later, reported in ((timedelta(minutes=1), True), (services.VANISHED_FOR, False)):
        services.publish(now=now + later)  # which writes the file anew
        found = [each for each in health.findings(now=now + later) if each.name == f"audit log {services.VANISHED}"]
        assert [each.well for each in found] == [False] * reported


def test_the_first_anchor_file_is_no_alarm(anchor: Path) -> None:
    assert not Publication.objects.filter(place=services.VANISHED).exists()
