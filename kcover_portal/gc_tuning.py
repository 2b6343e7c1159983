"""Python's collector of cycles, for processes that run for months."""

import gc


def freeze_after_startup() -> None:
    """Lets it look less often, and never at what is loaded now; to be called once a process has started.

    Reports and rows are trees and go without it. By default it walks all of Django every few thousand of them: a third
    of the CPU that a report costs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
