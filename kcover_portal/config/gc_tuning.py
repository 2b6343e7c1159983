"""Tuning of Python's cyclic garbage collector for processes that run for months."""

import atexit
import gc


def collect_rarely() -> None:
    """Makes the collector run less often. Called before anything large is imported.

    Reports, rows and modules are trees, which reference counting frees. With the defaults the collector scans all of
    Django every few thousand objects: a quarter of the CPU time of a start, and a third of that of a report.
    At the end of a process it would search all modules several times, for what the system frees anyway: a third of the
    CPU time of a command.
    """
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)


def freeze_after_startup() -> None:
    """Makes the collector skip everything loaded so far. Called once a process has started."""
    gc.collect()
    gc.freeze()
