"""The random walk of ``tests.invariants`` for as long as wanted: ``make soak``, ``python -m bench.soak --steps 20000``.

Episodes are numbered; each is made from the seed and its number alone, so that any of them can be played again:
``python -m bench.soak --seed S --episode N``. What was walked is kept in the state file, and the next run goes on from
there. The first episode that breaks an invariant is made as short as it gets, printed, and ends the run with status 1.
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

STEPS = 250  # of an episode; a longer one meets more of its own past, and ends less often
SAID_EVERY = 10.0  # seconds
GARBAGE = 50_000  # objects, between two looks for cycles: many short-lived ones are made
STATE = Path("var/soak.json")

Failure = tuple[str, list[tuple[str, int]]] | None  # what broke, and the fewest steps that break something


def main() -> int:
    """Reads the command line and walks; the exit status."""
    read = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    read.add_argument("--steps", type=int, default=1_000_000, help="in all, those of earlier runs included")
    read.add_argument("--seed", help="default: the state file's, else a new one")
    read.add_argument("--episode", type=int, help="play this one only")
    read.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    read.add_argument("--state", type=Path, default=STATE)
    asked = read.parse_args()
    done = json.loads(asked.state.read_text()) if asked.state.exists() else {}
    seed = asked.seed or done.get("seed") or secrets.token_hex(4)
    first, last = done.get("episodes", 0) if done.get("seed") == seed else 0, -(-asked.steps // STEPS)
    if asked.episode is not None:
        first, last = asked.episode, asked.episode + 1
    with tempfile.TemporaryDirectory(prefix="kcover-soak-") as folder:
        template = Path(folder) / "template.sqlite3"
        subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], env=_environment(template), check=True)
        print(f"seed {seed}: episodes {first} to {last - 1} of {STEPS} steps, {asked.processes} at a time", flush=True)
        return _walk(
            seed,
            range(first, last),
            template=template,
            processes=asked.processes,
            state=asked.state if asked.episode is None else None,
        )


def _walk(seed: str, episodes: range, *, template: Path, processes: int, state: Path | None) -> int:
    """The episodes in their order; the status. ``state``: where to note how far it came."""
    started = said = time.monotonic()
    spawn = multiprocessing.get_context("spawn")  # a process that has set up Django cannot change its database
    with spawn.Pool(processes, initializer=_begin, initargs=(template,)) as pool:
        for number, failed in zip(episodes, pool.imap(_play, ((seed, one) for one in episodes)), strict=True):
            if failed is not None:
                error, steps = failed
                print(f"seed {seed}, episode {number}: {error}\nsteps: {steps}", file=sys.stderr)
                print(f"again: python -m bench.soak --seed {seed} --episode {number}", file=sys.stderr)
                return 1
            if time.monotonic() - said > SAID_EVERY or number == episodes[-1]:
                said = time.monotonic()
                print(f"{(number + 1) * STEPS} steps, {said - started:.0f} s", flush=True)
                if state is not None:
                    _keep(state, {"seed": seed, "episodes": number + 1, "steps": (number + 1) * STEPS})
    print("every invariant held")
    return 0


def _keep(state: Path, content: dict[str, Any]) -> None:
    """All or nothing: a run that is killed in this moment is resumed too."""
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


def _begin(template: Path) -> None:
    """A process's own database, in memory. Every episode is rolled back, so that it stays as empty as it is."""
    os.environ.update(_environment(template))
    django.setup()
    connection.settings_dict["NAME"] = ":memory:"
    connection.ensure_connection()
    with contextlib.closing(sqlite3.connect(template)) as migrated:
        migrated.backup(connection.connection)
    logging.disable(logging.CRITICAL)
    gc.freeze()  # what is imported stays, and need not be looked through again and again
    gc.set_threshold(GARBAGE)


def _play(what: tuple[str, int]) -> Failure:
    seed, number = what
    found: tuple[str, list[tuple[str, int]]] | None = import_string("tests.invariants.walk.episode")(
        seed, number, STEPS
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
