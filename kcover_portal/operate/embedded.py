"""Worker, scheduler and watch as threads of one process, for one machine without Redis.

Tasks and rows are the same as in a larger installation. Only the broker is in memory; the sweep finds work whose
messages were lost when the process ended.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from celery import Celery, beat
from celery.worker import WorkController
from django.conf import settings
from django.utils import timezone

from kcover_portal.lib import doorbell
from kcover_portal.operate.scheduler import Scheduler
from kcover_portal.operate.watcher import Watch

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0


class EmbeddedProcesses:
    """Worker, scheduler and watch in the process of the web server."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._stop = threading.Event()
        self._watch = Watch(clock=timezone.now, stop=self._stop)
        self._worker: WorkController | None = None
        self._beat: beat.Service | None = None
        self._threads: list[threading.Thread] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts all three. ``loop`` is the web server's event loop, which must send in-memory signals."""
        doorbell.attach(loop)
        self._app.finalize()
        self._worker = self._app.WorkController(
            app=self._app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=settings.CELERY_WORKER_CONCURRENCY,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            loglevel=logging.WARNING,
            logfile=None,
            pidfile=None,
        )
        self._beat = beat.Service(self._app, max_interval=1, scheduler_cls=Scheduler)
        self._thread("worker", self._worker.start)
        self._thread("beat", self._beat.start)
        self._thread("watch", self._watch.run)

    def stop(self) -> None:
        """Stops all three and waits for them, up to a timeout."""
        self._stop.set()
        if self._beat is not None:
            self._beat.stop()
        if self._worker is not None:
            self._worker.stop(in_sighandler=False)
        for thread in self._threads:
            thread.join(timeout=STOP_SECONDS / len(self._threads))

    def _thread(self, name: str, target: Callable[[], object]) -> None:
        thread = threading.Thread(target=self._guard, args=(name, target), name=f"embedded-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guard(self, name: str, target: Callable[[], object]) -> None:
        try:
            target()
        except Exception:
            if not self._stop.is_set():
                log.exception("the embedded %s ended", name)
