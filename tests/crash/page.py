"""Writes docs/reliability.md from the trials of a run."""

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.crash.points import FAILURES, POINTS, Failure, Point
from tests.crash.trials import Trial

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
# Steps that ask nothing of a cluster.
WITHOUT_CALLS = ("escalate",)
HEAD = """# Reliability: what a crash leaves behind

Written by `make crash`. Do not edit. {date}.
{versions}.

**{well} of {runs} runs ended like an undisturbed rescue and repeated no destructive call.**
{verdict}

Each run is one simulated node with one fault and one failure. At one call of one step, a process is killed or
restarted, or the API server answers wrongly. The rows `order` are a person's orders to restart or stop a training job,
two attempts of which failed first on the node, or to restart a gang. The rows `probation` are the end of a probation.
The rows about a new machine and a burn-in have no fault: the node is validated before its first work. In the rows about
an approval the node is isolated first. A person then approves the rest in the console.

- *Before* means that the call is recorded as begun and has had no effect.
- *After* means that the call has had its effect and the portal does not know. For a call that only reads, it means an
  answer that never arrives.

The moments are exact. The simulator holds the call, the failure happens, and the call continues into what is left. All
processes are real (`live`, `worker`, `beat`, `watch`), on PostgreSQL with fsync and synchronous_commit on.
`python -m tests.crash killed --runs 3 --logs var/crash` repeats one column. `make test` runs a sample of the cells.

A run passes if all of these hold:

- The rescue ended healed and every incident of the node is closed. (A taint ends isolated and is then released. A
  reboot that a person cancelled ends cancelled and is then released.)
- The simulator counted exactly the same calls with an effect as for an undisturbed rescue: changes of the node,
  evictions, deletions, jobs, objects of other systems. Each pod was evicted once. The machine booted once if the plan
  has a reboot.
- A replaced machine's rescue ended replaced, and the burn-in of the new one passed. Its object was deleted once. (If
  the request was lost, a person retried.) The new node differs only in what is the machine's.
- A repair was opened once, and closed by a person after a passed validation.
- After a cancelled reboot no job is left, and the machine booted only when a person switched it on.
- An external system in the plan accepted exactly one order. (If it received none, a person ordered once more.)
- A validation in the plan was requested once and passed.
- People received each message once. (A channel that answers 409 refuses it, and is not asked again.)
- The node's labels, annotations and spec are the same as before the fault, byte for byte. So are those of the standby
  that replaced it, once a person has released it.
- An order about a job ended done. The pod of a restarted job was deleted once, and its template excludes the node once.
  (If the API server refuses the exclusion, the restart does not wait for it.) A gang of Volcano was restarted once.
- The hash chain of the audit log is intact, and replaying it gives the row of each rescue.

"""
LEASE = """

Most of the time is the lease. If a worker died or lost its database, another one takes the step over after its lease of
30 s has ended and not before, so two never act at the same time. (The lease of a message is 60 s.) A time-out is
noticed after 20 s. A cancelled reboot is watched for 30 s, however soon its job is gone.

"""
NO_CELL = """
"–" means that the cell does not exist. A command for an agent is a row in the database, so only the death of its writer
can be timed. The same is true of a repair. And an order that is accepted and then refused with 409 cannot be told from
one that was refused.

"""
LATE = """## Late reports

`bench/demo_soak.py` injects 60 faults within 20 minutes into 200 simulated nodes. Beside the agents,
Loki, gpud, Prometheus, NVSentinel and the conditions and Events of the cluster tell of the faults, some a minute late.
Guards for storms, rate and breaker are off. On two cores:

| product | day | healed with one reboot | late reports | second reboots | rescues that failed | closed too early |
|---|---|---|---|---|---|---|
| `make demo`, SQLite | 2026-11-28 | 59, and one waited for a PodDisruptionBudget | 49 | 0 | 0 | not counted |
| `serve`, PostgreSQL, Redis | 2026-11-29 | 60 | 80 | 0 | 0 | 0 |

An incident is closed too early if it is closed before its machine has rebooted.

"""
TAIL = """## Not covered

- Data that PostgreSQL itself loses: a lost disk, a failover to a standby that lags behind, fsync switched off.
- A real API server, kubelets and machines. [Install](operations/install/install.md#supported-kubernetes-versions) says
  what the simulator was checked against.
- Several failures of one rescue at chosen moments.
- The death of `live`, `beat` and `watch`. None of them calls a cluster on behalf of a rescue.
- Clocks that jump.
"""


def write(trials: Sequence[Trial], *, steps: Sequence[str], servers: str, seconds: float) -> None:
    """The whole page, from all columns' trials. ``steps``: those that the engine has; ``seconds``: how long it took;
    ``servers``: the versions of PostgreSQL and Redis."""
    cases = [trial for trial in trials if trial.case is not None and trial.counts]
    well = sum(not trial.wrong for trial in cases)
    controls = [trial for trial in trials if trial.case is None]
    sick = [trial for trial in controls if trial.wrong]
    verdict = "" if not sick else f"{len(sick)} undisturbed rescues failed too, so the tables mean nothing.\n"
    verdict += f"{len(controls)} undisturbed rescues ran beside them. The whole run took {seconds / 60:.0f} minutes."
    text = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions=f"{_versions()}, {servers}",
        well=well,
        runs=len(cases),
        verdict=verdict,
    )
    text += "\n".join(_failures(cases)) + LEASE + "\n".join(_matrix(cases)) + "\n" + NO_CELL
    text += "\n".join(_wrong(trials)) + LATE + TAIL + _uncovered(steps)
    PAGE.write_text(text, encoding="utf-8")


def _versions() -> str:
    packages = ", ".join(f"{name} {metadata.version(name.lower())}" for name in ("Django", "Celery", "kombu"))
    return f"Python {platform.python_version()}, {packages}, {os.cpu_count()} cores {platform.machine()}"


def _failures(cases: Sequence[Trial]) -> Iterator[str]:
    yield "| failure | runs | passed | time to the rescue's end, P50 | max |"
    yield "|---|---|---|---|---|"
    for failure in FAILURES:
        mine = [trial for trial in cases if trial.case and trial.case.failure is failure]
        ended = [trial.seconds for trial in mine if trial.seconds]
        times = f"{statistics.median(ended):.0f} s | {max(ended):.0f} s" if ended else "– | –"
        yield f"| {failure.words} | {len(mine)} | {sum(not trial.wrong for trial in mine)} | {times} |"


def _matrix(cases: Sequence[Trial]) -> Iterator[str]:
    yield "Runs that passed, of all runs:"
    yield ""
    yield f"| step | call | | {' | '.join(failure.words for failure in FAILURES)} |"
    yield f"|---|---|---|{'---|' * len(FAILURES)}"
    for point in POINTS:
        for after in (False, True):
            cells = " | ".join(_cell(cases, point, failure, after=after) for failure in FAILURES)
            yield f"| {point.step} | {point.call} | {'after' if after else 'before'} | {cells} |"


def _cell(cases: Sequence[Trial], point: Point, failure: Failure, *, after: bool) -> str:
    key = (point, failure, after)
    mine = [t for t in cases if t.case and (t.case.point, t.case.failure, t.case.after) == key]
    return f"{sum(not trial.wrong for trial in mine)}/{len(mine)}" if mine else "–"


def _wrong(trials: Sequence[Trial]) -> Iterator[str]:
    bad = [trial for trial in trials if trial.wrong]
    if bad:
        yield "## What went wrong"
        yield ""
        yield from (f"- {trial.case or f'undisturbed, {trial.plan}'}: {'; '.join(trial.wrong)}" for trial in bad)
        yield "\n"


def _uncovered(steps: Sequence[str]) -> str:
    left = sorted(set(steps) - {point.step for point in POINTS} - set(WITHOUT_CALLS))
    return f"- Steps that no walk-through contains: {', '.join(left)}.\n" if left else ""
