"""docs/reliability.md, written by the run that it reports."""

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
HEAD = """# What a crash leaves

Written by `make crash`; do not edit. {date}.
{versions}.

**{well} of {runs} runs ended as an undisturbed rescue does, with no destructive call repeated.**
{verdict}

A run is one simulated node with one fault, and one blow: a process is killed or restarted, or the API server answers
wrongly, at one call of one step. *Before*: the call is begun in the ledger and has had no effect. *After*: it has had
its effect, and the portal has not heard of it. (For a call that only reads, *after* is an answer that never comes.) The
moments are exact: the simulator holds the very call, the blow is struck, the call goes on into what is left. All
processes are the real ones (`live`, `worker`, `beat`, `watch`), on a PostgreSQL with fsync and synchronous_commit on.
`python -m tests.crash killed --runs 3 --logs var/crash` repeats one column; `make test` tries a sample of the cells.

A run is well when
- its rescue ended healed (a taint: isolated, then released; a reboot that a person called off: cancelled, then
  released), with every incident of the node closed;
- the simulator counted exactly the calls with an effect that it counts for an undisturbed rescue (changes of the node,
  evictions, deletions, jobs), each pod evicted once, the machine booted once where its plan has a reboot;
- of a reboot that was called off no job is left, and the machine booted only when a person switched it on;
- another system that its plan calls took up one order, and no more (where it took none, a person ordered once more);
- people who are to be told heard it once (a channel that answers 409, that it will not, is not asked again);
- the node's labels, annotations and spec are what they were before the fault, byte for byte; so are those of the
  standby that stood in for it, once a person has released it;
- the ledger's chain is intact, and replaying it gives the row of each rescue.

"""
LEASE = """

The lease makes most of the time: a step whose worker died, or lost its database, is taken up by another when its
lease of 30 s has run out, and not before, so that no two ever act at a time (a message's lease: 60 s). A time-out is
found after 20 s. A reboot that was called off is looked after for 30 s, however soon its job is gone.

"""
NO_CELL = """
«–»: the command for an agent is a row in the database, which only the death of its writer can befall at a moment of our
choosing; and an order that was taken and then refused with 409 looks to everybody like one that was refused.

"""
TAIL = """## Not in here

- What PostgreSQL itself loses: a disk, a failover to a standby that lags behind, fsync switched off.
- A real API server, kubelets and machines. What the simulator's answers were checked against: `operations.md`.
- Several blows to one rescue at moments of our choosing.
- The death of `live`, `beat` and `watch`, none of which calls a cluster on behalf of a rescue.
- Clocks that jump.
"""


def write(trials: Sequence[Trial], *, steps: Sequence[str], servers: str, seconds: float) -> None:
    """The whole page, from all columns' trials. ``steps``: those that the engine has; ``seconds``: how long it took;
    ``servers``: the versions of PostgreSQL and Redis."""
    cases = [trial for trial in trials if trial.case is not None]
    well = sum(not trial.wrong for trial in cases)
    controls = [trial for trial in trials if trial.case is None]
    sick = [trial for trial in controls if trial.wrong]
    verdict = "" if not sick else f"{len(sick)} undisturbed rescues did not end well either; the tables say nothing.\n"
    verdict += f"{len(controls)} undisturbed rescues beside them; the whole took {seconds / 60:.0f} minutes."
    text = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions=f"{_versions()}, {servers}",
        well=well,
        runs=len(cases),
        verdict=verdict,
    )
    text += "\n".join(_failures(cases)) + LEASE + "\n".join(_matrix(cases)) + "\n" + NO_CELL
    text += "\n".join(_wrong(trials)) + TAIL + _uncovered(steps)
    PAGE.write_text(text, encoding="utf-8")


def _versions() -> str:
    packages = ", ".join(f"{name} {metadata.version(name.lower())}" for name in ("Django", "Celery", "kombu"))
    return f"Python {platform.python_version()}, {packages}, {os.cpu_count()} cores {platform.machine()}"


def _failures(cases: Sequence[Trial]) -> Iterator[str]:
    yield "| blow | runs | well | to the rescue's end, P50 | max |"
    yield "|---|---|---|---|---|"
    for failure in FAILURES:
        mine = [trial for trial in cases if trial.case and trial.case.failure is failure]
        ended = [trial.seconds for trial in mine if trial.seconds]
        times = f"{statistics.median(ended):.0f} s | {max(ended):.0f} s" if ended else "– | –"
        yield f"| {failure.words} | {len(mine)} | {sum(not trial.wrong for trial in mine)} | {times} |"


def _matrix(cases: Sequence[Trial]) -> Iterator[str]:
    yield "Runs that were well of all runs:"
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
    return f"- Steps that no walk-through here has: {', '.join(left)}.\n" if left else ""
