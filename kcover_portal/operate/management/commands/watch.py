"""``manage.py watch``: synchronizes the fleet with every cluster. Several can run; one leads."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover_portal.operate.stop_signals import StopSignals
from kcover_portal.operate.watcher import Watch

POLL_SECONDS = 0.5


class Command(BaseCommand):
    """Runs the watch until it is stopped."""

    requires_system_checks = ()  # of the code (`make check`); they would load all pages, a third of the start
    help = "list and watch every registered cluster; of several processes, only the leader works"

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs in the foreground until SIGTERM or Ctrl-C."""
        stop = threading.Event()
        stop_signals = StopSignals(signal.SIGTERM, signal.SIGINT)
        thread = threading.Thread(target=Watch(clock=timezone.now, stop=stop).run, name="watch")
        thread.start()
        while not stop_signals.wait(seconds=POLL_SECONDS):
            if not thread.is_alive():
                raise CommandError("the watch ended unexpectedly; see the errors above")
        stop.set()
        thread.join()
