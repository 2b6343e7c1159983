"""``manage.py serve``: all production processes on one machine behind one address."""

import os
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from contextlib import closing
from typing import Any

import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.utils import OperationalError

from kcover_portal.operate import signing_key, sockets
from kcover_portal.operate.processes import Child, Children
from kcover_portal.operate.stop_signals import StopSignals

POLL_SECONDS = 0.2


class Command(BaseCommand):
    """Runs web, live, worker, beat and watch, and restarts processes that exit."""

    requires_system_checks = ()  # of the code (`make check`); they would load all pages, a third of the start
    help = "run web, live, worker, beat and watch on this machine; PORT (8000) serves everything"

    def add_arguments(self, parser: ArgumentParser) -> None:
        sockets.add_arguments(parser, host="0.0.0.0")  # nosec B104

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or Ctrl-C. Raises CommandError if the processes cannot work with the settings."""
        _check_settings()
        stop_signals = StopSignals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with (
            closing(sockets.opened(options)) as front,
            closing(sockets.listen("127.0.0.1", 0)) as back,
            tempfile.TemporaryDirectory(prefix="kcover-") as folder,  # for beat's schedule file, which may be lost
        ):
            _migrate()
            signing_key.ensure()
            self._warn_of_redis()
            children = Children(
                processes(front=front.fileno(), back=back.fileno(), schedule_file=f"{folder}/beat"),
                folder=settings.WORK_DIR,
                environment={**os.environ, "KCOVER_WEB_URL": f"http://127.0.0.1:{sockets.port_of(back)}"},
                say=lambda text: self.stderr.write(f"serve: {text}"),
            )
            self.stdout.write(f"kcover portal on http://127.0.0.1:{sockets.port_of(front)} (Ctrl-C to stop)")
            self.stdout.flush()
            try:
                while not stop_signals.wait(seconds=POLL_SECONDS):
                    children.look_after(now=time.monotonic())
            finally:
                children.stop()

    def _warn_of_redis(self) -> None:
        """Warns if Redis does not answer. It only carries wake-ups, and may start later."""
        with closing(redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)) as client:
            try:
                client.ping()
            except redis.RedisError as error:
                self.stderr.write(
                    f"serve: Redis (KCOVER_REDIS_URL) does not answer; no work is done until it does: {error}"
                )


def _check_settings() -> None:
    missing = []
    if connection.vendor != "postgresql":
        missing.append(
            "KCOVER_DATABASE_URL=postgres://USER:PASSWORD@HOST:PORT/NAME (several processes need PostgreSQL)"
        )
    if not settings.REDIS_URL:
        missing.append("KCOVER_REDIS_URL=redis://HOST:PORT/DB (several processes need a broker)")
    if missing:
        raise CommandError(
            "\n  ".join(("serve needs these in the environment:", *missing))
            + "\nTo run without them in a single process, use: manage.py standalone"
        )


def _migrate() -> None:
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except OperationalError as error:
        raise CommandError(f"the database (KCOVER_DATABASE_URL) does not answer: {error}") from error


def processes(*, front: int, back: int, schedule_file: str) -> list[Child]:
    """Returns the five processes, as docs/operations/install/install.md lists them.

    This process owns the listening sockets. While a server restarts, its clients wait instead of being refused.
    """
    module = (sys.executable, "-m")
    celery = (*module, "celery", "-A", "kcover_portal", "--quiet")
    uvicorn = "uvicorn --log-level warning --no-access-log --timeout-graceful-shutdown 5 --limit-concurrency 16000"
    # The address of the client comes from KCOVER_TRUSTED_PROXIES alone; uvicorn would believe this machine, too.
    protocol = ("--http", "kcover_portal.asgi.http_protocol:DeadlineProtocol", "--no-proxy-headers")
    return [
        Child(
            name="web",
            command=(*module, "kcover_portal.operate.web_server", "--fd", str(back), "--timeout-keep-alive", "30"),
            sockets=(back,),
        ),
        Child(
            name="live",
            command=(
                *(*module, *uvicorn.split(), *protocol, "--ws-max-size", "65536"),
                *("--fd", str(front), "kcover_portal.asgi:application"),
            ),
            sockets=(front,),
        ),
        Child(
            name="worker",
            command=(
                *(*celery, "worker", "--loglevel", "WARNING"),
                *("--without-mingle", "--without-gossip", "--without-heartbeat"),
            ),
        ),
        Child(name="beat", command=(*celery, "beat", "--schedule", schedule_file)),
        Child(name="watch", command=(*module, "kcover_portal", "watch")),
    ]
