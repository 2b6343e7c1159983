"""The address that a command serves on: understood, and ours, before anything else is started."""

import argparse
import errno
import os
import socket

from django.core.management.base import CommandError

BACKLOG = 2048  # connections that may wait while the server behind starts, or starts again


def port(text: str) -> int:
    """A TCP port as an argument or PORT gives it; 0 lets the system choose."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it takes a number from 0 to 65535")
    return number


def listen(host: str, number: int) -> socket.socket:
    """A socket that listens there. Raises CommandError when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, number), family=family, backlog=BACKLOG)
    except PermissionError as error:
        raise CommandError(f"port {number} needs more rights than this user has: set PORT to another") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(f"port {number} is taken: set PORT to another") from error
        raise CommandError(f"cannot listen on {host} port {number}: {os.strerror(error.errno or 0)}") from error
    # Connections inherit it; a server that is handed the socket does not always know that it is TCP.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def port_of(listener: socket.socket) -> int:
    """The port it listens on."""
    return int(listener.getsockname()[1])
