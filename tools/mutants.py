"""Runs the mutants of the kernel, and prints those that survive its tests.

mutmut makes them, and learns which test meets which function; but it begins pytest anew for each, which takes far
longer than the tests that find it. Here the tests are collected once, and each mutant is a fork of that process: it
runs what meets its function, the fastest first. A function that a module calls while it is imported (a table of
readers, say) is never the mutant in a fork: what survives is tried once more, in a process of its own that runs every
test.

Run from the checkout as ``python tools/mutants.py [--workers N] [PATTERN ...]``. Results are kept where mutmut keeps
them: ``mutmut show`` knows them, and what was found is not run again until its function changes.
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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "mutants"
MUTMUT = Path(sys.executable).with_name("mutmut")
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
TESTS = ["-x", "-q", "--rootdir=.", *CONFIG["pytest_add_cli_args"], *CONFIG["pytest_add_cli_args_test_selection"]]
SURVIVED, KILLED, UNMET = 0, 1, 33  # as mutmut writes them; whatever else ended a mutant has found it
SECONDS = 300  # for all tests of the kernel in a process of its own; a mutant that takes longer is found
ONE = "kcover.waits.x_render__mutmut_1"  # mutmut makes all of them, whichever it is asked to run


class Results:
    """What became of the mutants that were asked for, in mutmut's files."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns or ["*"]
        self._files = {path: json.loads(path.read_text()) for path in sorted(MUTANTS.glob("kcover/**/*.meta"))}

    def codes(self) -> dict[str, dict[str, int | None]]:
        """Of each module, the exit status of each mutant; None where it was not run yet."""
        asked = {_module(path): self._asked(data["exit_code_by_key"]) for path, data in self._files.items()}
        return {module: codes for module, codes in asked.items() if codes}

    def keep(self, name: str, code: int) -> None:
        """Writes what became of one mutant."""
        for path, data in self._files.items():
            if name in data["exit_code_by_key"]:
                data["exit_code_by_key"][name] = code
                path.write_text(json.dumps(data, indent=4))

    def _asked(self, codes: Mapping[str, int | None]) -> dict[str, int | None]:
        return {name: code for name, code in codes.items() if any(fnmatch.fnmatch(name, one) for one in self._patterns)}


class Forks:
    """A plugin for pytest: instead of the tests, each mutant's tests in a fork of the process that collected them."""

    def __init__(self, results: Results, *, workers: int) -> None:
        stats = json.loads((MUTANTS / "mutmut-stats.json").read_text())
        self._tests: Mapping[str, list[str]] = stats["tests_by_mangled_function_name"]
        self._seconds: Mapping[str, float] = stats["duration_by_test"]
        self._results, self._workers = results, workers
        self._running: dict[int, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs every mutant that was not run yet."""
        if os.waitpid(_fork("", session.items, session, seconds=SECONDS), 0)[1]:
            pytest.exit("the tests fail without a mutant", returncode=2)
        items = {item.nodeid: item for item in session.items}
        for module, codes in self._results.codes().items():
            names = [name for name, code in codes.items() if code is None]
            print(f"{module}: {len(names)} to run", flush=True)
            for name in names:
                if len(self._running) == self._workers:
                    self._reap()
                self._start(name, items, session)
        while self._running:
            self._reap()
        return True

    def _start(self, name: str, items: Mapping[str, pytest.Item], session: pytest.Session) -> None:
        met = [test for test in self._tests.get(name.rpartition("__mutmut_")[0], ()) if test in items]
        met.sort(key=self._seconds.__getitem__)
        seconds = 3 + 3 * int(sum(self._seconds[test] for test in met))
        self._running[_fork(name, [items[test] for test in met], session, seconds=seconds)] = name

    def _reap(self) -> None:
        pid, status = os.wait()
        self._results.keep(self._running.pop(pid), os.waitstatus_to_exitcode(status))


def _fork(name: str, tests: Sequence[pytest.Item], session: pytest.Session, *, seconds: int) -> int:
    """The process that runs the tests on the mutant until one fails; it has so many seconds of a processor."""
    pid = os.fork()
    if pid:
        return pid
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
    set_mutant_under_test(name)
    for test, following in zip(tests, [*tests[1:], None], strict=False):
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.testsfailed or session.shouldfail or session.shouldstop:
            os._exit(KILLED)
    os._exit(SURVIVED)


def _left(results: Results) -> Iterable[str]:
    """The mutants that survive every test in a process of their own too."""
    for codes in results.codes().values():
        for name, code in codes.items():
            if code not in (SURVIVED, UNMET):
                continue
            if _alone(name) == SURVIVED:
                yield name
            else:
                results.keep(name, KILLED)


def _alone(name: str) -> int:
    command = [sys.executable, "-m", "pytest", *TESTS]
    environment = {**os.environ, "MUTANT_UNDER_TEST": name}
    try:
        return subprocess.run(command, cwd=MUTANTS, env=environment, capture_output=True, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return KILLED


def _module(meta: Path) -> str:
    return ".".join(meta.relative_to(MUTANTS).with_suffix("").with_suffix("").parts)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description="Runs the mutants of the kernel, and prints those that survive.")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help='of their names, "kcover.waits*" for example')
    parser.add_argument("--workers", type=int, default=1, help="how many run at once")
    return parser.parse_args()


def main() -> int:
    """The exit status is the number of mutants that survive, 100 at most."""
    arguments = _arguments()
    os.environ["CI"] = "1"  # Hypothesis has no deadline then: where the machine is slow it would find every mutant
    subprocess.run([MUTMUT, "run", "--max-children", "1", ONE], cwd=ROOT, check=True)
    results = Results(arguments.patterns)
    os.chdir(MUTANTS)
    sys.path.insert(0, str(MUTANTS))
    if status := pytest.main(["-s", *TESTS], plugins=[Forks(results, workers=arguments.workers)]):
        return int(status)
    left = set(_left(results))
    for name in sorted(left):
        subprocess.run([MUTMUT, "show", name], cwd=ROOT, check=True)
    for module, codes in results.codes().items():
        print(f"{module}: {len(codes)} mutants, {len(left & codes.keys())} survive")
    return min(len(left), 100)


if __name__ == "__main__":
    sys.exit(main())
