"""One server at a time, with its own database on a PostgreSQL that is as durable as in production."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from bench.ingest import load, reports
from tests import migrated, servers
from tests.story.product import ROOT, Product

CREATE_USERS = """from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token
from bench.ingest.reports import name_of, secret_of
nodes = range({count})
users = User.objects.bulk_create([User(username=name_of(n)) for n in nodes], batch_size=2000)
Token.objects.bulk_create([Token(key=secret_of(n), user=user) for n, user in zip(nodes, users)], batch_size=2000)"""
HOT = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'fleet_agent'"
COUNTED_TABLES = ("fleet_node", "fleet_agent", "fleet_gpu", "fleet_checkresult", "fleet_checkchange", "incidents_batch")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run: CPU seconds of portal and PostgreSQL, bytes of WAL, rows added, heartbeats written, and
    heartbeats written in place (HOT)."""

    portal: float
    postgres: float
    wal: int
    rows: int = 0
    beats: int = 0
    in_place: int = 0

    def since(self, before: "Cost") -> "Cost":
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Cost(*(now - then for now, then in pairs))


class Postgres:
    """A durable server that a measurement may kill."""

    def __init__(self, server: servers.Postgres) -> None:
        self.server = server

    def database(self, name: str) -> str:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return urlunsplit(urlsplit(self.server.url)._replace(path=f"/{name}"))

    def cpu(self) -> float:
        """CPU seconds of all its processes, including ended ones."""
        assert self.server.process is not None
        return cpu(self.server.process.pid)


def cpu(pid: int) -> float:
    """CPU seconds of a process and its children, including ended ones. Raises psutil.NoSuchProcess."""
    total = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


class Portal:
    """The live process of the portal, which ``serve`` starts for agents; ``processes`` of them share the address."""

    def __init__(self, postgres: Postgres, folder: Path, redis: str, *, nodes: int, processes: int) -> None:
        self.postgres, self.nodes = postgres, nodes
        self.database = postgres.database("portal")
        self.product = Product(folder, database=self.database, redis=redis)
        self.product.names = ["live"]
        self.product.environment["WEB_CONCURRENCY"] = str(processes)  # read by uvicorn
        migrated.copy_to(self.database)
        self.product.manage("shell", "-c", reports.FIRST)
        reports.create_fleet(self.database, nodes)
        self.product.start_processes()

    @property
    def port(self) -> int:
        return self.product.port

    def cost(self) -> Cost:
        """The cost since the server's start."""
        live = cpu(self.product.processes["live"].pid)
        with psycopg.connect(self.database, autocommit=True) as connection:
            rows = sum(_one(connection, f"SELECT count(*) FROM {table}")[0] for table in COUNTED_TABLES)
            return Cost(live, self.postgres.cpu(), _wal(connection), rows, *_one(connection, HOT))

    def load(self, **plan: Any) -> load.LoadResult:
        return load.finish(load.start(port=self.port, nodes=self.nodes, **plan))


class Naive:
    """The naive design under uvicorn, with 2 x 8 threads."""

    def __init__(self, postgres: Postgres, folder: Path, *, nodes: int) -> None:
        self.postgres, self.nodes = postgres, nodes
        self.database = postgres.database("naive")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KCOVER_")},
            "NAIVE_DATABASE_URL": self.database,
            "DJANGO_SETTINGS_MODULE": "bench.ingest.naive.settings",
        }
        for command in (
            ["migrate", "--run-syncdb", "--verbosity", "0"],
            ["shell", "-v", "0", "-c", CREATE_USERS.format(count=nodes)],
        ):
            subprocess.run([sys.executable, "-m", "django", *command], cwd=ROOT, env=environment, check=True)
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        uvicorn = "uvicorn --workers 2 --timeout-keep-alive 60 --log-level warning --no-access-log --lifespan off"
        with (folder / "naive.log").open("ab") as log, servers.listener() as listener:
            self.port = listener.getsockname()[1]
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", *uvicorn.split()),
                    *("--fd", str(listener.fileno()), "bench.ingest.naive.views:application"),
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[listener.fileno()],
            )

    def cost(self) -> Cost:
        """The cost since the server's start."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            return Cost(cpu(self.process.pid), self.postgres.cpu(), _wal(connection))

    def load(self, **plan: Any) -> load.LoadResult:
        more = {"path": "/reports", "scheme": "Token"}
        return load.finish(load.start(port=self.port, nodes=self.nodes, **more, **plan))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def _wal(connection: psycopg.Connection) -> int:
    return int(_one(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0])


def _one(connection: psycopg.Connection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row


@contextlib.contextmanager
def portal(*, nodes: int, processes: int = 1) -> Iterator[Portal]:
    """A portal with its own PostgreSQL and Redis."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.Postgres(durable=True) as server,
        servers.redis() as redis,
    ):
        made = Portal(Postgres(server), Path(folder), redis, nodes=nodes, processes=processes)
        try:
            yield made
        finally:
            made.product.stop()


@contextlib.contextmanager
def naive(of: Portal, *, nodes: int) -> Iterator[Naive]:
    """The naive design beside a portal, on the same PostgreSQL."""
    made = Naive(of.postgres, of.product.folder, nodes=nodes)
    try:
        yield made
    finally:
        made.stop()
