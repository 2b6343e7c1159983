"""The database refuses every rewrite of the ledger, and verification finds a rewrite that was made anyway."""

from datetime import datetime

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from kcover import audit
from kcover_portal.ledger import queries, services
from kcover_portal.ledger.models import Chain, Entry
from tests.portal.ledger.tampered_rows import unguarded

pytestmark = pytest.mark.django_db


def reported(name: str) -> audit.Act:
    """Any act: the chain does not care which."""
    return audit.PasswordChanged(user=name)


@pytest.fixture
def chain(db: None, now: datetime) -> list[Entry]:
    """Five entries of one cluster and one of another."""
    services.record("c2", reported("other"), actor="system", now=now)
    for n in range(1, 6):
        services.record("c1", reported(f"thing {n}"), actor="system", now=now)
    return list(Entry.objects.filter(cluster="c1").order_by("sequence"))


REWRITES = {
    "update": lambda: Entry.objects.filter(sequence=2).update(actor="mallory"),
    "save": lambda: Entry.objects.get(cluster="c1", sequence=2).save(),
    "delete": lambda: Entry.objects.filter(sequence=2).delete(),
    "delete everything": lambda: _execute("DELETE FROM ledger_entry"),
    "remove the head": lambda: Chain.objects.filter(cluster="c1").delete(),
    "set the head back": lambda: Chain.objects.filter(cluster="c1").update(sequence=2),
    "set the head forward": lambda: Chain.objects.filter(cluster="c1").update(sequence=9),
    "another digest for the head": lambda: Chain.objects.filter(cluster="c1").update(digest="0" * 64),
    "rename the head": lambda: _execute("UPDATE ledger_chain SET cluster = 'c9' WHERE cluster = 'c1'"),
}


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize("how", REWRITES)
def test_inv_46_the_database_refuses_to_rewrite_the_ledger(chain: list[Entry], how: str) -> None:
    with pytest.raises(IntegrityError, match="ledger"), transaction.atomic():
        REWRITES[how]()
    assert queries.verify("c1") == queries.ChainCheck("c1", 5)


ROW = "(id, cluster, sequence, at, actor, verb, subject, node, data, previous, digest)"
REPLACEMENTS = {
    "by id": f"INSERT OR REPLACE INTO ledger_entry {ROW} SELECT id, 'c9', 7, at, 'mallory', verb, subject, node, data,"
    " previous, digest FROM ledger_entry WHERE sequence = 2",
    "by sequence": f"REPLACE INTO ledger_entry {ROW} SELECT NULL, cluster, sequence, at, 'mallory', verb, subject,"
    " node, data, previous, digest FROM ledger_entry WHERE cluster = 'c1' AND sequence = 2",
    "of the head": "INSERT OR REPLACE INTO ledger_chain (cluster, sequence, digest) VALUES ('c1', 2, '')",
    "by update": "UPDATE OR REPLACE ledger_entry SET sequence = 3 WHERE cluster = 'c1' AND sequence = 2",
}


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("how", REPLACEMENTS)
def test_inv_46_sqlite_refuses_to_replace_an_entry(chain: list[Entry], how: str, recursive: str) -> None:
    """Whatever the connection's setting of recursive_triggers, which every client can switch off."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has no REPLACE")
    _execute(f"PRAGMA recursive_triggers={recursive}")
    try:
        with pytest.raises(IntegrityError, match="ledger"), transaction.atomic():
            _execute(REPLACEMENTS[how])
    finally:
        _execute("PRAGMA recursive_triggers=ON")
    assert queries.verify("c1") == queries.ChainCheck("c1", 5)


@pytest.mark.django_db(transaction=True)
def test_the_flush_between_tests_still_works_1(now: datetime) -> None:
    services.record("c1", reported("left for the flush"), actor="system", now=now)


@pytest.mark.django_db(transaction=True)
def test_the_flush_between_tests_still_works_2(now: datetime) -> None:
    assert not Entry.objects.exists()
    services.record("c1", reported("x"), actor="system", now=now)
    with pytest.raises(IntegrityError, match="append-only"):
        Entry.objects.all().delete()


def swap(one: Entry, other: Entry) -> None:
    Entry.objects.filter(pk=one.pk).update(sequence=99)
    Entry.objects.filter(pk=other.pk).update(sequence=one.sequence)
    Entry.objects.filter(pk=one.pk).update(sequence=other.sequence)


def rechain(entry: Entry) -> None:
    """A forger who knows the algorithm mends the row's own digest, but not the next row's memory of it."""
    entry.actor = "mallory"
    Entry.objects.filter(pk=entry.pk).update(actor=entry.actor, digest=queries.digest(entry))


def put_in(entry: Entry) -> None:
    Entry.objects.create(
        cluster="c1", sequence=6, at=entry.at, actor="x", verb="told", subject="x", previous=entry.digest, digest="0"
    )


# What was done to entries 1 to 5 -> the place where it shows, the row that shows it, the code of the reason.
TAMPERING = {
    "changed data": (lambda e: Entry.objects.filter(pk=e[2].pk).update(data={"n": 30}), 3, 2, "chain_entry_changed"),
    "changed time": (
        lambda e: Entry.objects.filter(pk=e[0].pk).update(at=e[0].at.replace(year=2020)),
        1,
        0,
        "chain_entry_changed",
    ),
    "removed row": (lambda e: e[2].delete(), 3, 3, "chain_entry_missing"),
    "removed first row": (lambda e: e[0].delete(), 1, 1, "chain_entry_missing"),
    "removed last row": (lambda e: e[4].delete(), 5, None, "chain_head_differs"),
    "swapped rows": (lambda e: swap(e[1], e[3]), 2, 3, "chain_out_of_order"),
    "digest mended": (lambda e: rechain(e[1]), 3, 2, "chain_out_of_order"),
    "moved to another cluster": (
        lambda e: Entry.objects.filter(pk=e[2].pk).update(cluster="c7"),
        3,
        3,
        "chain_entry_missing",
    ),
    "put in": (lambda e: put_in(e[4]), 6, 5, "chain_beyond_head"),
    "head set back": (
        lambda e: Chain.objects.filter(cluster="c1").update(sequence=4, digest=e[3].digest),
        5,
        4,
        "chain_beyond_head",
    ),
    "head removed": (lambda e: Chain.objects.filter(cluster="c1").delete(), 1, 0, "chain_beyond_head"),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_inv_46_verify_finds_tampering_with_a_chain(
    chain: list[Entry], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper, place, index, code = TAMPERING[how]
    with unguarded():
        tamper(chain)
    rows = list(Entry.objects.filter(cluster="c1").order_by("pk").values_list("pk", flat=True))
    verdict = queries.verify("c1")
    assert (verdict.intact, verdict.broken_at) == (False, place)
    assert verdict.because is not None
    assert verdict.because.code == code
    part: queries.Position | queries.ChainCheck = queries.start("c1")
    while isinstance(part, queries.Position):
        part = queries.verify_part(part, most=1)
    assert part == verdict
    if index is None:
        assert verdict.row is None
    else:
        assert verdict.row == (rows[5] if index == 5 else chain[index].pk)

    with pytest.raises(CommandError, match="chains are broken"):
        call_command("ledger", "verify")
    assert f"c1: broken at entry {place}" in capsys.readouterr().out
    assert queries.verify("c2").intact


def test_verify_prints_the_number_of_entries(chain: list[Entry], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ledger", "verify")
    assert capsys.readouterr().out == "c1: 5 entries, intact\nc2: 1 entries, intact\n"


def test_a_long_chain_is_walked_in_pieces(now: datetime, django_assert_max_num_queries) -> None:
    """Rows come a thousand at a time: the walk asks once and never holds the chain."""
    for n in range(1200):
        services.record("c1", reported(f"{n}"), actor="system", now=now)
    with django_assert_max_num_queries(4):
        assert queries.verify("c1") == queries.ChainCheck("c1", 1200)


def test_entries_recorded_in_a_last_block_are_appended_in_order(now: datetime) -> None:
    with transaction.atomic(), services.last():
        for subject in ("a", "b"):
            services.record("c1", reported(subject), actor="system", now=now)
            with services.last():
                services.record("c2", reported(subject), actor="system", now=now)
        assert not Entry.objects.exists()
    assert list(Entry.objects.order_by("pk").values_list("cluster", "data__user")) == [
        ("c1", "a"),
        ("c1", "b"),
        ("c2", "a"),
        ("c2", "b"),
    ]
    assert queries.verify("c1").intact


def test_entries_recorded_in_a_last_block_are_rolled_back_with_it(now: datetime) -> None:
    def fail() -> None:
        with transaction.atomic(), services.last():
            services.record("c1", reported("a"), actor="system", now=now)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    services.record("c1", reported("b"), actor="system", now=now)
    assert list(Entry.objects.values_list("data__user", flat=True)) == ["b"]
