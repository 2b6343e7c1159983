"""Run every check that is too long for the gate, one after the other, and print one summary: `make verify`.

``python tools/verify.py [PART ...]`` runs some parts. A red part does not stop the others. var/verify/PART.log has the
output of each part, and the tail of a red one is printed. The exit status is 1 if any part is red.
"""

import argparse
import dataclasses
import fnmatch
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "var" / "verify"
TAIL_LINES = 40
ASSETS = "KUBEBUILDER_ASSETS"
BASES = ("origin/main", "HEAD~1")  # the first that exists: what a change of the core is measured against
SOAK_STEPS = 100_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command. ``skipped``: why it does not run here; empty if it does."""

    name: str
    about: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skipped: str = ""


def parts() -> list[Part]:
    """All parts, the shortest first."""
    everything = {"TEST_SHARE": "all"}
    modules = changed_modules()
    no_server = "" if os.environ.get(ASSETS) else f"{ASSETS} names no folder with kube-apiserver and etcd"
    return [
        Part(
            name="apiserver",
            about="the contract suite and the stories on a real kube-apiserver",
            command=_make("test", "tests/contract tests/story/test_apiserver.py"),
            skipped=no_server,
        ),
        Part(
            name="walk",
            about="all episodes of the random walk, and a death at every boundary",
            command=_make("test", "tests/invariants"),
            environment=everything,
        ),
        Part(
            name="stories",
            about="every story on PostgreSQL and on SQLite",
            command=_make("test", "tests/story"),
            environment=everything,
        ),
        Part(
            name="postgres",
            about="every test of the portal on PostgreSQL, and every pair of the chart's features",
            command=_make("test", "tests/portal tests/contract/test_features.py"),
            environment=everything,
        ),
        Part(
            name="browser",
            about="every test of the console in Chromium, on every page",
            command=_make("test", "tests/browser"),
            environment=everything,
        ),
        Part(
            name="election",
            about="every call of the election struck by every failure",
            command=(sys.executable, "-m", "tests.servers", "--", sys.executable, "-m", "tests.crash.election"),
        ),
        Part(
            name="benchmarks",
            about="every measurement, at a small scale",
            command=_make("test", "tests/bench"),
            environment=everything,
        ),
        Part(
            name="mutants",
            about=f"mutants of {', '.join(modules)}",
            command=_make("mutants", " ".join(f"{module}.*" for module in modules)),
            skipped="" if modules else "no module of [tool.mutmut] has changed",
        ),
        Part(name="crash", about="every step hit by every failure", command=("make", "crash")),
        Part(name="outages", about="each process and server fails while two of each heal", command=("make", "outages")),
        Part(name="dates", about="the suite at other times", command=("make", "dates")),
        Part(
            name="soak",
            about=f"{SOAK_STEPS:,} steps of the random walk with a new seed",
            command=_make("soak", f"--steps {SOAK_STEPS} --state {LOGS / 'soak.json'}"),
        ),
    ]


def _make(target: str, arguments: str) -> tuple[str, ...]:
    return "make", target, f"ARGS={arguments}"


def changed_modules() -> list[str]:
    """The modules with mutants that differ from the first commit of ``BASES`` that exists."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    for base in BASES:
        found = subprocess.run(
            ["git", "diff", "--name-only", "--diff-filter=d", base],  # nosec B607
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode == 0:
            paths = [path for path in found.stdout.split() if _has_mutants(path, config["only_mutate"])]
            return [path.removesuffix(".py").replace("/", ".") for path in paths]
    return []


def _has_mutants(path: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """How a part ended, and after how many seconds."""

    part: Part
    verdict: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.verdict:<8} {self.seconds:7.0f} s  {self.part.name:<10} {self.part.skipped or self.part.about}"


def run(part: Part) -> Ended:
    """Runs a part and prints the end of its output if it is red."""
    if part.skipped:
        return Ended(part, "skipped")
    # The variables of the make that called this, such as ARGS, are not those of the parts.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "ARGS"))}
    log, began = LOGS / f"{part.name}.log", time.monotonic()
    print(f"== {part.name}: {part.about} ({log.relative_to(ROOT)})", flush=True)
    with log.open("w") as output:
        ended = subprocess.run(
            part.command,
            cwd=ROOT,
            env={**inherited, **part.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode:
        print("\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:]), flush=True)
    return Ended(part, "red" if ended.returncode else "green", time.monotonic() - began)


def main() -> int:
    """Runs the named parts, or all; returns the exit status."""
    known = {part.name: part for part in parts()}
    parser = argparse.ArgumentParser(prog="python tools/verify.py", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)}; default: all")
    names = parser.parse_args().parts or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown part {', '.join(unknown)}: write {', '.join(known)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "soak.json").unlink(missing_ok=True)
    ended = []
    for name in names:
        ended.append(run(known[name]))
        print(ended[-1], flush=True)
    print("\n".join(["", "verify:", *map(str, ended)]))
    return 1 if any(one.verdict == "red" for one in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
