"""Back up the database to one file, and restore it into an empty database.

PostgreSQL's own programs do the work (``pg_dump``, ``pg_restore``); SQLite copies itself. The file has everything that
the database has: encrypted secrets, without their key.
"""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from django.db import connection

# The libpq variable of each connection parameter. Arguments would be visible to other users of the machine.
LIBPQ_VARIABLES: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}
DUMP: Final = ("pg_dump", "--format=custom", "--no-owner", "--no-privileges")
SCRIPT: Final = ("pg_restore", "--no-owner", "--no-privileges")
RESTORE: Final = ("psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")
# Part of the restore itself: a worker that already waits for this database must never see it unpaused.
PAUSE: Final = (
    "UPDATE runtime_installation SET resumes_as = mode, mode = 'paused' WHERE mode <> 'paused'",
    "INSERT INTO runtime_installation (id, mode, resumes_as, reason, changed_by, decision_change)"
    " SELECT 1, 'paused', '', '', '', '' WHERE NOT EXISTS (SELECT 1 FROM runtime_installation)",
)
PRIVATE_MODE: Final = 0o600


class BackupError(Exception):
    """The backup or the restore failed; the message says why and what to do."""


def back_up(path: Path) -> int:
    """Writes the database to a new file that only this user can read. Returns its bytes. Raises BackupError."""
    draft = path.with_name(f".{path.name}.partial")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))
    except OSError as error:
        raise BackupError(f"{draft} cannot be created: {error.strerror}") from error
    try:
        if path.exists():
            raise BackupError(f"{path} exists; name a new file")
        if connection.vendor == "postgresql":
            _run([*DUMP, "--file", str(draft)])
        else:
            _copy(Path(connection.settings_dict["NAME"]), draft)
        _sync(draft)
        try:
            os.link(draft, path)
        except OSError as error:
            raise BackupError(f"{path} cannot be created: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return path.stat().st_size


def restore(path: Path) -> None:
    """Fills the empty database from a file of ``back_up``, paused: all of it or nothing. Raises BackupError."""
    if not path.is_file():
        raise BackupError(f"there is no file {path}")
    if tables := connection.introspection.table_names():
        raise BackupError(
            f"the database is not empty (it has {len(tables)} tables); create a new one and set KCOVER_DATABASE_URL"
        )
    connection.close()
    with tempfile.TemporaryDirectory(prefix="kcover-restore-") as folder:
        draft = Path(folder) / "draft"
        if connection.vendor == "postgresql":
            _run([*SCRIPT, "--file", str(draft), str(path)])
            _check_restricted(draft)
            commands = ("RESET search_path", *PAUSE)  # the script of a dump empties it
            _run([*RESTORE, "--file", str(draft), *(f"--command={command}" for command in commands)])
        else:
            _copy(path, draft)
            _pause(draft)
            _copy(draft, Path(connection.settings_dict["NAME"]))


def _parameters() -> Mapping[str, Any]:
    return connection.get_connection_params()


def _run(command: list[str]) -> None:
    """Runs a program of PostgreSQL. Raises BackupError with its error."""
    program = shutil.which(command[0])
    if program is None:
        raise BackupError(f"there is no {command[0]}; install the client of PostgreSQL (Debian: postgresql-client)")
    parameters = _parameters()
    variables = {LIBPQ_VARIABLES[name]: str(value) for name, value in parameters.items() if name in LIBPQ_VARIABLES}
    done = subprocess.run(
        [program, *command[1:]], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise BackupError(f"{command[0]} failed: {next((line for line in lines if 'rror:' in line), lines[-1])}")


def _check_restricted(script: Path) -> None:
    r"""Raises BackupError if psql would obey its commands in the script: ``\!`` in an altered backup runs a program.

    The line comes from pg_restore since the releases of August 2025, and psql refuses it before them.
    """
    with script.open("rb") as file:
        head = file.read(4096)
    if b"\n\\restrict " not in head:
        raise BackupError(
            "pg_restore is too old: an altered backup could run programs on this machine;"
            " install the client of PostgreSQL 13.22, 14.19, 15.14, 16.10, 17.6, 18 or later"
        )


def _copy(source: Path, target: Path) -> None:
    """Copies a SQLite database as of one moment, while others may write."""
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be copied: {error}") from error


def _pause(database: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as draft, draft:
            for statement in PAUSE:
                draft.execute(statement)
    except sqlite3.Error as error:
        raise BackupError(f"the backup has no table of the portal's mode: {error}") from error


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
