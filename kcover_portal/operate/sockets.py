"""Listening sockets of commands, opened before anything else is started."""

import argparse
import errno
import os
import socket
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

BACKLOG = 2048  # connections that may wait while the server starts or restarts


def port(text: str) -> int:
    """Parses a TCP port from an argument or PORT; 0 lets the system choose."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 0 to 65535")
    return number


def add_arguments(parser: argparse.ArgumentParser, *, host: str) -> None:
    """Adds the options of a command that listens. ``host``: the default address."""
    parser.add_argument("--port", type=port, default=os.environ.get("PORT") or "8000")
    parser.add_argument("--host", default=host)
    parser.add_argument("--fd", type=int, help="listen on this open socket instead of HOST and PORT")


def opened(options: Mapping[str, Any]) -> socket.socket:
    """Returns the listening socket that the options of ``add_arguments`` name. Raises CommandError."""
    if options["fd"] is not None:
        return socket.socket(fileno=options["fd"])
    return listen(options["host"], options["port"])


def listen(host: str, number: int) -> socket.socket:
    """Returns a listening socket. Raises CommandError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, number), family=family, backlog=BACKLOG)
    except PermissionError as error:
        raise CommandError(f"no permission to use port {number}; set PORT to another port") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(f"port {number} is in use; set PORT to another port") from error
        raise CommandError(f"cannot listen on {host} port {number}: {os.strerror(error.errno or 0)}") from error
    # Connections inherit the option. A server that receives the socket may not know that it is TCP.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
