"""Driving one agent on a real node: a thread each for reading the log, asking devices, probing, telling, listening,
doing, rebooting and checking.

Each may hang without stopping another: a driver that blocks, a portal that does not answer, a command that takes
minutes.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from agents.loop import Agent
from agents.retries import FIRST_PAUSE, LONGEST_PAUSE, spread
from agents.rounds import Rounds
from agents.schedule import Schedule
from agents.second_source import SecondSource
from agents.uplink import UplinkError

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds at most between looks at the log; a source that can wait for a line returns earlier
INSPECT = 60.0  # seconds at least between looks at devices: inventories change by hand
LONG_POLL = 30.0
FIRST_LOOK = 5.0  # seconds the first report waits for what the log and the devices say
STOP = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """What looks at the node beside the kernel log; each part may be left out."""

    rounds: Rounds | None = None
    schedule: Schedule | None = None
    second_source: SecondSource | None = None


def run(agent: Agent, *, stop: threading.Event, eyes: Eyes | None = None) -> None:
    """Drive the agent until ``stop`` is set, then store what must be stored. Everything unsent stays in the spool."""
    eyes = eyes or Eyes()
    looked, inspected = threading.Event(), threading.Event()
    interval = max(agent.config.interval.total_seconds(), INSPECT)
    threads = [
        _thread("observe", lambda: _observe(agent, looked, stop), stop),
        _thread("inspect", lambda: _inspect(agent, inspected, stop, interval), stop),
        _thread("report", lambda: _report(agent, (looked, inspected), stop), stop),
        _thread("listen", lambda: _listen(agent, stop), stop),
        _thread("work", lambda: _work(agent, agent.to_do, "acts"), stop),
        _thread("reboot", lambda: _work(agent, agent.to_reboot, "reboots"), stop),
        _thread("check", lambda: _work(agent, agent.to_check, "checks"), stop),
        *_looking(eyes, stop),
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    log.info("stopping, %d reports kept", agent.spool.waiting)
    agent.uplink.close()
    agent.to_report.set()
    agent.to_do.set()
    agent.to_reboot.set()
    agent.to_check.set()
    if eyes.rounds is not None:
        eyes.rounds.wake()
    until = time.monotonic() + STOP
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    agent.close()


def _thread(name: str, step: Callable[[], object], stop: threading.Event) -> threading.Thread:
    def forever() -> None:
        while not stop.is_set():
            try:
                step()
            except Exception:  # a bug or a broken disk in one thread must not end what the thread is for
                log.exception("%s: goes on in 5 s", name)
                stop.wait(5.0)

    return threading.Thread(target=forever, name=name, daemon=True)


def _observe(agent: Agent, looked: threading.Event, stop: threading.Event) -> None:
    more = agent.observe(agent.clock())
    if more:
        return
    looked.set()
    if agent.spool.full:
        stop.wait(LOOK)
        return
    for source in agent.logs.sources:
        source.wait(LOOK / len(agent.logs.sources))


def _inspect(agent: Agent, inspected: threading.Event, stop: threading.Event, interval: float) -> None:
    try:
        agent.inspect(agent.clock())
    finally:
        inspected.set()
    stop.wait(interval)


def _report(agent: Agent, first: tuple[threading.Event, ...], stop: threading.Event) -> None:
    until = time.monotonic() + FIRST_LOOK
    for event in first:
        event.wait(max(0.0, until - time.monotonic()))
    while not stop.is_set():
        agent.to_report.clear()
        if not agent.report_once(agent.clock()):
            agent.to_report.wait(min(max(agent.due_in(agent.clock()), 0.05), LOOK * 5))


def _listen(agent: Agent, stop: threading.Event) -> None:
    pause = FIRST_PAUSE
    while not stop.is_set():
        started = time.monotonic()
        try:
            fresh = agent.offer(agent.uplink.poll_commands(wait=LONG_POLL))
        except UplinkError as error:
            log.debug("long poll: %s", error)
            stop.wait(spread(error.retry_after, pause))
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        pause = FIRST_PAUSE
        if not fresh and time.monotonic() - started < LOOK:
            stop.wait(5 * LOOK)  # offered again what is under way, or a portal that does not wait


def _work(agent: Agent, wake: threading.Event, lane: str) -> None:
    wake.wait(60.0)
    wake.clear()
    agent.work((lane,))


def _looking(eyes: Eyes, stop: threading.Event) -> list[threading.Thread]:
    threads = []
    if eyes.rounds is not None:
        rounds = eyes.rounds
        threads.append(_thread("probe", lambda: rounds.wait(rounds.turn()), stop))
    if eyes.schedule is not None:
        schedule = eyes.schedule
        threads.append(_thread("schedule", lambda: stop.wait(schedule.turn()), stop))
    if eyes.second_source is not None:
        second = eyes.second_source
        threads.append(_thread("events", lambda: stop.wait(second.turn()), stop))
    return threads
