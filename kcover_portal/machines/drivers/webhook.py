"""A signed POST to a system that carries out the request, such as a function that calls a cloud's API.

The request has one name however often it is sent (``delivery``), so its receiver can carry it out once. Only the node's
boot ID shows that it was carried out. The receiver answers 2xx if it accepts the request.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kcover_portal.lib import outgoing
from kcover_portal.machines.drivers import values
from kcover_portal.machines.drivers.values import Machine, Switched

DELIVERY: Final = "X-Kcover-Delivery"
POWER_CYCLE, TEST = "power.cycle", "test"
VERSION: Final = 1
LATER: Final = (408, 425, 429, 503)  # not accepted now; another attempt may succeed


def ask(machine: Machine, document: Mapping[str, Any], *, action: str, delivery: str) -> Switched:
    """One signed request. ``document``: the node and its machine."""
    body = {"version": VERSION, "action": action, "delivery": delivery, **document}
    try:
        reply = outgoing.send(
            machine.url, body, secret=machine.password, seconds=machine.seconds, headers={DELIVERY: delivery}, most=0
        )
    except outgoing.NoResponse as silence:
        return values.of_silence(silence)
    return values.of_answer(reply.status, host=urlsplit(machine.url).netloc, later=LATER)
