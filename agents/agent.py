"""The agent of one node: read the logs, keep faults, send reports, execute commands.

It starts no threads; ``supervisor`` drives it on a real node. The driver calls ``observe`` (read the logs), ``inspect``
(read the inventory), ``report_once`` (send a report) and ``execute_commands`` as often as it likes, each from its own
thread if it likes. A driver that sends reports in its own way calls ``next_report``, ``settle`` and ``postpone``
instead of ``report_once``.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from agents.commands.journal import LANES, Executor, Journal
from agents.config import Config
from agents.outbox import reports
from agents.outbox.overflow import Overflow
from agents.outbox.reports import OutgoingReport
from agents.outbox.retries import Retries
from agents.outbox.spool import Spool
from agents.probes.figures import GpuFigures
from agents.probes.log.reader import LogReader
from agents.probes.log.sources import Source
from agents.uplink.protocol import ReportDeferred, ReportMalformed, Uplink, UplinkError
from kcover import wire
from kcover.faults.fault import Check, Command, Fault, Inventory

log = logging.getLogger(__name__)

SAVE_INTERVAL = timedelta(minutes=1)  # after a crash, at most this much of a log without faults is read again


class Agent:
    """The whole state of one agent. Hundreds of agents may run in one process."""

    def __init__(
        self,
        config: Config,
        *,
        sources: Sequence[Source],
        clock: Callable[[], datetime],
        boot_id: Callable[[], str],
        inventory: Callable[[], Inventory],
        uplink: Uplink,
        spool: Spool,
        executor: Executor,
        rng: random.Random | None = None,
    ) -> None:
        """``clock`` returns aware UTC times. ``boot_id`` and ``inventory`` are called repeatedly, and their results may
        change.

        The spool's store also holds the command journal. ``rng`` spreads heartbeats and retries over time.
        """
        self.config = config
        self.clock = clock
        self.uplink = uplink
        self.spool = spool
        self.logs = LogReader(sources, spool.mark)
        self.journal = Journal(spool.store, executor, sink=self.record)
        self.report_due = threading.Event()  # set when there is something to report at once
        self.commands_due = {lane: threading.Event() for lane in LANES}  # all set when a new command arrives
        self.observed_at: datetime | None = None  # when the logs were last read
        self.results: dict[tuple[str, str], Check] = {}  # the latest results by check and device
        self.caught_up = False  # the logs are read to their end; False while the spool is full
        self._boot_id, self._read_inventory = boot_id, inventory
        self._rng = rng or random.Random()  # nosec B311
        self.figures = GpuFigures(config.node)
        self._saved_at: datetime | None = None
        self._inventory: Inventory | None = None
        self._reported_inventory: Inventory | None = None
        self._reported_at: datetime | None = None  # when the portal last accepted a report of this boot
        self._reported_boot = ""
        self._interval = config.heartbeat
        self._retries = Retries(self._rng)
        self._deferred = False  # the portal refused the last report for now; it is kept
        self._overflow = Overflow()

    def observe(self, now: datetime) -> bool:
        """Read the logs and keep the faults found. Return True if there is more to read at once.

        Nothing is read while the spool is full; the kernel's ring buffer and the log file keep their records meanwhile.
        Raises OSError if the boot ID cannot be read.
        """
        self.observed_at = now
        if self.spool.full:
            self.caught_up = False
            return False
        boot_id = self._boot_id()
        self._spool_faults(self._overflow.take(), boot_id=boot_id, now=now)
        update = self.logs.read(boot_id=boot_id, now=now)
        self.caught_up = not update.more
        if update.faults or update.checks:
            self._record_log(update.faults, update.checks, boot_id=boot_id, now=now)
        elif update.moved:
            self.spool.set_mark(self.logs.mark)
        if self._saved_at is None or not timedelta() <= now - self._saved_at < SAVE_INTERVAL:
            self._saved_at = now
            self.spool.save()
        return update.more

    def inspect(self, now: datetime) -> None:
        """Read the inventory; a change is sent with the next report. Blocks as long as the driver does."""
        inventory = self._read_inventory()
        if inventory != self._inventory:
            log.info("inventory: driver %s, %d GPUs", inventory.driver or "none", len(inventory.gpus))
            self._inventory = inventory
            self.report_due.set()

    @property
    def inventory(self) -> Inventory | None:
        """The inventory as last read; None if it was never read."""
        return self._inventory

    @property
    def reported_at(self) -> datetime | None:
        """The time when the portal last accepted a report of this boot."""
        return self._reported_at

    def record(self, checks: Sequence[Check], faults: Sequence[Fault], now: datetime) -> None:
        """Keep what probes and checks found, and report it at once. While the spool is full, equal faults are merged
        and counted. Raises OSError if the boot ID cannot be read."""
        boot_id = self._boot_id()
        self.results |= {(check.name, check.device): check for check in checks}
        if self.spool.full:
            self._overflow.add(reports.with_gpu_uuid(faults, self._inventory))
        else:
            self._spool_faults(reports.with_gpu_uuid(faults, self._inventory), boot_id=boot_id, now=now)
        for part in reports.check_batches(checks):
            self.spool.append(reports.findings_report(self.config.node, (), part, boot_id=boot_id, now=now))
        for fault in faults:
            log.warning("fault: %s %s pci=%s count=%d%s", *reports.log_fields(fault))
        self.report_due.set()

    def report_once(self, now: datetime) -> bool:
        """Send one report if one is due. Return True where it was accepted; another one may be due at once."""
        outgoing = self.next_report(now)
        if outgoing is None:
            return False
        try:
            answer = self.uplink.post_report(outgoing.body)
        except UplinkError as error:
            self.postpone(outgoing, error, now=now)
            return False
        self.settle(outgoing, answer, now=now)
        return True

    def next_report(self, now: datetime) -> OutgoingReport | None:
        """The report to send now: the oldest in the spool, or a heartbeat if one is due. None if there is neither.

        While a backlog is sent, heartbeats still go out at every interval, because spooled reports may belong to an
        earlier boot. Only heartbeats carry the results of commands.
        """
        if self._retries.remaining(now) > 0:
            return None
        boot_id = self._boot_id()
        if self._reported_at is None or boot_id != self._reported_boot:
            # Faults go first: a portal that waits for the first report of this boot must not miss them. A report that
            # the portal refuses for now must not block the heartbeat, though.
            overdue = self._deferred
        else:
            overdue = not timedelta() <= now - self._reported_at < self._interval
        report = None if overdue else self.spool.next_report()
        if report is not None:
            return reports.from_spool(report, now=now)
        inventory = self._inventory if self._inventory != self._reported_inventory else None
        due = overdue or inventory is not None or boot_id != self._reported_boot
        results = self.journal.results(now=now, boot_id=boot_id, resend=due)
        if not due and not results:
            return None
        figures = self.figures.due(now)
        return reports.heartbeat(
            self.config.node, boot_id=boot_id, inventory=inventory, results=results, figures=figures, now=now
        )

    def settle(self, outgoing: OutgoingReport, answer: wire.Answer, *, now: datetime) -> None:
        """Handle an accepted report: delete it, and take in the commands of the answer."""
        for rejected in answer.rejected:
            log.warning("report %s: %s rejected: %s", outgoing.batch_id, rejected.path, rejected.reason)
        for unread in answer.unsupported:
            log.warning("answer to report %s: %s cannot be read: %s", outgoing.batch_id, unread.path, unread.reason)
        self._acknowledge(outgoing, now=now)
        self._retries.succeeded()
        self._deferred = False
        if outgoing.boot_id == self._boot_id():
            if self._reported_at is None:  # many nodes may start at once: spread their heartbeats over time
                self._interval = self.config.heartbeat * self._rng.uniform(0.3, 1.0)
            else:
                self._interval = self.config.heartbeat
            self._reported_at, self._reported_boot = now, outgoing.boot_id
        self.offer(answer.commands)

    def postpone(self, outgoing: OutgoingReport, error: UplinkError, *, now: datetime) -> None:
        """Handle a refused report: drop it if the portal's answer requires it, otherwise send it again later."""
        if isinstance(error, ReportMalformed):
            log.error("report %s dropped, the portal will never accept it: %s", outgoing.batch_id, error)
            self._acknowledge(outgoing, now=now)
            # Otherwise a heartbeat that the portal calls malformed would be sent again at once.
            self._reported_at, self._reported_boot = now, self._boot_id()
            return
        if outgoing.spooled:
            self._deferred = self._retries.must_yield(outgoing.batch_id, error)
        else:
            self._deferred = isinstance(error, ReportDeferred)
        if self._deferred:
            self.spool.defer(outgoing.batch_id)
        self._retries.failed(error, waiting=self.spool.waiting, now=now)

    def seconds_until_due(self, now: datetime) -> float:
        """Seconds until ``next_report`` may return a report; 0 means now."""
        remaining = self._retries.remaining(now)
        if (
            remaining > 0
            or self.spool.ready
            or self._reported_at is None
            or self._inventory != self._reported_inventory
        ):
            return remaining
        return max(0.0, (self._interval - abs(now - self._reported_at)).total_seconds())

    def offer(self, commands: Iterable[Command]) -> bool:
        """Take in commands from the portal; each is executed once. Return True if one of them is new."""
        fresh = self.journal.offer(commands)
        if fresh:
            for due in self.commands_due.values():
                due.set()
        return fresh

    def execute_commands(self, lanes: Sequence[str] = LANES) -> int:
        """Execute the commands offered so far. Return how many finished. Blocks until they have."""
        finished = self.journal.execute(clock=self.clock, boot_id=self._boot_id(), lanes=lanes)
        if finished:
            self.report_due.set()
        return finished

    def close(self) -> None:
        """Store the log position and the faults of the overflow, then close the logs."""
        if self._overflow:
            self._spool_faults(self._overflow.take(), boot_id=self._boot_id(), now=self.clock())
        self.spool.save()
        self.logs.close()

    def _record_log(self, faults: Sequence[Fault], checks: Sequence[Check], *, boot_id: str, now: datetime) -> None:
        named = reports.with_gpu_uuid(faults, self._inventory)
        parts = reports.fault_batches(named) or [()]
        before = self.spool.mark
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            report = reports.findings_report(self.config.node, part, checks if last else (), boot_id=boot_id, now=now)
            # Only the last part carries the new mark: after a crash in between, the lines are read again, never lost.
            self.spool.append(report, mark=self.logs.mark if last else before)
        for fault in named:
            log.warning("fault: %s %s pci=%s count=%d%s", *reports.log_fields(fault))
        self.report_due.set()

    def _spool_faults(self, faults: Sequence[Fault], *, boot_id: str, now: datetime) -> None:
        for part in reports.fault_batches(faults):
            self.spool.append(reports.findings_report(self.config.node, part, boot_id=boot_id, now=now))

    def _acknowledge(self, outgoing: OutgoingReport, *, now: datetime) -> None:
        self.spool.acknowledge(outgoing.batch_id)
        self._retries.forget(outgoing.batch_id)
        if outgoing.results:
            self.journal.acknowledge(outgoing.results, now=now)
        if outgoing.inventory is not None:
            self._reported_inventory = outgoing.inventory
        if outgoing.figures_at is not None:
            self.figures.accepted(outgoing.figures_at)
