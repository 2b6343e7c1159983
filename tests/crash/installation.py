"""The product with its own servers, so that these can fail too, and the system that its webhooks and channels call."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import redis

from kcover.notify import events
from tests import servers
from tests.crash.other_system import OtherSystem
from tests.crash.plans import CLAIMS, CLOUD, JANITOR
from tests.crash.points import BROKER, FAST, FLUSHED, IMMEDIATE, KILLED, Failure
from tests.story.product import ROOT, Product, call

THREADS = "96"  # of the worker: a request that is held keeps one
READY_SECONDS = 180
CLOUD_SECONDS = 12  # a request that is held waits so long, at most
SECRET = "only-between-the-two-of-us"  # with the other system
# What would rightly hold back acts on many nodes at once.
NO_GUARDS = {**{name: {"enabled": False} for name in ("storm", "rate", "breaker")}, "plans": {"limit": 1000}}


class Installation(Product):
    """The product on a PostgreSQL that writes as in production, and a Redis; both its own."""

    def __init__(self, folder: Path, *, database: servers.Postgres, broker: servers.Redis, other: OtherSystem) -> None:
        super().__init__(folder, database=database.url, redis=broker.url)
        self.environment |= {"KCOVER_WORKERS": THREADS, "KCOVER_PUBLIC_URL": self.url}
        self.other = other
        self._database, self._broker = database, broker
        self._reader: psycopg.Connection[Any] | None = None  # of ``rows``

    def strike(self, failure: Failure) -> None:
        """Does to a process what the failure says; returns when the servers answer again (a worker only starts)."""
        match failure:
            case _ if failure is KILLED:
                self.kill("worker")
                self.start("worker")
            case _ if failure is FLUSHED:
                self.flush_redis()
            case _ if failure is BROKER:
                self._broker.kill()
                self._broker.start()
            case _ if failure is FAST:
                self._database.stop()
                self._database.start()
            case _ if failure is IMMEDIATE:
                self._database.abort()
                self._database.start()
            case _:
                raise ValueError(f"{failure.words} is planned with the simulator")

    def guards_off(self) -> None:
        """Lets the portal act on any number of nodes."""
        self.manage("cluster", "guards", "sim", "--set", json.dumps(NO_GUARDS))

    def add_object_drivers(self) -> None:
        """Cluster API replaces machines, Karpenter those of one pool; NVSentinel acts on the machines of another.

        A cloud power-cycles those of a third, by a webhook.
        """
        added = {"capi": ("clusterapi", ""), "karpenter": ("karpenter", CLAIMS), "janitor": ("nvsentinel", JANITOR)}
        for name, (kind, pool) in added.items():
            given = ("--set", f"pools={pool}") if pool else ()
            self.manage("driver", "add", name, "--kind", kind, "--cluster", "sim", *given)
        secret = self.folder / "cloud-secret"
        secret.write_text(self.other.secret, encoding="utf-8")
        self.other.cycle = lambda node: self.post_sim(f"/sim/nodes/{node}/reboot", {})
        where = ("--url", self.other.power, "--password-file", str(secret))
        limits = ("--set", f"pools={CLOUD}", "--set", f"timeout={CLOUD_SECONDS}")
        self.manage("driver", "add", "cloud", "--kind", "webhook", "--cluster", "sim", *where, *limits)
        with self.connect() as connection:  # a lost request to the janitor or the cloud is noticed only by this limit
            connection.execute("UPDATE fleet_cluster SET ready_within = %s", (READY_SECONDS,))

    def add_sources(self) -> None:
        """Other systems tell of each fault, too: later than the agents, and some of them after the reboot."""
        for kind, path in (("loki", ""), ("gpud", "/gpud/{node}"), ("prometheus", "/prometheus")):
            self.manage("source", "add", kind, "--kind", kind, "--cluster", "sim", "--url", f"{self.sim}{path}")

    def share_secret(self) -> None:
        """Lets the other system's words be known as its own."""
        with self.connect() as connection:
            connection.execute("UPDATE fleet_cluster SET decision_secret = %s", (self.other.secret,))

    def open_channels(self, names: Sequence[str], *, url: str = "") -> None:
        """Lets people be told by channels of these names, each message at once and by itself; ``url``: elsewhere."""
        with self.connect() as connection:
            connection.execute(
                "INSERT INTO notify_channel (name, kind, url, secret, recipients, language, batching, min_interval, "
                "enabled, created_by, created_at, trouble) "
                "SELECT unnest(%s::text[]), 'webhook', %s, %s, '[]', 'en', 0, 0, true, 'system', now(), '{}'",
                (list(names), url or self.other.messages, self.other.secret),
            )

    def send_every_event(self, channel: str) -> None:
        """Opens a channel that gets the events of all kinds (``OtherSystem.heard``)."""
        self.open_channels([channel], url=self.other.events)
        with self.connect() as connection:
            connection.execute(
                "INSERT INTO notify_route (channel_id, kinds, least, created_by, created_at) "
                "SELECT id, %s, '', 'system', now() FROM notify_channel WHERE name = %s",
                (json.dumps(events.KINDS), channel),
            )

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to the portal's database, outside a transaction until one is begun."""
        return psycopg.connect(self.environment["KCOVER_DATABASE_URL"], autocommit=True, connect_timeout=30)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds in the portal's database.

        By a connection that is kept: a run asks thousands of times, and PostgreSQL starts a process for each new one.
        """
        if self._reader is not None:
            try:
                return self._reader.execute(query, values or None).fetchall()
            except psycopg.OperationalError:
                if not self._reader.closed:
                    raise
        self._reader = self.connect()  # the server was struck since the last query
        return self._reader.execute(query, values or None).fetchall()

    def kube(self, method: str, path: str, body: Any = None) -> Any:
        """Asks the simulated API server for something, as its administrator."""
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        status, answer = call(method, self.sim + path, body, token=self.sim_token(), headers=headers)
        assert status < 300, (status, answer)
        return answer

    def faults(self) -> tuple[set[str], dict[str, float]]:
        """The names (of nodes) of the planned faults, the API server's and the other system's, and of those that hold a
        request, with the seconds they have."""
        _, body = call("GET", self.sim + "/sim/api-faults")
        hanging = {row["name"]: row["seconds"] for row in body["hanging"]}
        return {row["name"] for row in body["pending"]} | self.other.pending(), hanging | self.other.hanging()

    def let_go(self, name: str) -> None:
        """Lets a held request go on, and forgets a fault that has not come about."""
        call("DELETE", f"{self.sim}/sim/api-faults?name={name}")
        self.other.let_go(name)

    def versions(self) -> str:
        """Of the servers."""
        ((postgres,),) = self.rows("SHOW server_version")
        with redis.Redis.from_url(self.environment["KCOVER_REDIS_URL"]) as client:
            return f"PostgreSQL {postgres.split()[0]}, Redis {client.info('server')['redis_version']}"

    def stop(self) -> None:
        """Ends everything."""
        if self._reader is not None:
            self._reader.close()
        super().stop()

    def audit(self) -> dict[str, Any]:
        """What the ledger commands say of every chain and every rescue (``tests.crash.audit``)."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.audit"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))


Made = TypeVar("Made", bound=Installation)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Installation]:
    """An installation that is not set up yet."""
    with running_as(Installation, folder) as product:
        yield product


@contextlib.contextmanager
def running_as(kind: type[Made], folder: Path) -> Iterator[Made]:
    """An installation of this kind that is not set up yet."""
    with servers.Postgres(durable=True) as database, servers.Redis() as broker:
        other = OtherSystem(SECRET)
        product = kind(folder, database=database, broker=broker, other=other)
        try:
            yield product
        finally:
            other.stop()
            product.stop()
