"""``manage.py watch``: synchronizes the fleet with every cluster. Several can run; one leads."""

import queue
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.operate.watcher import Watch


class Command(BaseCommand):
    """Runs the watch until it is stopped."""

    help = "list and watch every registered cluster; of several processes, only the leader works"

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs in the foreground until SIGTERM or Ctrl-C."""
        stop = threading.Event()
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an Event's set(), safe in a signal handler
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: ended.put(None))

        def watch() -> None:
            try:
                Watch(clock=timezone.now, stop=stop).run()
            finally:
                ended.put(None)

        thread = threading.Thread(target=watch, name="watch")
        thread.start()
        ended.get()
        if not thread.is_alive():
            raise CommandError("the watch ended unexpectedly; see the errors above")
        stop.set()
        thread.join()
