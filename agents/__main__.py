"""``python -m agents`` runs the node agent, ``scan FILE`` reads a saved kernel log, ``check NAME`` runs checks now.

Each subcommand is the module of the same name, imported only when needed: a scan loads neither TLS nor a driver.
"""

import argparse
import importlib
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from agents import VERSION, errors, output


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 for a file that cannot be read, 2 for invalid settings, 75 (EX_TEMPFAIL) while
    another agent is running."""
    try:
        return _main(arguments)
    finally:
        output.finish()


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents", description="The kcover node agent.")
    parser.add_argument(
        "--config", type=pathlib.Path, metavar="FILE", help="YAML settings; environment variables take precedence"
    )
    parser.add_argument("--version", action="version", version=VERSION)
    verbs = parser.add_subparsers(dest="verb", title="subcommands (without one, the agent runs)")
    scan = verbs.add_parser("scan", help="print the faults in a saved kernel log, one JSON object per line")
    scan.add_argument("file", metavar="FILE", help="the log file; - reads standard input")
    check = verbs.add_parser(
        "check", help="run health checks now, one JSON object per result (before a job, for example)"
    )
    check.add_argument("names", metavar="NAME[,NAME]", help="remapped, gpupower, pciebw, gpumem, dcgm, ping, iperf")
    check.add_argument(
        "arguments", metavar="KEY=VALUE", nargs="*", help="arguments of the checks, such as r=2 or hosts=a,b"
    )
    given = parser.parse_args(arguments)
    try:
        if given.verb == "scan":
            return _program("agents.scan")(given.file)
        if given.verb == "check":
            return _program("agents.check")(given.names, given.arguments, given.config)
        return _program("agents.run")(given.config)
    except errors.ConfigError as error:
        print(f"agents: {error}", file=sys.stderr)
        return 2
    except errors.AlreadyRunning as error:
        print(f"agents: {error}", file=sys.stderr)
        return os.EX_TEMPFAIL


def _program(module: str) -> Callable[..., int]:
    main: Callable[..., int] = importlib.import_module(module).main
    return main


if __name__ == "__main__":
    sys.exit(main())
