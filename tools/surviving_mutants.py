"""Tries the mutants that mutmut let survive once more, each in a process of its own; prints those that still do.

mutmut forks from a process that has imported everything: a function that a module calls while it is imported (a table
of readers, say) is never the mutant there, and always survives. Run from the checkout, after ``mutmut run``.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "mutants"
SECONDS = 300  # for the tests of the kernel; a mutant that takes longer is found


def main() -> int:
    """The exit status is the number of mutants that survive, 100 at most."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--rootdir=.", *config["pytest_add_cli_args"]]
    command += config["pytest_add_cli_args_test_selection"]
    left = [name for name in _survivors() if _survives(name, command)]
    for name in left:
        print(_mutmut("show", name), flush=True)
    print(f"{len(left)} survive")
    return min(len(left), 100)


def _survivors() -> list[str]:
    lines = (line.strip().partition(": ") for line in _mutmut("results").splitlines())
    return [name for name, _, status in lines if status in ("survived", "no tests")]


def _survives(name: str, command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command, cwd=MUTANTS, env={**os.environ, "MUTANT_UNDER_TEST": name}, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _mutmut(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
