"""How the tests themselves are run: `make unit` without Django, `make test ARGS=...` with only the servers it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

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
        ("tests/browser", {"chromium"}),
        ("tests/browser tests/story", {"chromium", "postgres", "redis"}),
        ("tests/a_new_folder/test_x.py", needs.ALL),
        ("--ignore tests/browser", needs.ALL),
        ("--ignore tests/portal/api tests/portal/fleet", {"postgres"}),
        ("--deselect=tests/kcover/test_plan.py", needs.ALL),
    ],
)
def test_only_what_the_chosen_tests_need_is_started(arguments, wanted):
    assert needs.needed(arguments.split()) == wanted


def test_every_folder_says_what_it_needs():
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
