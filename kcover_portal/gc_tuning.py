"""Tuning of Python's cyclic garbage collector for processes that run for months."""

import gc


def freeze_after_startup() -> None:
    """Makes the collector run less often and skip everything loaded so far. Called once a process has started.

    Reports and rows are trees, which reference counting frees. With the defaults the collector scans all of Django
    every few thousand objects, which is a third of the CPU time of a report.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
