"""The demo: a standalone portal with a simulated cluster, KCE's policies, and buttons that inject faults."""

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken, Role, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.operate import demo_pairs, demo_witnesses, processes
from kcover_portal.policies import services as policies

CLUSTER = "demo"
USER = "admin"
POLICIES = settings.BASE_DIR / "deploy" / "policies" / "kce.yaml"
HOLD_DOWN_SECONDS = 5  # short, because visitors wait for it
# Visitors break many nodes in a row and want to see each one rescued, so the statistical guards must not stop them.
GUARDS = {"rate": {"enabled": False}, "storm": {"nodes": 8}}
BOOT_SECONDS = 8
HEARTBEAT_SECONDS = 30  # the default of agents
FAULTS_PER_HOUR = 12  # hardware faults; the more frequent user faults come in addition
QUIET_SECONDS = 300  # until the first of them: a visitor sees the node heal that he asked for, and no other
READY_TIMEOUT_SECONDS = 300
START_SECONDS = 60.0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Locks the demo's folder for this process. Raises CommandError if another demo uses it."""
    folder = settings.VAR_DIR / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"another demo is running in {folder}; stop it first (Ctrl-C)") from error
        yield


def begin_afresh() -> None:
    """Deletes the last demo's database, because the simulated cluster is new each time and has no history."""
    path = Path(settings.DATABASES["default"]["NAME"])
    if path.is_relative_to(settings.VAR_DIR / "demo"):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        if settings.KCOVER_ANCHOR is not None and settings.KCOVER_ANCHOR.is_relative_to(settings.VAR_DIR):
            settings.KCOVER_ANCHOR.unlink(missing_ok=True)  # it anchors the database that was just deleted


@contextlib.contextmanager
def start(*, port: int, nodes: int, say: Callable[[str], object]) -> Iterator[None]:
    """Starts and registers the simulator, creates the user and prints the address. Stops the simulator at the end.

    Raises CommandError if the simulator does not start.
    """
    address = settings.KCOVER_DEMO_URL
    if not address:
        raise CommandError("KCOVER_DEMO_URL is not set; make demo sets it to the simulator's address")
    folder = settings.VAR_DIR / "demo"
    kubeconfig, enrolment = folder / "kubeconfig", folder / "enrolment-token"
    kubeconfig.unlink(missing_ok=True)
    enrolment.unlink(missing_ok=True)  # the simulator waits for the new token; the old one is invalid
    simulator = _simulator(port=port, nodes=nodes, address=address, kubeconfig=kubeconfig, enrolment=enrolment)
    try:
        _wait(simulator, address, kubeconfig)
        cluster, password = _register(kubeconfig, enrolment)
        demo_pairs.begin(cluster, now=timezone.now())
        demo_witnesses.add(cluster, simulator=address, portal=f"http://127.0.0.1:{port}", now=timezone.now())
        say(_welcome(port=port, nodes=nodes, password=password, address=address))
        yield
    finally:
        _stop(simulator)


def _simulator(*, port: int, nodes: int, address: str, kubeconfig: Path, enrolment: Path) -> "subprocess.Popen[bytes]":
    """The simulator in its own process group, so that Ctrl-C reaches it once, through this process."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "simulator",
            "serve",
            "--port",
            address.rpartition(":")[2],
            "--nodes",
            str(nodes),
            "--gpus",
            "8",
            "--kubeconfig-out",
            str(kubeconfig),
            "--portal",
            f"http://127.0.0.1:{port}",
            "--enrol-token-file",
            str(enrolment),
            "--boot-seconds",
            str(BOOT_SECONDS),
            "--heartbeat-seconds",
            str(HEARTBEAT_SECONDS),
            "--faults-per-hour",
            str(FAULTS_PER_HOUR),
            "--quiet-seconds",
            str(QUIET_SECONDS),
        ],
        cwd=settings.WORK_DIR,
        start_new_session=True,
        preexec_fn=processes.end_with_parent,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _wait(simulator: "subprocess.Popen[bytes]", address: str, kubeconfig: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if simulator.poll() is not None:
            raise CommandError(
                f"the simulator exited with {simulator.returncode}; if {address} is in use, set SIM_PORT"
            )
        if kubeconfig.exists() and _answers(f"{address}/readyz"):
            return
        time.sleep(0.1)
    raise CommandError(f"the simulator did not answer at {address} within {START_SECONDS:.0f} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):  # nosec B310
            return True
    except (urllib.error.URLError, OSError):
        return False


def _register(kubeconfig: Path, enrolment: Path) -> tuple[Cluster, str]:
    """Creates the cluster, policies, token and user, or updates existing ones. Returns the user's password, too."""
    now = timezone.now()
    fields = {
        "kubeconfig": kubeconfig.read_text(encoding="utf-8"),
        "hold_down": HOLD_DOWN_SECONDS,
        "guards": GUARDS,
        "ready_within": READY_TIMEOUT_SECONDS,
        "nccl_image": demo_pairs.IMAGE,
    }
    cluster, _ = Cluster.objects.update_or_create(
        name=CLUSTER, defaults=fields, create_defaults={**fields, "created_at": now}
    )
    text, because = POLICIES.read_text(encoding="utf-8"), reasons.of("policy_from_file", file=POLICIES.name)
    policies.apply(text, author="demo", reason="", because=because, now=now)
    _, secret = accounts.make_token(
        ApiToken.Kind.AGENT,
        cluster=cluster,
        name="demo enrolment",
        expires_at=now + timedelta(days=1),
        created_by="demo",
        now=now,
    )
    enrolment.touch(mode=0o600)
    enrolment.write_text(secret, encoding="utf-8")
    password = os.environ.get("DEMO_PASSWORD") or secrets.token_urlsafe(9)
    user = User.objects.filter(username=USER).first()
    if user is None:
        accounts.make_user(USER, password=password, role=Role.ADMIN, created_by="demo", now=now)
    else:
        accounts.set_password(user, password, actor="demo", now=now)
    return cluster, password


def _welcome(*, port: int, nodes: int, password: str, address: str) -> str:
    curl = f"""curl -X POST {address}/sim/faults -d '{{"node": "gpu-0001", "kind": "xid", "code": 62}}'"""
    return "\n".join(
        (
            "",
            f"  kcover portal   http://127.0.0.1:{port}",
            f"  user            {USER}",
            f"  password        {password}",
            f"  fleet           {nodes} simulated nodes; inject a fault with the console's button, or:",
            f"                  {curl}",
            "  Press Ctrl-C to stop.",
            "",
        )
    )


def _stop(simulator: "subprocess.Popen[bytes]") -> None:
    if simulator.poll() is None:
        os.killpg(simulator.pid, signal.SIGTERM)
    try:
        simulator.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(simulator.pid, signal.SIGKILL)
        simulator.wait()
