"""One node's agent: look, keep, tell, obey. Synchronous and free of threads; ``process`` drives it on a real node.

Whoever drives it calls ``observe`` (reads the log, keeps faults), ``inspect`` (asks the devices), ``report_once``
(tells) and ``work`` (executes commands), each as often as it likes, from a thread each if it likes. A driver with its
own way of sending uses ``pending``, ``settle`` and ``postpone`` in place of ``report_once``.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from agents import reports
from agents.commands import LANES, Executor, Journal
from agents.config import Config
from agents.logs import Logs
from agents.overflow import Overflow
from agents.probes import follow
from agents.reports import Outgoing
from agents.retries import Retries
from agents.spool import Spool
from agents.uplink import Malformed, SetAside, Uplink, UplinkError
from kcover import wire
from kcover.fault import Check, Command, Fault, Inventory

log = logging.getLogger(__name__)

SAVE_EVERY = timedelta(minutes=1)  # how much of a log without faults is read again after a crash


class Agent:
    """All state of one agent. Hundreds may live in one process."""

    def __init__(
        self,
        config: Config,
        *,
        sources: Sequence[follow.Source],
        clock: Callable[[], datetime],
        boot_id: Callable[[], str],
        inventory: Callable[[], Inventory],
        uplink: Uplink,
        spool: Spool,
        executor: Executor,
        rng: random.Random | None = None,
    ) -> None:
        """``clock`` gives aware UTC times; ``boot_id`` and ``inventory`` are asked again and again, and may change.

        The spool's store also keeps the command journal. ``rng`` spreads heartbeats and retries.
        """
        self.config = config
        self.clock = clock
        self.uplink = uplink
        self.spool = spool
        self.logs = Logs(sources, spool.mark)
        self.journal = Journal(spool.store, executor, keep=self.take)
        self.to_report = threading.Event()  # set when there is something to tell at once
        self.to_do = threading.Event()  # set when there is a command to execute
        self.to_check = threading.Event()  # set with it, for a thread that works on the checks alone
        self.to_reboot = threading.Event()  # and for one that works on reboots alone
        self.observed_at: datetime | None = None  # when the logs were last looked at
        self.results: dict[tuple[str, str], Check] = {}  # the latest by check and device
        self.caught_up = False  # the logs are read to their end, and not left unread as the spool is full
        self._boot_id, self._ask_inventory = boot_id, inventory
        self._rng = rng or random.Random()
        self._saved_at: datetime | None = None
        self._inventory: Inventory | None = None
        self._told_inventory: Inventory | None = None
        self._alive_at: datetime | None = None  # when the portal last took a report about this boot
        self._alive_boot = ""
        self._interval = config.heartbeat
        self._retries = Retries(self._rng)
        self._refused = False  # the last report was kept, but the portal did not want it
        self._overflow = Overflow()

    # see

    def observe(self, now: datetime) -> bool:
        """Read the logs and keep what they tell. True: there is more to read at once.

        Reads nothing while the spool is full: the kernel's ring and the file keep their records meanwhile. Raises
        OSError where the boot id cannot be read.
        """
        self.observed_at = now
        if self.spool.full:
            self.caught_up = False
            return False
        boot_id = self._boot_id()
        self._append(self._overflow.take(), boot_id=boot_id, now=now)
        news = self.logs.look(boot_id=boot_id, now=now)
        self.caught_up = not news.more
        if news.faults or news.checks:
            self._keep(news.faults, news.checks, boot_id=boot_id, now=now)
        elif news.moved:
            self.spool.remember(self.logs.mark)
        if self._saved_at is None or not timedelta() <= now - self._saved_at < SAVE_EVERY:
            self._saved_at = now
            self.spool.save()
        return news.more

    def inspect(self, now: datetime) -> None:
        """Ask what the node is made of; what changed goes with the next report. May block as long as the driver
        does."""
        inventory = self._ask_inventory()
        if inventory != self._inventory:
            log.info("inventory: driver %s, %d GPUs", inventory.driver or "none", len(inventory.gpus))
            self._inventory = inventory
            self.to_report.set()

    @property
    def inventory(self) -> Inventory | None:
        """What the node is made of, as far as it was asked."""
        return self._inventory

    @property
    def reported_at(self) -> datetime | None:
        """When the portal last took a report about this boot."""
        return self._alive_at

    def take(self, checks: Sequence[Check], faults: Sequence[Fault], now: datetime) -> None:
        """Keep what probes and checks found, to be told at once; while the spool is full equal faults become one with
        their count. Raises OSError where the boot id cannot be read."""
        boot_id = self._boot_id()
        self.results |= {(check.name, check.device): check for check in checks}
        if self.spool.full:
            self._overflow.add(reports.with_gpu(faults, self._inventory))
        else:
            self._append(reports.with_gpu(faults, self._inventory), boot_id=boot_id, now=now)
        for part in reports.check_parts(checks):
            self.spool.append(reports.found(self.config.node, (), part, boot_id=boot_id, now=now))
        for fault in faults:
            log.warning("fault: %s %s pci=%s count=%d%s", *reports.words(fault))
        self.to_report.set()

    # tell

    def report_once(self, now: datetime) -> bool:
        """Send one report if one is due. True: it was taken, another one may be due at once."""
        outgoing = self.pending(now)
        if outgoing is None:
            return False
        try:
            answer = self.uplink.post_report(outgoing.body)
        except UplinkError as error:
            self.postpone(outgoing, error, now=now)
            return False
        self.settle(outgoing, answer, now=now)
        return True

    def pending(self, now: datetime) -> Outgoing | None:
        """The report to send now: what is spooled, oldest first, else a heartbeat when one is due. None: nothing yet.

        While a backlog is sent, a heartbeat goes in between at every interval, as spooled reports may be about an
        earlier boot. A report carries the results of commands only as a heartbeat.
        """
        if self._retries.remaining(now) > 0:
            return None
        boot_id = self._boot_id()
        if self._alive_at is None or boot_id != self._alive_boot:
            # Faults first: a portal that waits for this boot's first report must not miss them. But a report that the
            # portal does not want must not stand in the way.
            overdue = self._refused
        else:
            overdue = not timedelta() <= now - self._alive_at < self._interval
        report = None if overdue else self.spool.next()
        if report is not None:
            return reports.spooled(report, now=now)
        inventory = self._inventory if self._inventory != self._told_inventory else None
        due = overdue or inventory is not None or boot_id != self._alive_boot
        results = self.journal.results(now=now, boot_id=boot_id, again=due)
        if not due and not results:
            return None
        return reports.heartbeat(self.config.node, boot_id=boot_id, inventory=inventory, results=results, now=now)

    def settle(self, outgoing: Outgoing, answer: wire.Answer, *, now: datetime) -> None:
        """The portal has the report: forget it, and take in the commands that came back."""
        for rejected in answer.rejected:
            log.warning("report %s: %s rejected: %s", outgoing.batch_id, rejected.path, rejected.reason)
        for unread in answer.unread:
            log.warning("answer to %s: %s not understood: %s", outgoing.batch_id, unread.path, unread.reason)
        self._forget(outgoing, now=now)
        self._retries.taken()
        self._refused = False
        if outgoing.boot_id == self._boot_id():
            if self._alive_at is None:  # many nodes may start at once: spread what follows
                self._interval = self.config.heartbeat * self._rng.uniform(0.3, 1.0)
            else:
                self._interval = self.config.heartbeat
            self._alive_at, self._alive_boot = now, outgoing.boot_id
        self.offer(answer.commands)

    def postpone(self, outgoing: Outgoing, error: UplinkError, *, now: datetime) -> None:
        """The report was not taken: drop it where the portal says so, else send it again later."""
        if isinstance(error, Malformed):
            log.error("report %s dropped, the portal will never take it: %s", outgoing.batch_id, error)
            self._forget(outgoing, now=now)
            self._alive_at, self._alive_boot = (
                now,
                self._boot_id(),
            )  # or a heartbeat that is refused would be sent at once
            return
        if outgoing.spooled:
            self._refused = self._retries.stuck(outgoing.batch_id, error)
        else:
            self._refused = isinstance(error, SetAside)
        if self._refused:
            self.spool.defer(outgoing.batch_id)
        self._retries.failed(error, waiting=self.spool.waiting, now=now)

    def due_in(self, now: datetime) -> float:
        """Seconds until ``pending`` may have something; 0: now."""
        remaining = self._retries.remaining(now)
        if remaining > 0 or self.spool.ready or self._alive_at is None or self._inventory != self._told_inventory:
            return remaining
        return max(0.0, (self._interval - abs(now - self._alive_at)).total_seconds())

    # obey

    def offer(self, commands: Iterable[Command]) -> bool:
        """Take in commands from the portal, each executed once. True: there is one that was not known."""
        fresh = self.journal.offer(commands)
        if fresh:
            self.to_do.set()
            self.to_check.set()
            self.to_reboot.set()
        return fresh

    def work(self, lanes: Sequence[str] = LANES) -> int:
        """Execute what was offered; returns how many came to a result. Takes as long as the commands do."""
        finished = self.journal.work(clock=self.clock, boot_id=self._boot_id(), lanes=lanes)
        if finished:
            self.to_report.set()
        return finished

    def close(self) -> None:
        """Store how far was read, and what there was no room for, and let go of the logs."""
        if self._overflow:
            self._append(self._overflow.take(), boot_id=self._boot_id(), now=self.clock())
        self.spool.save()
        self.logs.close()

    def _keep(self, faults: Sequence[Fault], checks: Sequence[Check], *, boot_id: str, now: datetime) -> None:
        named = reports.with_gpu(faults, self._inventory)
        parts = reports.parts(named) or [()]
        before = self.spool.mark
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            report = reports.found(self.config.node, part, checks if last else (), boot_id=boot_id, now=now)
            # Only the last one carries the new mark: a crash in between reads the lines again rather than never.
            self.spool.append(report, mark=self.logs.mark if last else before)
        for fault in named:
            log.warning("fault: %s %s pci=%s count=%d%s", *reports.words(fault))
        self.to_report.set()

    def _append(self, faults: Sequence[Fault], *, boot_id: str, now: datetime) -> None:
        for part in reports.parts(faults):
            self.spool.append(reports.found(self.config.node, part, boot_id=boot_id, now=now))

    def _forget(self, outgoing: Outgoing, *, now: datetime) -> None:
        self.spool.acknowledge(outgoing.batch_id)
        self._retries.forget(outgoing.batch_id)
        if outgoing.results:
            self.journal.told(outgoing.results, now=now)
        if outgoing.inventory is not None:
            self._told_inventory = outgoing.inventory
