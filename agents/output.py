"""Standard output of the commands: whoever reads it may have seen enough, and perhaps nobody does."""

import json
import os
import sys
from collections.abc import Iterable, Mapping


def show(rows: Iterable[Mapping[str, object]]) -> None:
    """Prints each as one line of JSON, for as long as somebody reads."""
    if sys.stdout is None:  # closed by whoever started the command
        return
    try:
        for row in rows:
            sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop()


def finish() -> None:
    """What is still to be written is, or nobody wants it; without this the interpreter complains as it ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop()


def _drop() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
