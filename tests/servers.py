"""Private PostgreSQL and Redis servers on ports of their own, for as long as a program runs.

As a program: ``python -m tests.servers [--durable] [--start "postgres redis"] -- COMMAND ...`` starts the servers that
``--start`` names (both by default), runs the command with their addresses in its environment, stops them, and exits as
the command did. As a module: ``with servers.postgres() as url`` and ``with servers.redis() as url``, or ``Postgres``
and ``Redis`` themselves where a test kills a server and starts it again on the same port and data. Works as root
(PostgreSQL then runs as the user postgres) and as anybody else.

Processes of this repository get their socket open (``listener``). These servers take a number only, which another
program may take first: then they start again with another number.
"""

import abc
import argparse
import contextlib
import glob
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self
from urllib.parse import quote

import psycopg
import redis as redis_client

START_SECONDS = 60.0
STOP_SECONDS = 60.0
PORT_TRIES = 5
PORT_TAKEN = re.compile("(address|port is) already in use", re.IGNORECASE)  # as each of these servers says it
USER = "kcover"
DATABASE = "kcover"


class ServerError(Exception):
    """A server is not installed, or did not start; the message says what to install, or ends with the server's log."""


class Server(abc.ABC):
    """One server process in a session of its own, with a folder of its own that goes when the server is closed.

    The session keeps a Ctrl-C in the terminal from reaching it before its users are done; the parent-death signal
    takes it along when this process is killed without warning.
    """

    name: str
    stop_signal = signal.SIGTERM
    start_seconds = START_SECONDS

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"kcover-{self.name}-", dir=_folder()))
        self.user: str | None = None
        self.port = 0  # none yet
        self.password = secrets.token_hex(8)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The address as KCOVER_DATABASE_URL or KCOVER_REDIS_URL takes it."""

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.folder / "log"

    @abc.abstractmethod
    def command(self) -> list[str]:
        """What to run."""

    @abc.abstractmethod
    def ready(self) -> bool:
        """Returns whether the server answers."""

    def choose_ports(self) -> None:
        """Chooses the numbers of the ports, of which nobody makes use now."""
        self.port = unused_port()

    def start(self) -> Self:
        """Starts the process (again: same port, same data) and returns when it answers; raises ServerError."""
        if self.port:
            self._start()
            return self
        for tries_left in reversed(range(PORT_TRIES)):
            self.choose_ports()
            try:
                self._start()
            except ServerError as error:
                if not tries_left or not PORT_TAKEN.search(str(error)):
                    raise
            else:
                break
        return self

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_parent_death_signal("INT"), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **_identity(self.user),
            )
        deadline, ready = time.monotonic() + self.start_seconds, False
        while not ready:
            time.sleep(0.05)
            ended = self.process.poll() is not None  # looked at first: another program may hold the port
            if ended or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-2000:]
                self._end(signal.SIGKILL)
                raise ServerError(f"{self.name} did not start on port {self.port}:\n{tail}")
            ready = self.ready() and self.process.poll() is None

    def stop(self) -> None:
        """Stops the process in order; data stay."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """Kills the process group at once, as a crash would; data stay."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stops the process and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if how is signal.SIGKILL:
                os.killpg(process.pid, how)
            else:
                process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Postgres(Server):
    """A PostgreSQL cluster with the database and user ``kcover``.

    ``durable=False`` trades what a crash would lose for speed, and is reached over its socket, which takes less CPU
    than TCP. With ``durable=True`` the server writes as in production (fsync and synchronous_commit on).
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # a fast shutdown: cuts clients, writes a checkpoint

    def __init__(self, *, durable: bool = False) -> None:
        self.bin = postgres_bin()
        super().__init__()
        self.durable = durable
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self.user = "postgres"
            shutil.chown(self.folder, self.user, self.user)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.durable else quote(str(self.folder), safe="")
        return f"postgres://{USER}:{self.password}@{host}:{self.port}/{DATABASE}"

    def start(self) -> Self:
        if not self.data.exists():
            self._initdb()
            super().start()
            with psycopg.connect(**self._socket(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            return self
        return super().start()

    def command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1" if self.durable else "",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
        }
        if not self.durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
            options |= {"wal_level": "minimal", "max_wal_senders": "0", "jit": "off"}
            # Nothing here lives long enough for upkeep, and nobody looks at the server's own statistics.
            options |= {"autovacuum": "off", "track_counts": "off", "track_activities": "off"}
            options |= {"checkpoint_timeout": "1h", "max_wal_size": "8GB", "update_process_title": "off"}
            options |= {"max_parallel_workers_per_gather": "0"}
            # Tables have few rows, so that one plan of a statement is good for all values.
            options |= {"plan_cache_mode": "force_generic_plan"}
        pairs = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.bin / "postgres"), "-D", str(self.data), *pairs]

    def ready(self) -> bool:
        try:
            psycopg.connect(**self._socket(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def abort(self) -> None:
        """An immediate shutdown: nothing is written, and the next start recovers from the log; data stay."""
        self._end(signal.SIGQUIT)

    def _socket(self) -> dict[str, str]:
        return {"host": str(self.folder), "port": str(self.port), "user": USER, "dbname": "postgres"}

    def _initdb(self) -> None:
        """Makes the cluster: the socket (in a folder only we can enter) trusts, TCP asks for the password."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        if self.user:
            shutil.chown(secret, self.user, self.user)
        command = [
            str(self.bin / "initdb"),
            f"--pgdata={self.data}",
            f"--username={USER}",
            f"--pwfile={secret}",
            "--auth-local=trust",
            "--auth-host=password",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **_identity(self.user),
        )
        if done.returncode:
            raise ServerError(f"initdb failed:\n{done.stdout.decode(errors='replace')}")


class Redis(Server):
    """A Redis server that keeps nothing on disk."""

    name = "redis"

    def __init__(self) -> None:
        self.program = shutil.which("redis-server")
        if self.program is None:
            raise ServerError("redis-server is not installed (Debian: apt-get install redis-server)")
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        assert self.program
        return [
            self.program,
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--requirepass", self.password),
            *("--save", "", "--appendonly", "no"),
            *("--dir", str(self.folder)),
        ]

    def ready(self) -> bool:
        with contextlib.closing(redis_client.Redis.from_url(self.url, socket_timeout=2)) as client:
            try:
                return bool(client.ping())
            except (redis_client.ConnectionError, redis_client.TimeoutError):
                return False


@contextlib.contextmanager
def postgres(*, durable: bool = False) -> Iterator[str]:
    """A PostgreSQL server for the length of the block; yields its address; raises ServerError."""
    with Postgres(durable=durable) as server:
        yield server.url


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A Redis server for the length of the block; yields its address; raises ServerError."""
    with Redis() as server:
        yield server.url


def postgres_bin() -> Path:
    """The folder of the newest PostgreSQL's programs: Debian's place first, then PATH; raises ServerError."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if found:
        return Path(max(found, key=lambda path: int(re.findall(r"postgresql/(\d+)", path)[0]))).parent
    program = shutil.which("initdb")
    if program:
        return Path(program).resolve().parent
    raise ServerError("PostgreSQL is not installed (Debian: apt-get install postgresql)")


def _folder() -> str:
    """Where servers have their folders: $TMPDIR if that is in /tmp itself, as .ci/run sets it, or /tmp.

    A socket's path holds 107 bytes, and the server's own user must be able to enter the folder.
    """
    folder = os.environ.get("TMPDIR", "")
    return folder if re.fullmatch(r"/tmp/[\w-]{1,20}", folder) else "/tmp"


def listener() -> socket.socket:
    """A socket that listens on a port of the kernel's choice. A process gets it open (``pass_fds``)."""
    made = socket.create_server(("127.0.0.1", 0), backlog=2048)
    # Connections inherit the option. A server that receives the socket may not know that it is TCP.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A TCP port of the loopback address that refuses connections, and that nobody can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


def reserved_port() -> socket.socket:
    """A socket that keeps a port and refuses connections until a server with SO_REUSEADDR listens there.

    Connections are refused again while that server is away, and nobody else gets the port.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


def unused_port() -> int:
    """A TCP port that was free a moment ago, for a server that takes a number only and is started again otherwise."""
    with refusing_port() as port:
        return port


def environment(base: Mapping[str, str], *, addresses: Mapping[str, str]) -> dict[str, str]:
    """The command's environment: the caller's without its own portal settings, and these servers' addresses."""
    kept = {name: value for name, value in base.items() if not name.startswith("KCOVER_")}
    secret = "for-tests-only-for-tests-only-for-tests-only-0123456789"
    # Tests empty databases and use them again, which an anchor would report.
    return {**kept, **addresses, "KCOVER_SECRET_KEY": secret, "KCOVER_ANCHOR": "none"}


def run(command: Sequence[str], *, env: Mapping[str, str]) -> int:
    """Runs the command in our process group (it keeps the terminal) and returns its exit status, 128 + n for a signal.

    On Ctrl-C the terminal has told the command too: it gets time to finish. On SIGTERM and SIGHUP it is told.
    """
    child = subprocess.Popen([*_parent_death_signal("TERM"), *command], env=dict(env))
    try:
        status = child.wait()
    except KeyboardInterrupt:
        _finish(child)
        return 128 + signal.SIGINT
    except SystemExit:
        child.terminate()
        _finish(child)
        raise
    finally:
        _ignore_signals()  # what follows is short and must happen: the servers are stopped
    return status if status >= 0 else 128 - status


def main(arguments: Sequence[str]) -> int:
    """The program; returns the exit status (69: a server could not be started)."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__.splitlines()[0])
    parser.add_argument("--durable", action="store_true", help="PostgreSQL with fsync and synchronous_commit on")
    parser.add_argument("--start", default="postgres redis", help="names of servers; may be empty")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    start = set(options.start.split())
    if unknown := start - {"postgres", "redis"}:
        parser.error(f"--start: unknown servers {' '.join(sorted(unknown))}; write postgres, redis, both or neither")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    try:
        with contextlib.ExitStack() as running:
            addresses = {}
            if "postgres" in start:
                addresses["KCOVER_DATABASE_URL"] = running.enter_context(postgres(durable=options.durable))
            if "redis" in start:
                addresses["KCOVER_REDIS_URL"] = running.enter_context(redis())
            return run(options.command, env=environment(os.environ, addresses=addresses))
    except ServerError as error:
        print(error, file=sys.stderr)
        return os.EX_UNAVAILABLE


def _exit(number: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    raise SystemExit(128 + number)


def _finish(child: subprocess.Popen[bytes]) -> None:
    _ignore_signals()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _parent_death_signal(name: str) -> list[str]:
    program = shutil.which("setpriv")  # util-linux
    return [program, "--pdeathsig", name, "--"] if program else []


def _identity(user: str | None) -> dict[str, object]:
    return {"user": user, "group": user, "extra_groups": []} if user else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
