"""``python -m agents``: run the agent of this machine until SIGTERM or SIGINT."""

import contextlib
import ctypes
import logging
import os
import pathlib
import signal
import urllib.parse

from agents import VERSION, config, metrics_server, setup, supervisor
from agents.agent import Agent

log = logging.getLogger("agents")

M_ARENA_MAX = -8  # <malloc.h>


def main(file: pathlib.Path | None) -> int:
    """Return 0 after SIGTERM or SIGINT. Raises ConfigError, AlreadyRunning."""
    logging.basicConfig(
        level=os.environ.get("KCOVER_AGENT_LOG", "INFO").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    settings = config.load(file, os.environ)
    _limit_memory()
    agent, monitors = setup.build_agent(settings)
    signals = _catch_signals(signal.SIGTERM, signal.SIGINT)
    log.info("agent %s on node %s, kernel log %s, portal %s", VERSION, settings.node, settings.kmsg, settings.url)
    if is_plain_http(settings.url):
        log.warning("the portal is called over plain HTTP: others on the way can read the credential and send commands")
    with contextlib.ExitStack() as stack:
        if settings.listen is not None:
            server = _serve(agent, settings.listen, monitors)
            if server is not None:
                stack.callback(server.close)
        supervisor.run(agent, wait_for_stop=lambda: os.read(signals, 1), monitors=monitors)
    return 0


def _catch_signals(*numbers: signal.Signals) -> int:
    """Return a file descriptor from which a byte can be read once one of the signals has arrived.

    A handler that sets an Event does not suffice. A signal that arrives just before the main thread begins to wait
    does not end that wait, and the handler of a thread that holds the Event's lock waits forever.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return reading


def is_plain_http(url: str) -> bool:
    """Returns whether the URL leads to another machine without TLS."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "http" and host != "localhost" and not host.startswith("127.") and host != "::1"


def _limit_memory() -> None:
    """Use one malloc arena for all threads, and return the memory that starting took: the agent is idle nearly all the
    time."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        libc.mallopt(M_ARENA_MAX, 1)
        libc.malloc_trim(0)


def _serve(
    agent: Agent, address: tuple[str, int], monitors: supervisor.Monitors
) -> metrics_server.MetricsServer | None:
    """The metrics server, or None: an agent works without it."""
    try:
        return metrics_server.MetricsServer(
            agent, address, late_probes=lambda: monitors.probes.late_probes if monitors.probes else ()
        )
    except OSError as error:
        log.warning("cannot serve /metrics and /healthz on %s:%d: %s", *address, error)
        return None
