"""``python -m agents check NAME[,NAME] [KEY=VALUE ...]``: run health checks now, before a job for example."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from agents import config, errors, output, setup


def main(names: str, arguments: Sequence[str], file: pathlib.Path | None) -> int:
    """Print one JSON object for each result. Raises ConfigError.

    Return the exit status: 0 if nothing failed, 1 if a check failed, 3 if a check is unknown or broke.
    """
    settings = config.load(file, os.environ)
    args: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise errors.ConfigError(f"{argument!r}: write arguments as KEY=VALUE, for example r=2")
        args[key] = value
    results = setup.check_runner(settings).run([name for name in names.split(",") if name], args)
    output.show(dataclasses.asdict(result) for result in results)
    statuses = {result.status for result in results}
    return 1 if "fail" in statuses else 3 if "error" in statuses else 0
