"""Standard output of the subcommands. Its reader may close it at any time, or it may be closed from the start."""

import json
import os
import sys
from collections.abc import Iterable, Mapping


def show(rows: Iterable[Mapping[str, object]]) -> None:
    """Print each row as one line of JSON, until the reader closes the pipe."""
    if sys.stdout is None:  # closed by the parent process
        return
    try:
        for row in rows:
            sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop()


def finish() -> None:
    """Flush standard output, so that the interpreter does not report a broken pipe as it exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop()


def _drop() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
