"""``manage.py watch``: keeps the fleet in step with every cluster; any number may run, one leads."""

import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from kcover_portal.operate.watching import Watch


class Command(BaseCommand):
    """Runs the watch until told to stop."""

    help = "lists and watches every registered cluster; the leader among those that run does the work"

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs in the foreground; SIGTERM and Ctrl-C end it cleanly."""
        stop = threading.Event()

        def end(_signal: int, _frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        Watch(clock=timezone.now, stop=stop).run()
