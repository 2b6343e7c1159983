"""Migrated databases to copy: one run of the migrations for all workers and stories of a test run."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests import servers

ROOT = Path(__file__).resolve().parents[1]
NAME = "migrated"
UNFINISHED = "migrating"
LOCK = 0x6D696772617465  # "migrate" as a number: the key of an advisory lock
SECONDS = 240


def template() -> str:
    """Returns the name of a database with all tables and no rows, for ``CREATE DATABASE … TEMPLATE``.

    It is on the server of KCOVER_DATABASE_URL. The first caller makes it; other workers wait for that.
    """
    base = os.environ["KCOVER_DATABASE_URL"]
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])  # until the connection is closed
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone():
            connection.execute(f"DROP DATABASE IF EXISTS {UNFINISHED}")
            connection.execute(f"CREATE DATABASE {UNFINISHED}")
            _migrate(urlunsplit(urlsplit(base)._replace(path=f"/{UNFINISHED}")))
            connection.execute(f"ALTER DATABASE {UNFINISHED} RENAME TO {NAME}")
    return NAME


def copy_to(database: str) -> None:
    """Copies what is in ``template`` into an empty database of any server."""
    source = urlunsplit(urlsplit(os.environ["KCOVER_DATABASE_URL"])._replace(path=f"/{template()}"))
    programs = servers.postgres_bin()
    dumped = subprocess.run([programs / "pg_dump", "--no-owner", source], stdout=subprocess.PIPE, check=True)
    restore = [programs / "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", database]
    subprocess.run(restore, input=dumped.stdout, stdout=subprocess.DEVNULL, check=True)


def sqlite_file(folders: pytest.TempPathFactory) -> Path:
    """Returns an SQLite file with all tables and no rows, to copy. The first caller of a test run makes it."""
    ours = folders.getbasetemp()
    shared = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    file, fresh = shared / f"{NAME}.sqlite3", shared / f"{UNFINISHED}.sqlite3"
    with (shared / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _migrate(f"sqlite:///{fresh}")
            fresh.replace(file)
    return file


def _migrate(database: str) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env={**os.environ, "KCOVER_DATABASE_URL": database},
        check=True,
        timeout=SECONDS,
    )
