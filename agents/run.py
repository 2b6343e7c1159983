"""``python -m agents``: run the agent of this machine until SIGTERM or SIGINT."""

import contextlib
import ctypes
import logging
import os
import pathlib
import select
import signal
import urllib.parse

from agents import VERSION, config, metrics_server, setup, supervisor
from agents.agent import Agent
from agents.errors import ConfigError

log = logging.getLogger("agents")

FILE_SECONDS = 30.0  # between looks at the settings file
M_ARENA_MAX = -8  # <malloc.h>


def main(file: pathlib.Path | None) -> int:
    """Return 0 after SIGTERM or SIGINT, or after the settings file has changed: systemd or the kubelet then starts the
    agent with the new settings. Raises ConfigError, AlreadyRunning."""
    logging.basicConfig(
        level=os.environ.get("KCOVER_AGENT_LOG", "INFO").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    content = _content(file)  # before it is parsed, so that no change is missed
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
        supervisor.run(agent, wait_for_stop=lambda: wait_for_stop(signals, file, content), monitors=monitors)
    return 0


def wait_for_stop(signals: int, file: pathlib.Path | None, content: bytes | None) -> None:
    """Returns once a signal has arrived, or once ``file`` has another valid content. Invalid settings are logged once,
    and the agent goes on with the ones that it has.

    A content counts when two looks in a row find it: a file that is being written may be valid in between.
    """
    before = content
    while not select.select([signals], [], [], None if file is None else FILE_SECONDS)[0]:
        found, last = _content(file), before
        before = found
        if found in (None, content) or found != last:
            continue
        content = found
        try:
            config.load(file, os.environ)
        except ConfigError as error:
            log.error("the changed settings are refused, and the agent goes on with the former ones: %s", error)
        else:
            log.info("%s has changed: stopping, to be started with it", file)
            return


def _content(file: pathlib.Path | None) -> bytes | None:
    """None without a file, and while it cannot be read, as during a change of a ConfigMap."""
    try:
        return file.read_bytes() if file else None
    except OSError:
        return None


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
