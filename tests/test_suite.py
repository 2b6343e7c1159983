"""How the tests are run: `make unit` without Django, `make test ARGS=...` with only the servers it needs, red tests
twice, the longest tests by shares, and all of them at other times."""

import ast
import math
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import databases, moved_clock, needs, share
from tests.story import turns

TESTS = Path(__file__).parent
UNIT = [TESTS / "conftest.py", *(TESTS / "kcover").rglob("*.py"), *(TESTS / "agents").rglob("*.py")]


def imported(path):
    """The modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def reached(paths):
    """The files, and the files of tests/ that they import, directly or through others."""
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            files = [TESTS.parent / f"{name.replace('.', '/')}.py" for name in imported(path)]
            waiting += [file for file in files if file.is_relative_to(TESTS) and file.exists()]
    return found


def test_unit_tests_import_no_django():
    beyond = ("django", "rest_framework", "kcover_portal", "tests.portal", "tests.servers", "tests.story")
    found = [(path.name, name) for path in reached(UNIT) for name in imported(path) if name.startswith(beyond)]
    assert found == []


def test_core_tests_use_no_fixture_of_conftest():
    """Mutants run with --noconftest."""
    found = []
    for path in (TESTS / "kcover").rglob("test_*.py"):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        own = {function.name for function in functions}
        found += [
            (path.name, function.name)
            for function in functions
            if function.name.startswith("test_") and "now" not in own and _has_argument(function, "now")
        ]
    assert found == []


def _has_argument(function, name):
    decorated = any("now" in ast.unparse(decorator) for decorator in function.decorator_list)
    return not decorated and name in {argument.arg for argument in function.args.args}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", needs.ALL),
        ("-x -k storm", needs.ALL),
        ("tests", needs.ALL),
        ("tests/ -x", needs.ALL),
        ("tests/kcover -x", needs.NOTHING),
        ("./tests/kcover", needs.NOTHING),
        ("-x tests/agents/test_spool.py::test_order tests/kcover", needs.NOTHING),
        ("tests/test_packaging.py", needs.NOTHING),
        ("tests/test_suite.py", {"postgres", "redis"}),
        ("tests/portal/rescue", {"postgres"}),
        ("tests/portal/rescue/test_refusing.py::test_a[b-tests/story]", {"postgres"}),
        ("tests/kcover tests/portal/rescue", {"postgres"}),
        ("tests/portal", {"postgres", "prometheus", "redis"}),
        ("tests/portal/sources", {"postgres", "prometheus"}),
        ("tests/portal/test_broker.py", {"postgres", "redis"}),
        ("tests/bench", {"postgres", "redis"}),
        ("tests/browser", {"chromium"}),
        ("tests/browser tests/story", {"chromium", "postgres", "redis"}),
        ("tests/a_new_folder/test_x.py", needs.ALL),
        ("--ignore tests/browser", needs.ALL),
        ("--ignore tests/portal/api tests/portal/fleet", {"postgres"}),
        ("--deselect=tests/kcover/test_plan.py", needs.ALL),
    ],
)
def test_only_services_needed_by_the_chosen_tests_are_started(arguments, wanted):
    assert needs.needed(arguments.split()) == wanted


def test_every_folder_declares_its_needs():
    folders = {f"tests/{path.parent.name}" for path in TESTS.glob("*/*.py")}
    assert folders <= needs.NEEDS.keys()
    assert all((TESTS.parent / place).exists() for place in needs.NEEDS)


def test_needs_run_without_the_virtual_environment():
    assert set(imported(TESTS / "needs.py")) == {"sys", "collections.abc", "pathlib"}


@pytest.mark.parametrize("start", ["", "postgres", "redis", "postgres redis"])
def test_servers_starts_the_named_ones(start, monkeypatch):
    monkeypatch.setenv("KCOVER_REDIS_URL", "redis://of.the.caller/0")
    code = (
        "import os; print(*sorted(name for name in os.environ if name in ('KCOVER_DATABASE_URL', 'KCOVER_REDIS_URL')))"
    )
    program = ["-m", "tests.servers", "--start", start, "--", sys.executable, "-c", code]
    ended = subprocess.run([sys.executable, *program], cwd=TESTS.parent, capture_output=True, text=True, check=True)
    addresses = {"postgres": "KCOVER_DATABASE_URL", "redis": "KCOVER_REDIS_URL"}
    assert ended.stdout.split() == [addresses[name] for name in start.split()]


def run_pytest(folder, *arguments, **environment):
    """Runs the tests of a folder that has its own configuration, with xdist and plug-ins of this one."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = real_clock(reason): the true clock\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# Fails as often as it is told, each time in a process of its own.
SOMETIMES = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({count}))
def test_sometimes(number):
    seen = pathlib.Path(f"seen-{{number}}")
    before = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("." * (before + 1))
    assert before >= {failures}

def test_always():
    pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("count", "failures", "status"),
    [(1, 1, 0), (3, 1, 0), (4, 1, 1), (1, 2, 1), (1, 0, 0)],
    ids=["passes alone", "three pass alone", "too many", "fails again", "nothing red"],
)
def test_red_tests_are_repeated_once_alone(tmp_path, workers, count, failures, status):
    (tmp_path / "test_flaky.py").write_text(SOMETIMES.format(count=count, failures=failures))
    ended = run_pytest(tmp_path, "-p", "tests.repeat_red", "-n", workers)
    assert ended.returncode == status, ended.stdout
    named = [line for line in ended.stdout.splitlines() if line.startswith("FLAKY: ")]
    flaky = count if failures and not status else 0
    assert sorted(named) == [f"FLAKY: test_flaky.py::test_sometimes[{number}]" for number in range(flaky)]
    runs = [len((tmp_path / f"seen-{number}").read_text()) for number in range(count)]
    assert runs == [2 if failures and count <= 3 else 1] * count


def test_a_run_that_stops_at_the_first_failure_repeats_no_test(tmp_path):
    (tmp_path / "test_flaky.py").write_text(SOMETIMES.format(count=1, failures=1))
    assert run_pytest(tmp_path, "-p", "tests.repeat_red", "-x").returncode == 1


@pytest.mark.parametrize("shares", [2, 4])
def test_each_number_is_in_exactly_one_share(shares, monkeypatch):
    found = []
    for chosen in range(shares):
        monkeypatch.setenv(share.VARIABLE, str(chosen))
        found += [number for number in range(10) if share.in_share(number, shares=shares)]
    assert sorted(found) == list(range(10))
    monkeypatch.setenv(share.VARIABLE, share.ALL)
    assert all(share.in_share(number, shares=shares) for number in range(10))
    monkeypatch.setenv(share.VARIABLE, "half")
    with pytest.raises(ValueError, match="TEST_SHARE=half"):
        share.in_share(0, shares=shares)


def test_a_run_without_a_choice_has_the_share_of_its_commit(monkeypatch):
    monkeypatch.delenv(share.VARIABLE, raising=False)
    assert sum(share.in_share(number, shares=4) for number in range(4)) == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("+40d", datetime(2026, 3, 12, 1, 30, tzinfo=UTC)),
        ("2028-02-29T23:58", datetime(2028, 2, 29, 23, 58, tzinfo=UTC)),
    ],
)
def test_a_run_is_moved_to_the_named_time(text, wanted):
    assert moved_clock.moved_to(text, now=datetime(2026, 1, 31, 1, 30, tzinfo=UTC)) == wanted


@pytest.mark.parametrize("text", ["", "tomorrow", "40d", "+40"])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(ValueError, match="TEST_CLOCK="):
        moved_clock.moved_to(text, now=datetime(2026, 1, 31, tzinfo=UTC))


AT_ANOTHER_TIME = """
import datetime, time, pytest

def test_it_is_another_year():
    assert datetime.datetime.now(datetime.UTC).year == time.gmtime().tm_year == 2028

@pytest.mark.real_clock("left out")
def test_needs_the_true_clock():
    raise AssertionError
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_every_process_of_the_tests_is_at_the_other_time(tmp_path, workers):
    (tmp_path / "test_year.py").write_text(AT_ANOTHER_TIME)
    ended = run_pytest(tmp_path, "-p", "tests.moved_clock", "-n", workers, TEST_CLOCK="2028-02-29T23:58")
    assert ended.returncode == 0, ended.stdout


FILES_OF_ALL_KINDS = (
    *("tests/kcover/test_plan.py", "tests/agents/test_spool.py", "tests/invariants/test_inv_crash.py"),
    *("tests/portal/api/test_concurrency.py", "tests/portal/api/test_garbage.py", "tests/portal/console/test_needs.py"),
    *("tests/portal/jobs/test_orders.py", "tests/portal/ledger/test_replay.py", "tests/portal/notify/test_steps.py"),
    *("tests/portal/operate/test_migrate.py", "tests/portal/rescue/test_engine.py", "tests/browser/"),
)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("chosen", ["0", "1", "2", "all"])
def test_each_scope_goes_to_one_worker_with_its_database(split, chosen, monkeypatch):
    monkeypatch.setenv(share.VARIABLE, chosen)
    databases.of_file.cache_clear()
    queues = databases.Queues(FILES_OF_ALL_KINDS, split=split)
    given = {worker: list(iter(lambda worker=worker: queues.next_for(worker), None)) for worker in ("gw0", "gw1")}
    databases.of_file.cache_clear()
    assert sorted(given["gw0"] + given["gw1"]) == sorted(FILES_OF_ALL_KINDS)
    if split:
        marked = {"tests/portal/operate/test_migrate.py", "tests/portal/api/test_concurrency.py"}
        assert marked | {"tests/invariants/test_inv_crash.py"} <= set(given["gw0"])
    else:
        assert given["gw1"] == []


def test_a_test_that_needs_postgresql_is_marked():
    """A skip by the database's vendor would leave its file where it is skipped, and a bare mark has no reason."""
    by_vendor = re.compile(
        r"skipif\([^\n]*vendor|vendor (!=|==)[^\n]*:\n +pytest\.skip\(\"SQLite|mark\.postgres(?!\(reason=)"
    )
    files = [path for folder in ("portal", "invariants") for path in (TESTS / folder).rglob("test_*.py")]
    assert [path.name for path in files if by_vendor.search(path.read_text(encoding="utf-8"))] == []


def test_each_share_of_a_files_tests_is_on_each_database_in_some_run():
    for number in (databases.OTHER_SHARES, *databases.SHARES.values()):
        assert math.gcd(number, 8) == 1  # shares of tests are 2, 4 or 8, and the same commit chooses both


def test_with_all_shares_all_workers_have_postgresql(monkeypatch):
    monkeypatch.setenv(databases.SPLIT, "yes")
    monkeypatch.setenv(databases.DATABASE, "postgres://tests@localhost/tests")
    monkeypatch.setenv(share.VARIABLE, "3")
    assert databases.are_split()
    monkeypatch.setenv(share.VARIABLE, share.ALL)
    assert not databases.are_split()


@pytest.mark.parametrize("database", [databases.POSTGRES, databases.SQLITE])
def test_a_red_test_is_repeated_on_its_database(database, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv(share.VARIABLE, raising=False)
    monkeypatch.setenv(databases.SPLIT, "yes")
    monkeypatch.setenv(databases.DATABASE, "postgres://tests@localhost/tests")
    monkeypatch.setenv(databases.REPEATED_ON, database)
    with databases.settings_read_it():
        assert (databases.DATABASE in os.environ) == (database == databases.POSTGRES)
    assert databases.DATABASE in os.environ


def test_each_file_of_the_portal_is_on_postgresql_in_some_share(monkeypatch):
    folders = (TESTS / "portal", TESTS / "invariants")
    files = [str(path.relative_to(TESTS.parent)) for folder in folders for path in folder.rglob("test_*.py")]
    found = set()
    for chosen in range(math.lcm(databases.OTHER_SHARES, *databases.SHARES.values())):
        monkeypatch.setenv(share.VARIABLE, str(chosen))
        databases.of_file.cache_clear()
        found |= {file for file in files if databases.of_file(file) == databases.POSTGRES}
    databases.of_file.cache_clear()
    assert found == set(files)


def test_each_story_is_in_one_turn_in_each_place(monkeypatch):
    files = [path.name for path in (TESTS / "story").rglob("test_*.py")]
    listed = [file for turn in turns.TURNS for file in turn]
    always = set(files) - set(listed)
    assert len(listed) == len(set(listed))
    assert always == {"test_serve.py", "test_walkthroughs.py"}
    shares = range(len(turns.TURNS) * len(turns.PLACES))
    found = Counter()
    for chosen in shares:
        monkeypatch.setenv(share.VARIABLE, str(chosen))
        places = [None, *turns.PLACES]
        found.update((file, place) for file in files for place in places if turns.in_turn(file, place, whole=True))
        assert all(sum(turns.in_turn(file, place, whole=False) for place in turns.PLACES) == 1 for file in files)
    for file in files:
        runs = len(shares) if file in always else len(turns.PLACES)
        without = runs // 2 if file in turns.ALTERNATE else runs
        assert [found[file, place] for place in places] == [without, runs // 2, runs // 2]
