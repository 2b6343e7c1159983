"""``manage.py serve``: the production processes, each its own, all on this machine, one address for everything."""

import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

STOP_SECONDS = 15.0
BACK_OFF_SECONDS = 2.0


@dataclass(slots=True)
class Process:
    """One of the processes, with the command that starts it (also documented in docs/operations.md)."""

    name: str
    command: list[str]
    running: subprocess.Popen[bytes] | None = None


class Command(BaseCommand):
    """Starts web, live, worker, beat and watch, restarts what dies, stops all together."""

    help = "runs web, live, worker, beat and watch on this machine; PORT (8000) answers everything"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Takes the port."""
        parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
        parser.add_argument("--host", default="0.0.0.0")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or Ctrl-C."""
        if not settings.REDIS_URL:
            raise CommandError("KCOVER_REDIS_URL is not set: several processes need a broker; or run standalone")
        call_command("migrate", interactive=False, verbosity=0)
        web_port = _free_port()
        processes = _processes(host=options["host"], port=options["port"], web_port=web_port)
        environment = {**os.environ, "KCOVER_WEB_URL": f"http://127.0.0.1:{web_port}"}
        stopping = False

        def end(_signal: int, _frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        self.stdout.write(f"kcover portal on http://127.0.0.1:{options['port']}")
        try:
            while not stopping:
                for process in processes:
                    if process.running is None or process.running.poll() is not None:
                        if process.running is not None:
                            self.stderr.write(
                                f"{process.name} ended with {process.running.returncode}, starting it again"
                            )
                            time.sleep(BACK_OFF_SECONDS)
                        process.running = subprocess.Popen(process.command, env=environment)
                time.sleep(0.5)
        finally:
            _stop(processes)


def _processes(*, host: str, port: int, web_port: int) -> list[Process]:
    python = [sys.executable, "-m"]
    worker = [*python, "celery", "-A", "kcover_portal", "worker", "--loglevel", "WARNING"]
    return [
        Process(
            "web",
            [
                *python,
                "gunicorn",
                "--bind",
                f"127.0.0.1:{web_port}",
                "--worker-class",
                "gthread",
                "--workers",
                "2",
                "--threads",
                "8",
                "kcover_portal.wsgi",
            ],
        ),
        Process(
            "live",
            [
                *python,
                "uvicorn",
                "--host",
                host,
                "--port",
                str(port),
                "--log-level",
                "warning",
                "--timeout-graceful-shutdown",
                "5",
                "kcover_portal.asgi:application",
            ],
        ),
        Process("worker", [*worker, "--without-mingle", "--without-gossip"]),
        Process(
            "beat", [*python, "celery", "-A", "kcover_portal", "beat", "--schedule", str(settings.VAR_DIR / "beat")]
        ),
        Process("watch", [sys.executable, "manage.py", "watch"]),
    ]


def _stop(processes: list[Process]) -> None:
    for process in processes:
        if process.running is not None and process.running.poll() is None:
            process.running.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        if process.running is None:
            continue
        try:
            process.running.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.running.kill()
            process.running.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
