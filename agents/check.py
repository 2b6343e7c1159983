"""``python -m agents check NAME[,NAME] [KEY=VALUE ...]``: health checks now, before a job for example."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from agents import config, errors, output, setup


def main(names: str, arguments: Sequence[str], file: pathlib.Path | None) -> int:
    """Prints one JSON object a result. Raises ConfigError.

    Returns the exit status: 0 where nothing failed, 1 where something did, 3 where a check broke or is not known.
    """
    settings = config.load(file, os.environ)
    args: dict[str, str] = {}
    for one in arguments:
        key, equals, value = one.partition("=")
        if not equals:
            raise errors.ConfigError(f"{one!r}: accepted is KEY=VALUE, r=2 for example")
        args[key] = value
    results = setup.runner(settings).run([name for name in names.split(",") if name], args)
    output.show(dataclasses.asdict(result) for result in results)
    statuses = {result.status for result in results}
    return 1 if "fail" in statuses else 3 if "error" in statuses else 0
