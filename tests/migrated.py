"""A migrated PostgreSQL database to copy: one run of the migrations for all workers and stories of a test run."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

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
            subprocess.run(
                [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
                cwd=ROOT,
                env={**os.environ, "KCOVER_DATABASE_URL": urlunsplit(urlsplit(base)._replace(path=f"/{UNFINISHED}"))},
                check=True,
                timeout=SECONDS,
            )
            connection.execute(f"ALTER DATABASE {UNFINISHED} RENAME TO {NAME}")
    return NAME
