"""Run one agent on a real node, with a thread for each task.

The tasks are: read the log, read the inventory, probe, report, poll for commands, execute commands (one thread for each
lane), run checks. A task that hangs does not stop another: a driver that blocks, a portal that does not answer, a
command that takes minutes.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from agents.agent import Agent
from agents.checks.schedule import CheckSchedule
from agents.commands.journal import LANES
from agents.outbox.evidence_files import EvidenceFiles
from agents.outbox.preflight_files import PreflightFiles
from agents.outbox.retries import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, jittered_delay
from agents.probes.gpu.nvml_events import XidEventMonitor
from agents.probes.probe_runner import ProbeRunner
from agents.uplink.protocol import UplinkError

log = logging.getLogger(__name__)

LOG_POLL_SECONDS = 1.0  # of one wait for a line, and so the longest time that stopping takes
IDLE_LOG_SECONDS = 10.0  # between reads of a log without new lines: a read costs five times as much as a wait
MAX_REPORT_WAIT_SECONDS = 15.0  # the clock may be set while the thread waits
POLL_PAUSE_SECONDS = 5.0  # after an answer to a long poll that came at once
INVENTORY_INTERVAL_SECONDS = 60.0  # at least; people change the inventory, by hand
LONG_POLL_SECONDS = 30.0
FIRST_REPORT_WAIT_SECONDS = 5.0  # the first report waits this long for the log and the inventory
STOP_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitors:
    """The observers of the node apart from the kernel log. Each part is optional."""

    probes: ProbeRunner | None = None
    checks: CheckSchedule | None = None
    xid_events: XidEventMonitor | None = None
    preflight: PreflightFiles | None = None
    evidence: EvidenceFiles | None = None


def run(agent: Agent, *, wait_for_stop: Callable[[], object], monitors: Monitors | None = None) -> None:
    """Run the agent until ``wait_for_stop`` returns, then store its state. Reports that were not sent stay in the
    spool."""
    stop = threading.Event()
    monitors = monitors or Monitors()
    log_read, inventory_read = threading.Event(), threading.Event()
    interval = max(agent.config.interval.total_seconds(), INVENTORY_INTERVAL_SECONDS)
    threads = [
        _thread("observe", lambda: _observe(agent, log_read, stop), stop),
        _thread("inspect", lambda: _inspect(agent, inventory_read, stop, interval), stop),
        _thread("report", lambda: _report(agent, (log_read, inventory_read), stop), stop),
        _thread("poll", lambda: _poll_commands(agent, stop), stop),
        *(_thread(lane, functools.partial(_execute, agent, lane), stop) for lane in LANES),
        *_monitor_threads(monitors, stop),
    ]
    for thread in threads:
        thread.start()
    wait_for_stop()
    stop.set()
    log.info("stopping; %d unsent reports stay in the spool", agent.spool.waiting)
    agent.uplink.close()
    agent.report_due.set()
    for due in agent.commands_due.values():
        due.set()
    if monitors.probes is not None:
        monitors.probes.wake()
    if monitors.evidence is not None:
        monitors.evidence.wake()
    until = time.monotonic() + STOP_TIMEOUT_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    agent.close()


def _thread(name: str, step: Callable[[], object], stop: threading.Event) -> threading.Thread:
    def forever() -> None:
        while not stop.is_set():
            try:
                step()
            except Exception:  # a bug or a broken disk must not end the thread
                log.exception("thread %s failed; it continues in 5 s", name)
                stop.wait(5.0)

    return threading.Thread(target=forever, name=name, daemon=True)


def _observe(agent: Agent, log_read: threading.Event, stop: threading.Event) -> None:
    more = agent.observe(agent.clock())
    if more:
        return
    log_read.set()
    if agent.spool.full:
        stop.wait(LOG_POLL_SECONDS)
        return
    seconds = LOG_POLL_SECONDS / len(agent.logs.sources)
    until = time.monotonic() + (0.0 if agent.logs.is_holding else IDLE_LOG_SECONDS)
    while not any(source.wait(seconds) for source in agent.logs.sources):
        if stop.is_set() or time.monotonic() >= until:
            return


def _inspect(agent: Agent, inventory_read: threading.Event, stop: threading.Event, interval: float) -> None:
    try:
        agent.inspect(agent.clock())
    finally:
        inventory_read.set()
    stop.wait(interval)


def _report(agent: Agent, first: tuple[threading.Event, ...], stop: threading.Event) -> None:
    until = time.monotonic() + FIRST_REPORT_WAIT_SECONDS
    for event in first:
        event.wait(max(0.0, until - time.monotonic()))
    while not stop.is_set():
        agent.report_due.clear()
        if not agent.report_once(agent.clock()):
            agent.report_due.wait(min(max(agent.seconds_until_due(agent.clock()), 0.05), MAX_REPORT_WAIT_SECONDS))


def _poll_commands(agent: Agent, stop: threading.Event) -> None:
    pause = FIRST_PAUSE_SECONDS
    while not stop.is_set():
        started = time.monotonic()
        try:
            fresh = agent.offer(agent.uplink.poll_commands(wait=LONG_POLL_SECONDS))
        except UplinkError as error:
            log.debug("long poll: %s", error)
            stop.wait(jittered_delay(error.retry_after, pause))
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
            continue
        pause = FIRST_PAUSE_SECONDS
        if not fresh and time.monotonic() - started < LOG_POLL_SECONDS:
            stop.wait(POLL_PAUSE_SECONDS)  # a running command was offered again, or the portal does not wait


def _execute(agent: Agent, lane: str) -> None:
    agent.commands_due[lane].wait(60.0)
    agent.commands_due[lane].clear()
    agent.execute_commands((lane,))


def _monitor_threads(monitors: Monitors, stop: threading.Event) -> list[threading.Thread]:
    threads = []
    if monitors.probes is not None:
        probes = monitors.probes
        threads.append(_thread("probe", lambda: probes.wait(probes.run_due()), stop))
    if monitors.checks is not None:
        checks = monitors.checks
        threads.append(_thread("checks", lambda: stop.wait(checks.run_due()), stop))
    if monitors.xid_events is not None:
        xid_events = monitors.xid_events
        threads.append(_thread("events", lambda: stop.wait(xid_events.run_once()), stop))
    if monitors.preflight is not None:
        preflight = monitors.preflight
        threads.append(_thread("preflight", lambda: stop.wait(preflight.run_round()), stop))
    if monitors.evidence is not None:
        evidence = monitors.evidence
        threads.append(_thread("uploads", lambda: evidence.wait(evidence.run_round()), stop))
    return threads
