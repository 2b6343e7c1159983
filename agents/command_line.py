"""The command line of ``python -m agents``."""

import argparse
import pathlib
from collections.abc import Sequence

from agents import VERSION


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """``config`` (a path or None), ``verb`` (None, ``scan`` or ``check``) and the arguments of the verb: ``file``, or
    ``names`` and ``arguments``. Raises SystemExit."""
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
    return parser.parse_args(arguments)
