"""Clients of a real web server that write what they like."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests import servers
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[3]
SERVER = "uvicorn --log-level warning --no-proxy-headers --http kcover_portal.asgi.http_protocol:DeadlineProtocol"


@contextmanager
def running(application: str, folder: Path, *options: str, **more: str) -> Iterator[int]:
    """The port of a web server as in production, with a database without tables. ``more``: the environment."""
    database = {"KCOVER_DATABASE_URL": f"sqlite:///{folder}/k.sqlite3"}
    start = [sys.executable, "-m", *SERVER.split(), *options]
    with run_server(lambda fd: [*start, "--fd", str(fd), application], **{**database, **more}) as port:
        yield port


@contextmanager
def run_server(command: Callable[[int], Sequence[str]], **more: str) -> Iterator[int]:
    """The port of a server; ``command``: what starts it, by the number of its listening socket."""
    listener = servers.listener()
    free, number = listener.getsockname()[1], listener.fileno()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KCOVER_")}
    process = subprocess.Popen(
        command(number),
        cwd=ROOT,
        env={
            **environment,
            "KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8",
            "DJANGO_SETTINGS_MODULE": "kcover_portal.settings",
            **more,
        },
        pass_fds=(number,),
    )
    listener.close()  # so that a process that has ended is no server that is slow
    try:
        assert well(free), process.poll()
        yield free
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def well(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Connection": "close"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def slow(port: int, text: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS)
    client.sendall(text.encode())
    return client


def answer(port: int, text: str) -> tuple[int, bytes]:
    with closing(slow(port, text)) as client:
        response = http.client.HTTPResponse(client)
        response.begin()
        return response.status, response.read()


def ended(client: socket.socket) -> bool:
    """Returns whether the server has closed the connection, perhaps after an answer."""
    client.setblocking(False)
    try:
        while client.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def on_the_way(port: int) -> int:
    """How many bytes of the connections to a port have been sent and not been read."""
    this = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [row[4].split(":") for row in rows if row[3] == "01" and (row[1] + row[2]).count(this)]
    return sum(int(size, 16) for pair in queues for size in pair)
