"""``python -m agents`` runs the node agent, ``scan FILE`` reads a saved kernel log, ``check NAME`` runs checks now.

Each subcommand is the module of the same name, imported only when needed: a scan loads neither TLS nor a driver. An
agent without arguments, as in a DaemonSet, does not load the parser of the command line either.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from agents import deferred_imports, errors, output


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 for a file that cannot be read, 2 for invalid settings, 75 (EX_TEMPFAIL) while
    another agent is running."""
    try:
        return _main(arguments)
    finally:
        output.finish()


def _main(arguments: Sequence[str] | None) -> int:
    deferred_imports.install()
    arguments = sys.argv[1:] if arguments is None else arguments
    given = importlib.import_module("agents.command_line").parse(arguments) if arguments else None
    try:
        if given is None:
            return _program("agents.run")(None)
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
