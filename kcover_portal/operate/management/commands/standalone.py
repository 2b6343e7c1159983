"""``manage.py standalone``: portal, worker, scheduler and watch in one process; ``--demo`` adds a simulated cluster."""

import asyncio
import os
import signal
import socket
from argparse import ArgumentParser
from contextlib import closing
from types import FrameType
from typing import Any

import uvicorn
from django.core.management import call_command
from django.core.management.base import BaseCommand

from kcover_portal.celery import app
from kcover_portal.operate import demo, signing_key, sockets
from kcover_portal.operate.embedded import EmbeddedProcesses


class Command(BaseCommand):
    """Serves everything from one process."""

    help = "run portal, worker, scheduler and watch in one process, with embedded defaults"

    def add_arguments(self, parser: ArgumentParser) -> None:
        sockets.add_arguments(parser, host="127.0.0.1")
        parser.add_argument("--demo", action="store_true", help="also start a simulated cluster")
        parser.add_argument("--nodes", type=int, default=os.environ.get("DEMO_NODES") or "200")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrates, then serves until SIGTERM or Ctrl-C."""
        # The web server stops on these signals and raises them again; the exception then stops everything else.
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        signing_key.ensure()
        with closing(sockets.opened(options)) as listener:
            if not options["demo"]:
                call_command("migrate", interactive=False, verbosity=0)
                asyncio.run(serve(listener))
                return
            with demo.alone():
                demo.begin_afresh()
                self._tell("== making the database of the demo")
                call_command("migrate", interactive=False, verbosity=0)
                self._tell(f"== starting {options['nodes']} simulated nodes")
                with demo.start(port=sockets.port_of(listener), nodes=options["nodes"], say=self.stdout.write):
                    asyncio.run(serve(listener))

    def _tell(self, progress: str) -> None:
        self.stdout.write(progress)
        self.stdout.flush()  # a pipe would keep it back


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


async def serve(listener: socket.socket) -> None:
    """Runs the web server and the embedded processes until the server stops."""
    embedded = EmbeddedProcesses(app)
    config = uvicorn.Config(
        "kcover_portal.asgi:application",
        ws_max_size=65536,
        http="kcover_portal.asgi.http_protocol:DeadlineProtocol",
        proxy_headers=False,  # KCOVER_TRUSTED_PROXIES says whom to believe; uvicorn would believe this machine, too
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        lifespan="on",
    )
    embedded.start(asyncio.get_running_loop())
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        await asyncio.to_thread(embedded.stop)
