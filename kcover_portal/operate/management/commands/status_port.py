"""``manage.py status_port``: Autopilot's ``/status`` without a token, on a port of its own."""

import argparse
import urllib.parse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kcover_portal.operate import sockets, status_port

DEFAULT_PORT = 3333  # Autopilot's


class Command(BaseCommand):
    """Serves ``/status`` until it is stopped."""

    requires_system_checks = ()  # it uses no model and no page
    help = "Autopilot's /status without a token: whoever reaches the port may start checks. Off unless you start it"

    def add_arguments(self, parser: CommandParser) -> None:
        """``--portal`` and ``--token-file`` are required."""
        parser.add_argument("--portal", required=True, type=_url, help="the portal, such as http://kcover-web:8000")
        parser.add_argument(
            "--token-file", required=True, type=Path, help="a file with a token of the role operator for one cluster"
        )
        parser.add_argument(
            "--name",
            action="append",
            default=[],
            metavar="NAME",
            help="a name by which it is called, beside addresses, localhost and Services of the cluster",
        )
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=sockets.port, default=DEFAULT_PORT, help=f"port ({DEFAULT_PORT})")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs in the foreground until SIGTERM or Ctrl-C. Raises CommandError for a bad address or file."""
        file: Path = options["token_file"]

        def token() -> str:
            return file.read_text().strip()

        try:
            if not token():
                raise CommandError(f"--token-file {file}: the file is empty; write the token into it")
        except OSError as error:
            raise CommandError(f"--token-file {file}: {error.strerror}; name a file with a token") from error
        listener = sockets.listen(options["host"], options["port"])
        self.stdout.write(f"http://{options['host']}:{sockets.port_of(listener)}/status starts checks without a token")
        self.stdout.flush()
        port = status_port.StatusPort(portal=options["portal"], token=token, names=options["name"])
        status_port.run(port.application(), listener)


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"{text!r}: write the address of the portal, such as http://kcover-web:8000")
    return text
