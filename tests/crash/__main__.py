"""``python -m tests.crash [FAILURE ...]``: the crash matrix. All of it (without a name) writes docs/reliability.md."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crash import batch, installation, page, points, verdicts
from tests.crash.points import FAILURES, INSTALLATIONS, POINTS, Failure, column
from tests.crash.trials import Trial

NAMES = {failure.name: failure for failure in FAILURES}


def main() -> int:
    """Runs one installation after the other; the exit status is 1 if any run was not well."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAILURE", help=f"of {', '.join(NAMES)}; none: all, and the page")
    parser.add_argument("--step", action="append", default=[], help="strike this step only (more than one: repeat it)")
    parser.add_argument("--runs", type=int, default=1, help="nodes on which each case is tried (1)")
    parser.add_argument("--seconds", type=float, default=600.0, help="until a trial that has not ended is given up")
    parser.add_argument("--logs", type=Path, help="a folder for what the processes print")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"unknown failure {', '.join(unknown)}: known are {', '.join(NAMES)}")
    if unknown := set(options.step) - {point.step for point in POINTS}:
        parser.error(f"no point in step {', '.join(unknown)}: there are {', '.join(sorted({p.step for p in POINTS}))}")
    if options.step and not options.names:
        parser.error("--step needs FAILURE: all failures write the page, and the page has every step")
    options.step = options.step or [point.step for point in POINTS]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left running
    began, steps, servers, tried = time.monotonic(), [], "", []
    wanted = options.names or NAMES
    for installed in INSTALLATIONS:
        failures = [one for together in installed for one in together if one.name in wanted]
        cases = [
            [case for one in together if one in failures for case in column(one) if case.point.step in options.step]
            for together in installed
        ]
        waves = [wave for together in cases for wave in points.waves(together * options.runs)]
        if not waves:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            try:
                with installation.running(folder) as product:
                    trials = batch.run(product, waves, seconds=options.seconds)
                    audit, servers = product.audit(), product.versions()
                    verdicts.judge(product, trials, audit)
                    steps = audit["steps"]
            finally:
                if options.logs:
                    _keep(folder, options.logs / "-".join(one.name for one in failures))
        tried += trials
        _tell(failures, trials)
    if not options.names:
        page.write(tried, steps=steps, servers=servers, seconds=time.monotonic() - began)
    return 1 if any(trial.wrong for trial in tried) else 0


def _tell(failures: Sequence[Failure], trials: Sequence[Trial]) -> None:
    """Prints what became of an installation's trials."""
    for one in failures:
        mine = [trial for trial in trials if trial.case and trial.case.failure is one and trial.counts]
        well, longest = sum(not trial.wrong for trial in mine), max((trial.seconds for trial in mine), default=0.0)
        print(f"{one.words}: {well} of {len(mine)} well, {longest:.0f} s", flush=True)
    for trial in trials:
        if trial.repeated:
            print(f"  {trial.node} {trial.case}: tried again, as it was not struck: {trial.missed}", flush=True)
        if trial.wrong:
            print(f"  {trial.node} {trial.case or f'undisturbed, {trial.plan}'}: {'; '.join(trial.wrong)}", flush=True)


def _keep(folder: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, where)


sys.exit(main())
