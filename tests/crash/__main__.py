"""``python -m tests.crash [FAILURE ...]``: the crash matrix. All of it (without a name) writes docs/reliability.md."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.crash import batch, installation, judging, page
from tests.crash.points import FAILURES, POINTS, column

NAMES = {failure.name: failure for failure in FAILURES}


def main() -> int:
    """Runs one installation a failure, one after the other; the exit status is 1 if any run was not well."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAILURE", help=f"of {', '.join(NAMES)}; none: all, and the page")
    parser.add_argument("--step", action="append", default=[], help="strike this step only (more than one: repeat it)")
    parser.add_argument("--runs", type=int, default=1, help="nodes on which each case is tried (1)")
    parser.add_argument("--seconds", type=float, default=600.0, help="until a rescue that has not ended is given up")
    parser.add_argument("--logs", type=Path, help="a folder for what the processes print")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"unknown failure {', '.join(unknown)}: known are {', '.join(NAMES)}")
    if unknown := set(options.step) - {point.step for point in POINTS}:
        parser.error(f"no point in step {', '.join(unknown)}: there are {', '.join(sorted({p.step for p in POINTS}))}")
    if options.step and not options.names:
        parser.error("--step needs FAILURE: all failures write the page, and the page has every step")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left running
    began, steps, servers, tried = time.monotonic(), [], "", []
    for name in options.names or NAMES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            try:
                with installation.running(folder) as product:
                    cases = [
                        case for case in column(NAMES[name]) if not options.step or case.point.step in options.step
                    ]
                    trials = batch.run(product, [cases * options.runs], seconds=options.seconds)
                    judging.judge(product, trials)
                    steps, servers = product.audit()["steps"], product.versions()
            finally:
                if options.logs:
                    _keep(folder, options.logs / name)
        tried += trials
        bad = [trial for trial in trials if trial.wrong]
        longest = max(trial.seconds for trial in trials)
        print(f"{NAMES[name].words}: {len(trials) - len(bad)} of {len(trials)} well, {longest:.0f} s", flush=True)
        for trial in bad:
            print(f"  {trial.node} {trial.case or f'undisturbed, {trial.plan}'}: {'; '.join(trial.wrong)}", flush=True)
    if not options.names:
        page.write(tried, steps=steps, servers=servers, seconds=time.monotonic() - began)
    return 1 if any(trial.wrong for trial in tried) else 0


def _keep(folder: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, where)


sys.exit(main())
