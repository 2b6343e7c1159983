"""The random walk of ``tests.invariants`` for many steps: ``make soak``, ``python -m bench.soak --steps 20000``.

Episodes are numbered. Each depends only on the seed and its number, so that any episode can be repeated:
``python -m bench.soak --seed S --episode N``. The state file records the progress, and the next run continues from
there. The first episode that breaks an invariant is shrunk, printed, and ends the run with status 1.
"""

import argparse
import contextlib
import gc
import json
import logging
import multiprocessing
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import django
from django.db import connection
from django.utils.module_loading import import_string

STEPS = 250  # per episode; longer episodes have more history but end less often
PROGRESS_INTERVAL_SECONDS = 10.0
GC_THRESHOLD = 50_000  # objects between collections: many are short-lived
STATE = Path("var/soak.json")

Failure = tuple[str, list[tuple[str, int]]] | None  # the error, and a minimal list of steps


def main() -> int:
    """Runs the episodes that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="in total, including earlier runs")
    parser.add_argument("--seed", help="default: the seed of the state file, or a new one")
    parser.add_argument("--episode", type=int, help="run only this episode")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, default=STATE)
    options = parser.parse_args()
    done = json.loads(options.state.read_text()) if options.state.exists() else {}
    seed = options.seed or done.get("seed") or secrets.token_hex(4)
    first, last = done.get("episodes", 0) if done.get("seed") == seed else 0, -(-options.steps // STEPS)
    if options.episode is not None:
        first, last = options.episode, options.episode + 1
    with tempfile.TemporaryDirectory(prefix="kcover-soak-") as folder:
        template = make_template(Path(folder))
        print(
            f"seed {seed}: episodes {first} to {last - 1} of {STEPS} steps, {options.processes} at a time", flush=True
        )
        return _walk(
            seed,
            range(first, last),
            template=template,
            processes=options.processes,
            state=options.state if options.episode is None else None,
        )


def _walk(seed: str, episodes: range, *, template: Path, processes: int, state: Path | None) -> int:
    """Runs the episodes in order; returns the exit status. ``state``: the file that records the progress."""
    started = reported = time.monotonic()
    spawn = multiprocessing.get_context("spawn")  # a process that has set up Django cannot change its database
    with spawn.Pool(processes, initializer=begin, initargs=(template,)) as pool:
        for number, failed in zip(episodes, pool.imap(play, ((seed, number) for number in episodes)), strict=True):
            if failed is not None:
                error, steps = failed
                print(f"seed {seed}, episode {number}: {error}\nsteps: {steps}", file=sys.stderr)
                print(f"repeat: python -m bench.soak --seed {seed} --episode {number}", file=sys.stderr)
                return 1
            if time.monotonic() - reported > PROGRESS_INTERVAL_SECONDS or number == episodes[-1]:
                reported = time.monotonic()
                print(f"{(number + 1) * STEPS} steps, {reported - started:.0f} s", flush=True)
                if state is not None:
                    _keep(state, {"seed": seed, "episodes": number + 1, "steps": (number + 1) * STEPS})
    print("every invariant held")
    return 0


def _keep(state: Path, content: dict[str, Any]) -> None:
    """Writes the state atomically, so that a run that is killed meanwhile can be resumed."""
    state.parent.mkdir(parents=True, exist_ok=True)
    fresh = state.with_suffix(".new")
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(state)


def _environment(database: Path) -> dict[str, str]:
    return {
        **os.environ,
        "KCOVER_DATABASE_URL": f"sqlite:///{database}",
        "DJANGO_SETTINGS_MODULE": "kcover_portal.settings",
    }


def make_template(folder: Path) -> Path:
    """Creates a migrated database without rows, and returns its file."""
    template = folder / "template.sqlite3"
    subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], env=_environment(template), check=True)
    return template


def begin(template: Path) -> None:
    """Creates the in-memory database of a process. Every episode is rolled back, so that it stays empty."""
    os.environ.update(_environment(template))
    django.setup()
    connection.settings_dict["NAME"] = ":memory:"
    connection.ensure_connection()
    with contextlib.closing(sqlite3.connect(template)) as migrated:
        migrated.backup(connection.connection)
    logging.disable(logging.CRITICAL)
    gc.freeze()  # imported objects stay and need not be scanned again
    gc.set_threshold(GC_THRESHOLD)


def play(episode: tuple[str, int]) -> Failure:
    """Runs the episode with this seed and number in a process that ``begin`` has prepared."""
    seed, number = episode
    found: tuple[str, list[tuple[str, int]]] | None = import_string("tests.invariants.walk.episode")(
        seed, number, STEPS
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
