"""A backup and its restore, rehearsed: the same state, paused, and nothing is done twice."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kcover_portal.fleet import services as fleet
from kcover_portal.ledger import queries as ledger
from kcover_portal.operate import backups
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.models import Installation
from tests import migrated
from tests.portal.rescue.world import NODE, World

ROOT = Path(__file__).parents[3]
on_postgresql = pytest.mark.postgres(reason="SQLite's test database has no file")


@contextmanager
def empty_database() -> Iterator[None]:
    """A new database on the same server, which the portal uses meanwhile."""
    used = connection.settings_dict["NAME"]
    name = f"{used}_restored"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = used
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@on_postgresql
@pytest.mark.django_db(transaction=True)
def test_a_restored_portal_is_paused_and_repeats_no_call(tmp_path: Path) -> None:
    world = World()
    try:
        world.fault(62)
        fleet.resume(
            cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="enforce"
        )  # begins the chain
        call_command("database", "backup", str(tmp_path / "night.dump"))
        heads = ledger.heads()
        world.work()  # lost with the old database
        node = world.kube.get_node(NODE)
        assert node.unschedulable
        with empty_database():
            call_command("database", "restore", str(tmp_path / "night.dump"))
            assert [head for head in ledger.heads() if head[0]] == [head for head in heads if head[0]]
            assert Installation.objects.get().mode == "paused"
            writes = len(world.kube.writes)
            world.work()
            assert len(world.kube.writes) == writes
            fleet.resume(cluster=None, reason="looked", actor="user:ann", now=world.now)
            world.sync()
            world.work()
            # The node carries marks of a rescue that this database does not know: a person has to release it.
            assert len(world.kube.writes) == writes
            assert world.node().marks["rescue"]
            assert not Rescue.objects.exists()
            with pytest.raises(CommandError, match="not empty"):
                call_command("database", "restore", str(tmp_path / "night.dump"))
    finally:
        world.uninstall()


@on_postgresql
@pytest.mark.django_db(transaction=True)
def test_a_damaged_backup_leaves_the_database_empty(tmp_path: Path) -> None:
    path = tmp_path / "night.dump"
    backups.back_up(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(backups.BackupError, match="exists"):
        backups.back_up(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with empty_database():
        with pytest.raises(backups.BackupError, match="pg_restore failed"):
            backups.restore(path)
        assert connection.introspection.table_names() == []


def test_sqlite_is_copied_while_it_is_used(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    def manage(database: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KCOVER_DATABASE_URL": f"sqlite:///{tmp_path / database}"}
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)

    shutil.copyfile(migrated.sqlite_file(tmp_path_factory), tmp_path / "old.sqlite3")
    assert manage("old.sqlite3", "database", "backup", "copy.sqlite3").returncode == 0
    restored = manage("new.sqlite3", "database", "restore", "copy.sqlite3")
    assert restored.returncode == 0, restored.stderr
    assert "paused" in restored.stdout
    assert "not empty" in manage("new.sqlite3", "database", "restore", "copy.sqlite3").stderr


@pytest.mark.django_db(transaction=True)
@on_postgresql
@pytest.mark.parametrize("known", [True, False], ids=["with a mode", "without one"])
def test_a_database_is_paused_from_the_moment_of_its_restore(tmp_path: Path, known: bool) -> None:
    """Before migrations run: a worker may wait for this database."""
    if known:
        Installation.objects.update_or_create(pk=1, defaults={"mode": "shadow"})
    else:
        Installation.objects.all().delete()
    backups.back_up(tmp_path / "night.dump")
    with empty_database():
        backups.restore(tmp_path / "night.dump")
        restored = Installation.objects.get()
        assert (restored.mode, restored.resumes_as) == ("paused", "shadow" if known else "")


@pytest.mark.django_db(transaction=True)
@on_postgresql
def test_a_backup_runs_no_program_with_an_old_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old pg_restore writes a script in which psql obeys ``\\!``; here the script of an altered backup."""
    old, ran = tmp_path / "pg_restore", tmp_path / "ran"
    script = f"--\n-- PostgreSQL database dump\n--\n\n\\! touch {ran}\n"
    old.write_text(
        f"#!{sys.executable}\nimport sys\nopen(sys.argv[sys.argv.index('--file') + 1], 'w').write({script!r})\n"
    )
    old.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "night.dump").write_bytes(b"")
    with empty_database(), pytest.raises(backups.BackupError, match="too old"):
        backups.restore(tmp_path / "night.dump")
    assert not ran.exists()


def test_a_copy_of_sqlite_is_paused_before_it_is_put_in_place(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "draft") as draft:
        draft.execute(
            "CREATE TABLE runtime_installation"
            " (id INTEGER PRIMARY KEY, mode TEXT, resumes_as TEXT, reason TEXT, changed_by TEXT, decision_change TEXT)"
        )
        draft.execute("INSERT INTO runtime_installation (id, mode, resumes_as) VALUES (1, 'enforce', '')")
    draft.close()
    backups._pause(tmp_path / "draft")
    with closing(sqlite3.connect(tmp_path / "draft")) as draft:
        assert draft.execute("SELECT mode, resumes_as FROM runtime_installation").fetchall() == [("paused", "enforce")]
