"""Run the mutants of the core, and print those that survive its tests.

mutmut creates the mutants and records which tests call which function. But it starts pytest again for each mutant,
which takes far longer than the tests themselves. Here the tests are collected once, and each mutant runs in a fork of
that process, which runs the tests that call its function, the fastest first. A function that a module calls at import
time (to build a table, for example) is never mutated in a fork. So survivors in such functions are run once more, each
in a separate process with every test.

Run from the checkout as ``python tools/mutants.py [--workers N] [PATTERN ...]``. Results are stored in mutmut's files,
so that ``mutmut show`` works. A mutant is not run again until its function changes.
"""

import argparse
import fnmatch
import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "mutants"
MUTMUT = Path(sys.executable).with_name("mutmut")
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
TESTS = ["-x", "-q", "--rootdir=.", *CONFIG["pytest_add_cli_args"], *CONFIG["pytest_add_cli_args_test_selection"]]
SURVIVED, KILLED, NO_TESTS = 0, 1, 33  # mutmut's exit codes; any other code means that the mutant was killed
TIMEOUT_SECONDS = 300  # for all tests in a separate process; a mutant that takes longer is killed
ANY_MUTANT = "kcover.values.durations.x_render__mutmut_1"  # mutmut creates all mutants, whichever it runs
CALLS = MUTANTS / "mutmut-stats.json"  # mutmut's record of the tests that call each function
RECORD_CALLS = "stats"  # instead of a mutant: mutmut records which functions are called


class Results:
    """The results of the selected mutants, in mutmut's files."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns or ["*"]
        self._files = {path: json.loads(path.read_text()) for path in sorted(MUTANTS.glob("kcover/**/*.meta"))}

    def codes(self) -> dict[str, dict[str, int | None]]:
        """The exit status of each mutant by module; None if it was not run yet."""
        selected = {_module(path): self._selected(data["exit_code_by_key"]) for path, data in self._files.items()}
        return {module: codes for module, codes in selected.items() if codes}

    def store(self, name: str, code: int) -> None:
        """Stores the exit status of one mutant."""
        for path, data in self._files.items():
            if name in data["exit_code_by_key"]:
                data["exit_code_by_key"][name] = code
                fresh = path.with_suffix(".new")
                fresh.write_text(json.dumps(data, indent=4))
                fresh.replace(path)  # at once: whoever stops the run loses no result

    def _selected(self, codes: Mapping[str, int | None]) -> dict[str, int | None]:
        return {
            name: code
            for name, code in codes.items()
            if any(fnmatch.fnmatch(name, pattern) for pattern in self._patterns)
        }


class Forks:
    """A pytest plugin that runs the tests of each mutant in a fork of the process that collected them."""

    def __init__(self, results: Results, *, workers: int) -> None:
        stats = json.loads(CALLS.read_text())
        self._tests: Mapping[str, list[str]] = stats["tests_by_mangled_function_name"]
        self._seconds: Mapping[str, float] = stats["duration_by_test"]
        self._results, self._workers = results, workers
        self._running: dict[int, str] = {}
        self.called_at_import: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs every mutant that is not known to be killed."""
        self.called_at_import = set(state()._stats)  # mutmut has no public name for it
        set_mutant_under_test("")
        if os.waitpid(_fork("", session.items, session, seconds=TIMEOUT_SECONDS), 0)[1]:
            pytest.exit("the tests fail without a mutant", returncode=2)
        items = {item.nodeid: item for item in session.items}
        for module, codes in self._results.codes().items():
            names = [name for name, code in codes.items() if code in (None, SURVIVED, NO_TESTS)]
            print(f"{module}: {len(names)} to run", flush=True)
            for name in names:
                if len(self._running) == self._workers:
                    self._reap()
                self._start(name, items, session)
        while self._running:
            self._reap()
        return True

    def _start(self, name: str, items: Mapping[str, pytest.Item], session: pytest.Session) -> None:
        tests = [test for test in self._tests.get(_function(name), ()) if test in items]
        tests.sort(key=self._seconds.__getitem__)
        seconds = 3 + 3 * int(sum(self._seconds[test] for test in tests))
        self._running[_fork(name, [items[test] for test in tests], session, seconds=seconds)] = name

    def _reap(self) -> None:
        pid, status = os.wait()
        self._results.store(self._running.pop(pid), os.waitstatus_to_exitcode(status))


def _fork(name: str, tests: Sequence[pytest.Item], session: pytest.Session, *, seconds: int) -> int:
    """Forks a process that runs the tests on the mutant until one fails, limited to ``seconds`` of CPU time."""
    pid = os.fork()
    if pid:
        return pid
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.dup2(devnull, sys.stderr.fileno())
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
    set_mutant_under_test(name)
    for test, following in zip(tests, [*tests[1:], None], strict=False):
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.testsfailed or session.shouldfail or session.shouldstop:
            os._exit(KILLED)
    os._exit(SURVIVED)


def _survivors(results: Results, *, called_at_import: Set[str]) -> Iterable[str]:
    """The mutants that survive, in functions ``called_at_import`` also every test in a separate process."""
    for codes in results.codes().values():
        for name, code in codes.items():
            if code not in (SURVIVED, NO_TESTS):
                continue
            if _function(name) not in called_at_import or _run_separately(name) == SURVIVED:
                yield name
            else:
                results.store(name, KILLED)


def _run_separately(name: str) -> int:
    command = [sys.executable, "-m", "pytest", *TESTS]
    environment = {**os.environ, "MUTANT_UNDER_TEST": name}
    try:
        return subprocess.run(
            command, cwd=MUTANTS, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        return KILLED


def _remove_old_calls() -> None:
    """Makes mutmut record the calls again. By itself it records those of new tests, but not those of new functions."""
    sources = [path for folder in ("kcover", "tests/kcover") for path in (ROOT / folder).rglob("*.py")]
    if CALLS.exists() and max(path.stat().st_mtime for path in sources) > CALLS.stat().st_mtime:
        CALLS.unlink()


def _function(mutant: str) -> str:
    return mutant.rpartition("__mutmut_")[0]


def _module(meta: Path) -> str:
    return ".".join(meta.relative_to(MUTANTS).with_suffix("").with_suffix("").parts)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description="Runs the mutants of the core, and prints those that survive.")
    parser.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help='such as "kcover.values.durations*"; default: all',
    )
    parser.add_argument("--workers", type=int, default=1, help="how many mutants run at the same time")
    return parser.parse_args()


def main() -> int:
    """The exit status is the number of mutants that survive, 100 at most."""
    arguments = _arguments()
    os.environ["CI"] = "1"  # turns off Hypothesis' deadline, which would kill every mutant on a slow machine
    _remove_old_calls()
    subprocess.run([MUTMUT, "run", "--max-children", "1", ANY_MUTANT], cwd=ROOT, check=True)
    results = Results(arguments.patterns)
    os.chdir(MUTANTS)
    sys.path.insert(0, str(MUTANTS))
    forks = Forks(results, workers=arguments.workers)
    set_mutant_under_test(RECORD_CALLS)
    if status := pytest.main(["-s", *TESTS], plugins=[forks]):
        return int(status)
    survivors = set(_survivors(results, called_at_import=forks.called_at_import))
    for name in sorted(survivors):
        subprocess.run([MUTMUT, "show", name], cwd=ROOT, check=True)
    for module, codes in results.codes().items():
        print(f"{module}: {len(codes)} mutants, {len(survivors & codes.keys())} survive")
    return min(len(survivors), 100)


if __name__ == "__main__":
    sys.exit(main())
