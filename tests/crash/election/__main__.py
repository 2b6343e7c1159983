"""``python -m tests.crash.election [FAILURE ...]``: every call with these failures or all. Needs ``tests.servers``."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.election import clusters, points, portals, trials


def main() -> int:
    """Prints what became of each case; the exit status is 1 if two portals acted together, or none did."""
    names = {failure.name: failure for failure in points.FAILURES}
    parser = argparse.ArgumentParser(prog="python -m tests.crash.election", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAILURE", choices=[[], *names], help=f"of {', '.join(names)}")
    options = parser.parse_args()
    waves = [points.column(names[name]) for name in options.names or names]
    with (
        tempfile.TemporaryDirectory() as folder,
        clusters.running(len(points.CELLS)) as servers,
        portals.two(Path(folder)) as both,
    ):
        tried = trials.run(servers, both, waves)
    for trial in tried:
        print(f"{trial.case}: {trial.seconds:.1f} s; {'; '.join(trial.wrong) or 'well'}")
    return 1 if any(trial.wrong for trial in tried) else 0


sys.exit(main())
