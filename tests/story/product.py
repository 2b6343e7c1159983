"""The whole product for a test: a simulated cluster, the portal's processes, and operations on them.

Everything is set up by the commands that users are told to use. On PostgreSQL and Redis each process runs on its own,
so that one can be killed, or all of them under ``serve``; on SQLite it is ``standalone``.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis as redis_client

from simulator import redfish
from tests import migrated, servers, waiting
from tests.story import forks
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
PASSWORD = "correct horse battery"
# A story hurts most of a handful of nodes within seconds, which chance would not: storm, rate and breaker would rightly
# hold the rest back. What they do is tried on the engine (tests/portal/rescue/test_guards.py).
FEW_NODES = json.dumps({"hold_down": 1, **{name: {"enabled": False} for name in ("storm", "rate", "breaker")}})

LARGEST_PAGE = 1000
LOOKED_EVERY = 0.3  # seconds: a look by REST takes the product 10 ms CPU or more
SERVING = ("standalone", "serve", "web", "live")
UVICORN = (
    *("--log-level", "warning", "--no-access-log", "--no-proxy-headers"),
    *("--http", "kcover_portal.asgi.http_protocol:DeadlineProtocol"),
)
LIVE_LIMITS = ("--limit-concurrency", "16000", "--ws-max-size", "65536")


class Product:
    """One running installation. ``processes`` holds what may be killed.

    That is live, worker, beat and watch, or what the one command is that runs all: standalone or serve.
    """

    def __init__(self, folder: Path, *, database: str, redis: str = "", one_command: bool = False) -> None:
        self.folder = folder
        self.names = ["serve"] if one_command else ["live", "worker", "beat", "watch"] if redis else ["standalone"]
        self.listener = servers.listener()  # of whatever process serves; a client waits while that starts
        self.port = self.listener.getsockname()[1]
        self.ports: dict[str, int] = {}  # of processes that listen elsewhere
        self.url = self.agents_url = f"http://127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes] | forks.Fork] = {}
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("KCOVER_")},
            "KCOVER_DATABASE_URL": database,
            "KCOVER_REDIS_URL": redis,
            "KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8",
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "kcover_portal.settings",
        }
        self._may_fork = bool(os.environ.get(forks.VARIABLE)) and not one_command  # `serve` starts its own processes
        self._forks: forks.Forks | None = None
        self.sim = ""
        self.token = ""

    # ---------------------------------------------------------------------------------------------------- set-up

    def set_up(
        self,
        *,
        nodes: int = 8,
        policies: str = "",
        agents: bool = True,
        boot_seconds: float = 1.0,
        simulator: Sequence[str] = (),
        guards: str = FEW_NODES,
    ) -> None:
        """Migrates, starts the simulator, registers it, applies policies, makes tokens, starts the processes.

        ``simulator``: more options for it.
        """
        kubeconfig, enrolment = self.folder / "kubeconfig", self.folder / "enrolment"
        options = ["--portal", self.agents_url, "--enrol-token-file", str(enrolment)] if agents else []
        self._start(
            "simulator",
            *("-m", "simulator", "serve", "--port", "0", "--nodes", str(nodes), "--gpus", "8"),
            *("--kubeconfig-out", str(kubeconfig), "--boot-seconds", str(boot_seconds), "--grace-seconds", "0.3"),
            *("--heartbeat-seconds", "2", *options, *simulator),
        )
        self.sim = self.wait(self._simulator_address, "the simulator to listen")
        path = self.folder / "policies.yaml"
        path.write_text(policies, encoding="utf-8")
        commands = [
            ["migrate", "--verbosity", "0"],
            ["cluster", "add", "sim", "--kubeconfig", str(self.reached_by(kubeconfig))],
            ["cluster", "guards", "sim", "--set", guards],
            self.anna(),
            ["token", "create", "--kind", "operator", "--cluster", "sim"],
            ["token", "create", "--kind", "agent", "--cluster", "sim"],
            *([["policy", "apply", "-f", str(path)]] if policies else []),
        ]
        printed = self.manage_all(commands)
        self.token, secret = printed[4].strip(), printed[5].strip()
        self.start_processes()
        enrolment.write_text(secret, encoding="utf-8")
        self.wait(self._lists_every_node, "the watch to list the nodes")

    def reached_by(self, kubeconfig: Path) -> Path:
        """The kubeconfig by which the portal reaches the simulator, given the simulator's own."""
        return kubeconfig

    def anna(self) -> list[str]:
        """The command that makes the administrator anna, with ``PASSWORD``."""
        path = self.folder / "password"
        path.write_text(PASSWORD, encoding="utf-8")
        return ["user", "create", "anna", "--role", "admin", "--password-file", str(path)]

    def start_processes(self) -> None:
        """Starts whatever of the portal is not running."""
        for name in self.names:
            self.start(name)
        self.wait(self._answers, "the portal to answer")

    def start(self, name: str) -> None:
        """Starts one process of the portal unless it runs. ``web-2`` is a second web server."""
        if name in self.processes and self.processes[name].poll() is None:
            return
        kind = name.partition("-")[0]
        port, fd = self.ports.get(name), str(self.listener.fileno())
        command = {
            "standalone": ("manage.py", "standalone", "--fd", fd),
            "serve": ("manage.py", "serve", "--fd", fd),
            "web": (
                *("-m", "kcover_portal.operate.web_server", *(("--port", str(port)) if port else ("--fd", fd))),
                *("--timeout-keep-alive", "5"),
            ),
            "live": (
                *("-m", "uvicorn", *(("--port", str(port)) if port else ("--fd", fd))),
                *(*UVICORN, *LIVE_LIMITS),
                *("--timeout-graceful-shutdown", "2", "kcover_portal.asgi:application"),
            ),
            "worker": (
                *("-m", "celery", "-A", "kcover_portal", "worker", "--loglevel", "WARNING"),
                *("--without-mingle", "--without-gossip", "--without-heartbeat"),
            ),
            "beat": (
                *("-m", "celery", "-A", "kcover_portal", "beat"),
                *("--schedule", str(self.folder / f"{name}-schedule")),
            ),
            "watch": ("manage.py", "watch"),
        }[kind]
        self._start(name, *command, serves=kind in SERVING)

    def kill(self, name: str) -> None:
        """kill -9 of the process and all that it started, which might hold its port a moment longer."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        waiting.until(lambda: not _is_open(self.ports.get(name, 0)), f"all of {name} to end")

    def stop(self) -> None:
        """Ends everything; a process that does not end on SIGTERM is a failure of the test."""
        stubborn = []
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(timeout=HANG_SECONDS)
            except subprocess.TimeoutExpired:
                stubborn.append(name)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes.clear()
        self.listener.close()
        if self._forks is not None:
            self._forks.close()
            self._forks = None
        assert not stubborn, f"did not end on SIGTERM: {stubborn}\n{self.logs()}"

    def manage(self, *arguments: str) -> str:
        """Runs a management command and returns what it printed."""
        return self.manage_all([list(arguments)])[0]

    def manage_all(self, commands: list[list[str]]) -> list[str]:
        """Runs management commands and returns what each printed."""
        printed = self._forking().commands(commands)
        assert printed is not None, f"{commands} failed\n{self.logs()}"
        return printed

    def logs(self) -> str:
        """The end of what every process printed."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)

    # ---------------------------------------------------------------------------------------------- what users do

    def add_machine_driver(self) -> None:
        """The simulator's Redfish service is the controller of every machine."""
        secret = self.folder / "bmc-password"
        secret.write_text(redfish.PASSWORD, encoding="utf-8")
        settings = {"system": "{node}", "insecure": "true", "off_seconds": "0"}
        given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        credentials = ("--username", redfish.USERNAME, "--password-file", str(secret))
        self.manage("driver", "add", "bmc", "--kind", "redfish", "--url", self.sim, *credentials, *given)

    def inject(self, node: str, code: int, **more: Any) -> None:
        """Hurts a GPU of a simulated node."""
        self.post_sim("/sim/faults", {"node": node, "kind": "xid", "code": code, "gpu": 0, **more})

    def post_sim(self, path: str, body: dict[str, Any]) -> Any:
        """Asks the simulator for something."""
        return call("POST", self.sim + path, body)[1]

    def sim_calls(self, **query: str) -> Any:
        """What was asked of the simulated API server."""
        text = "&".join(f"{key}={value}" for key, value in query.items())
        return call("GET", f"{self.sim}/sim/calls?{text}")[1]

    def sim_node(self, name: str) -> dict[str, Any]:
        """A node as the simulated API server has it."""
        return dict(call("GET", f"{self.sim}/api/v1/nodes/{name}", token=self.sim_token())[1])

    def sim_truth(self, name: str) -> dict[str, Any]:
        """What really happened to a simulated node: its boots, its faults."""
        return dict(call("GET", f"{self.sim}/sim/nodes/{name}")[1])

    def flush_redis(self) -> None:
        """Makes the broker forget everything."""
        with redis_client.Redis.from_url(self.environment["KCOVER_REDIS_URL"]) as client:
            client.flushall()

    def get(self, path: str) -> Any:
        """Reads the portal's REST API as an operator."""
        status, body = call("GET", self.url + path, token=self.token)
        assert status == 200, (path, status, body)
        return body

    def post(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, Any]:
        """Writes to the portal's REST API as an operator."""
        return call("POST", self.url + path, body or {}, token=self.token, headers=headers)

    def rescue_of(self, node: str) -> dict[str, Any] | None:
        """The newest rescue of a node."""
        found = self.get(f"/api/v1/rescues?node={node}")["results"]
        return found[0] if found else None

    def wait_rescue(self, node: str, *states: str, seconds: float = 300, after: int = 0) -> dict[str, Any]:
        """Waits until the newest rescue of the node (newer than ``after``) is in one of the states."""

        def look() -> dict[str, Any] | None:
            rescue = self.rescue_of(node)
            return rescue if rescue and rescue["id"] > after and rescue["state"] in states else None

        try:
            return self.wait(look, f"a rescue of {node} in {states}", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{json.dumps(self.rescue_of(node), indent=1)}\n{error}") from error

    def wait(self, look: Callable[[], T], what: str, *, seconds: float = 300) -> T:
        """Looks until there is something; fails with every process's log."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = look()
            except (urllib.error.URLError, OSError):
                found = None
            if found:
                return found
            dead = [f"{name}: {p.returncode}" for name, p in self.processes.items() if p.poll() is not None]
            if time.monotonic() > deadline or dead:
                raise AssertionError(f"waited for {what}; ended: {dead}\n{self._rescues()}\n{self.logs()}")
            time.sleep(LOOKED_EVERY)

    # ------------------------------------------------------------------------------------------------------ inside

    def _forking(self) -> forks.Forks:
        """The process that has imported the portal."""
        if self._forks is None:
            keep = [self.listener.fileno()]
            self._forks = forks.Forks(self.environment, log=self.folder / "commands.log", keep=keep)
        return self._forks

    def _start(self, name: str, *command: str, serves: bool = False) -> None:
        keep = [self.listener.fileno()] if serves else []
        if self._may_fork and self._forking().environment == self.environment:
            self.processes[name] = self._forking().start(command, log=self.folder / f"{name}.log", keep=keep)
            return
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=keep,
            )

    def _lists_every_node(self) -> bool:
        known = {one["name"] for one in self.get(f"/api/v1/nodes?page_size={LARGEST_PAGE}")["results"]}
        listed = call("GET", f"{self.sim}/api/v1/nodes", token=self.sim_token())[1]["items"]
        return len(known & {one["metadata"]["name"] for one in listed}) >= min(len(listed), LARGEST_PAGE)

    def _simulator_address(self) -> str:
        for line in (self.folder / "simulator.log").read_text().splitlines():
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        return ""

    def sim_token(self) -> str:
        """The token of the kubeconfig."""
        text = (self.folder / "kubeconfig").read_text()
        _, found, rest = text.partition("token:")
        return rest.split()[0].strip("\"'") if found else ""

    def _rescues(self) -> str:
        """The newest rescues and their steps, as far as the portal answers."""
        with contextlib.suppress(AssertionError, OSError):
            if self.token:
                return json.dumps(self.get("/api/v1/rescues?page_size=3")["results"], indent=1)
        return ""

    def _answers(self) -> bool:
        return call("GET", self.url + "/healthz", timeout=5)[0] == 200


def call(
    method: str,
    url: str,
    body: Any = None,
    *,
    token: str = "",
    headers: dict[str, str] | None = None,
    timeout: float = HANG_SECONDS,
) -> tuple[int, Any]:
    """One HTTP request; returns the status and the JSON, or text, that came back."""
    request = urllib.request.Request(
        url, method=method, headers={"Content-Type": "application/json", **(headers or {})}
    )
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data=data, timeout=timeout) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content.decode(errors="replace")


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def on_postgres(folder: Path, *, one_command: bool = False) -> Iterator[Product]:
    """The product on the test run's PostgreSQL (a database of its own) and a Redis of its own."""
    base = os.environ["KCOVER_DATABASE_URL"]
    name = f"story_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated.template()}")
    with servers.redis() as redis:
        database = urlunsplit(urlsplit(base)._replace(path=f"/{name}"))
        product = Product(folder, database=database, redis=redis, one_command=one_command)
        try:
            yield product
        finally:
            product.stop()
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def on_sqlite(folder: Path, *, migrated_file: Path | None = None) -> Iterator[Product]:
    """The product in one process on an SQLite file, with everything embedded; ``migrated_file``: what to copy."""
    file = folder / "kcover.sqlite3"
    if migrated_file is not None:
        shutil.copy(migrated_file, file)
    product = Product(folder, database=f"sqlite:///{file}")
    try:
        yield product
    finally:
        product.stop()
