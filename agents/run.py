"""``python -m agents``: the agent of this machine, until it is told to stop."""

import contextlib
import ctypes
import logging
import os
import pathlib
import signal
import threading

from agents import VERSION, config, local, loop, process, setup

log = logging.getLogger("agents")

M_ARENA_MAX = -8  # <malloc.h>


def main(file: pathlib.Path | None) -> int:
    """Returns 0 after SIGTERM or SIGINT. Raises ConfigError, Occupied."""
    logging.basicConfig(
        level=os.environ.get("KCOVER_AGENT_LOG", "INFO").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    settings = config.load(file, os.environ)
    _be_small()
    agent, eyes = setup.agent(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("agent %s on %s, log %s, portal %s", VERSION, settings.node, settings.kmsg, settings.url)
    with contextlib.ExitStack() as stack:
        if settings.listen is not None:
            server = _serve(agent, settings.listen, eyes)
            if server is not None:
                stack.callback(server.close)
        process.run(agent, stop=stop, eyes=eyes)
    return 0


def _be_small() -> None:
    """One heap for all threads, and what the start has used goes back: an agent is idle nearly all its life."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        libc.mallopt(M_ARENA_MAX, 1)
        libc.malloc_trim(0)


def _serve(agent: loop.Agent, address: tuple[str, int], eyes: process.Eyes) -> local.Server | None:
    """The local addresses; an agent that cannot have them works all the same."""
    try:
        return local.Server(agent, address, late=lambda: eyes.rounds.late if eyes.rounds else ())
    except OSError as error:
        log.warning("no /metrics and /healthz on %s:%d: %s", *address, error)
        return None
