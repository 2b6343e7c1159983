"""Start-up: an invalid setting stops every program with a one-line error, and the portal's files are private."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODE = "KCOVER_MODE is invalid; it accepts paused, shadow, approve or enforce"


def run(*words: str, folder: Path = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    """A program with these settings and no others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KCOVER_")}
    environment |= {"DJANGO_SETTINGS_MODULE": "kcover_portal.settings", "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("manage.py", "migrate"),
        ("manage.py", "nonsense"),
        ("-m", "celery", "-A", "kcover_portal", "worker"),
        ("-m", "uvicorn", "--port", "0", "kcover_portal.asgi:application"),
        ("-m", "kcover_portal.operate.web_server", "--port", "0"),
    ],
    ids=lambda words: words[1],
)
def test_an_invalid_setting_ends_every_program_with_one_line(words: tuple[str, ...]) -> None:
    ended = run(*words, KCOVER_MODE="yolo")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"kcover portal: {MODE}\n")


def test_a_folder_that_cannot_be_created_is_an_error_of_one_line() -> None:
    ended = run("manage.py", "check", KCOVER_DATABASE_URL="sqlite:////proc/kcover/db.sqlite3")
    assert ended.returncode == 2
    assert ended.stderr.startswith("kcover portal: KCOVER_DATABASE_URL: cannot create /proc/kcover/db.sqlite3: ")
    assert ended.stderr.count("\n") == 1


OPEN = """
import os
os.umask(0o022)
import django
django.setup()
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE t (x)")
    folder = os.path.dirname(connection.settings_dict["NAME"])
    for one in sorted(os.scandir(folder), key=lambda one: one.name):
        print(one.name, oct(one.stat().st_mode)[-3:])
"""


def test_the_database_and_its_folder_are_the_portals_own(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "kcover"
    done = run("-c", OPEN, KCOVER_DATABASE_URL=f"sqlite:///{folder}/db.sqlite3")
    assert done.stdout.splitlines() == ["db.sqlite3 600", "db.sqlite3-shm 600", "db.sqlite3-wal 600"], done.stderr
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)


def test_a_database_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite3"
    path.touch()
    path.chmod(0o640)
    assert run("manage.py", "check", KCOVER_DATABASE_URL=f"sqlite:///{path}").returncode == 0
    assert mode(path) == 0o640


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
