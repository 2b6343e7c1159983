"""How long an agent waits after a failure, and what its log says about it."""

import logging
import random
from datetime import UTC, datetime, timedelta

from agents.outbox.retries import LONG_PAUSE_SECONDS, Retries
from agents.uplink.protocol import UplinkError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def warnings(caplog):
    return [record.args[-1].args[0] for record in caplog.records if record.levelno == logging.WARNING]


def test_a_long_wait_is_logged_each_time(caplog):
    caplog.set_level(logging.DEBUG, logger="agents.outbox.retries")
    retries = Retries(random.Random(1))
    for number in range(6):
        told = LONG_PAUSE_SECONDS if number in (2, 5) else None
        retries.failed(UplinkError(f"failure {number}", retry_after=told), waiting=1, now=NOW)
    assert warnings(caplog) == ["failure 0", "failure 2", "failure 3", "failure 5"]
    assert retries.remaining(NOW + timedelta(seconds=LONG_PAUSE_SECONDS - 1)) > 0
