"""What a step is given to work with, and the one way in which it may write to a cluster."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction

from kcover import guards, reasons
from kcover import marks as kernel_marks
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions import guarding, turns
from kcover_portal.rescue.models import Rescue, Step

log = logging.getLogger(__name__)
T = TypeVar("T")
HeldBack = guarding.HeldBack

COUNTED_HOLDS = timedelta(seconds=2)  # a drain's evictions in one round are asked about together


class LeaseLost(Exception):
    """Another worker has the rescue now, or an operator ended it: stop, settle nothing."""


class Stopped(Exception):
    """A call found, by what it read right before its write, that the write must not be made; nothing was written."""


class AnotherMachine(Stopped):
    """Under the node's name the cluster has another machine than the one that the rescue is about."""


class TakenBack(Stopped):
    """The node no longer carries what the rescue did to it: somebody else took it back by hand."""


@dataclass(slots=True, kw_only=True)
class Context:
    """One run of one step by the worker that holds the lease with ``token``."""

    rescue: Rescue
    step: Step
    node: Node
    cluster: Cluster
    token: int
    clock: Callable[[], datetime]
    renewed_at: datetime
    # What is true on the cluster and not yet in the rows: written with the step's next transaction, or when it ends.
    answers: list[ledger.Draft] = field(default_factory=list)
    marks_changed: bool = False
    begun: str = ""  # the verb of a write that was begun with the claim
    turn: turns.Turn | None = None  # on another node, while that is written to
    counted_at: datetime | None = None  # when the guards were last counted and let it pass
    passed_over: tuple[reasons.Reason, ...] = ()  # what a named person passed over for it, by that count

    @property
    def now(self) -> datetime:
        """The present moment, by the injected clock."""
        return self.clock()

    @property
    def kube(self) -> port.Cluster:
        """The cluster's API server. Raises port.KubeError when its way in is unusable."""
        return fleet.connect(self.cluster)

    @property
    def marks(self) -> kernel_marks.Marks:
        """What this rescue (or the one whose marks it took over) has changed on the node."""
        return kernel_marks.read(self.rescue.marks) or kernel_marks.Marks(rescue=self.rescue.pk)

    def check_machine(self, node: port.Node) -> None:
        """Raises AnotherMachine where the live node is not the one that the rescue was opened for."""
        if self.rescue.node_uid and node.uid != self.rescue.node_uid:
            raise AnotherMachine(
                f"the cluster has another machine named {node.name} now (uid {node.uid}, not {self.rescue.node_uid})"
            )

    def remember(self, **progress: Any) -> None:
        """Stores what the step must know if it is run again, before the call that it is about."""
        with transaction.atomic():
            self.renew()
            self.step.progress = {**self.step.progress, **progress}
            Step.objects.filter(pk=self.step.pk).update(progress=self.step.progress)

    def write(
        self,
        verb: str,
        call: Callable[[], T],
        *,
        subject: str = "",
        node: str = "",
        destructive: bool = False,
        data: Any = None,
    ) -> T:
        """Makes one write to the cluster: guards and lease first, a ledger entry before and one after.

        ``node``: the one that it is about, where that is another than the rescue's; its turn is taken meanwhile.

        Raises HeldBack, LeaseLost, or the port's error or Stopped after noting it.
        """
        node = node or self.node.name
        subject = subject or f"node {node}"
        try:
            with self._turn_on(node) as self.turn:
                return self._write(verb, call, subject=subject, node=node, destructive=destructive, data=data)
        except turns.Busy as other:
            raise HeldBack(str(other), seconds=1.0) from other
        finally:
            self.turn = None

    def _turn_on(self, node: str) -> contextlib.AbstractContextManager[turns.Turn | None]:
        """The rescue's own node is its own while it holds the lease."""
        if node == self.node.name:
            return contextlib.nullcontext()
        return turns.taken(Node.objects.get(cluster=self.cluster, name=node), clock=self.clock)

    def _write(
        self, verb: str, call: Callable[[], T], *, subject: str, node: str, destructive: bool, data: object
    ) -> T:
        if self._has_begun(verb):
            self._ask_once_more(verb, subject, node=node)
        else:
            with transaction.atomic():
                passed = self._check_isolation()
                self.renew()
                self.check_guards(destructive=destructive)
                self.keep_rows()
                passed = (*passed, *(self.passed_over if destructive else ()))
                self._keep_passed_over(passed)
                begun = self.begin(verb, subject=subject, node=node, data=data, passed=passed)
                ledger.append(self.cluster.name, [*self.answers, begun])
            self.answers, self.marks_changed = [], False
        try:
            result = call()
        except (port.KubeError, Stopped, LeaseLost, turns.Busy) as error:
            data = {"error": str(error), "kind": type(error).__name__}
            self.answers.append(self._draft(f"{verb}.failed", subject, data, node=node))
            raise
        self.answers.append(self._draft(f"{verb}.done", subject, brief(result), node=node))
        return result

    def begin(
        self,
        verb: str,
        *,
        subject: str = "",
        node: str = "",
        data: Any = None,
        passed: Sequence[reasons.Reason] = (),
    ) -> ledger.Draft:
        """What the ledger says before a write. ``passed``: the guards that a named person passed over for it."""
        node = node or self.node.name
        over = [str(one) for one in passed]
        said = {"wanted": data, "attempt": self.step.attempts, "passed_over": over or None}
        return self._draft(f"{verb}.begun", subject or f"node {node}", said, node=node)

    def _ask_once_more(self, verb: str, subject: str, *, node: str) -> None:
        """A pause, another mode, or a person who ended the rescue since the decision, holds back what was begun with
        it. Raises HeldBack, LeaseLost."""
        try:
            self.check_guards(destructive=False)
            if not Rescue.objects.filter(pk=self.rescue.pk, token=self.token, state=Rescue.State.RUNNING).exists():
                raise LeaseLost(f"rescue {self.rescue.pk} is no longer held with token {self.token}")
        except (HeldBack, LeaseLost) as refusal:
            self._note_not_made(verb, subject, refusal, node=node)
            raise

    def _note_not_made(self, verb: str, subject: str, why: Exception, *, node: str) -> None:
        said = {"error": str(why), "kind": type(why).__name__}
        self.answers.append(self._draft(f"{verb}.failed", subject, said, node=node))

    def drop_begun(self) -> None:
        """Notes that what was begun with the claim is not made: a person ended the rescue before."""
        if self.begun:
            lost = LeaseLost(f"rescue {self.rescue.pk} was ended before")
            self._note_not_made(self.begun, f"node {self.node.name}", lost, node=self.node.name)
            self.begun = ""
            self.note_answers()

    def _has_begun(self, verb: str) -> bool:
        """Whether the write was begun in the transaction that decided it, and took the lease, a moment ago."""
        begun, self.begun = self.begun, ""
        return begun == verb and self.now - self.renewed_at <= turns.MUCH_OF_IT

    def check_guards(self, *, destructive: bool) -> None:
        """Asks again, right before a write, what may hold it back (invariant 37). Raises HeldBack."""
        mode, reason = fleet.mode_now(self.cluster)
        if mode == "paused":
            raise HeldBack(f"paused{': ' + reason if reason else ''}")
        if mode == "shadow":
            raise HeldBack("shadow mode: nothing is written to the cluster")
        if destructive:
            if guarding.unasked(self.rescue, mode=mode):
                raise guarding.Unasked(f"approve mode: a person must say yes before {self.step.name}")
            self._check_destructive()

    def _check_destructive(self) -> None:
        """The guards of ``kcover.guards`` before a call that takes work away; counted anew every two seconds."""
        now = self.now
        node = Node.objects.get(pk=self.node.pk)
        if node.labels.get(guards.EXCLUDE_LABEL) == "true":
            raise HeldBack(f"the node carries {guards.EXCLUDE_LABEL}=true")
        if self.counted_at is not None and now - self.counted_at < COUNTED_HOLDS:
            return
        self.passed_over = guarding.destructive(self.rescue, act=self.step.name, now=now)
        self.counted_at = now

    def _check_isolation(self) -> Sequence[reasons.Reason]:
        """The guards of isolation once more, where they were asked long ago and the node is still in service.

        Returns what was passed over; raises HeldBack. What they let pass counts for others from now.
        """
        now = self.now
        if not guarding.isolates_late(self.rescue, step=self.step.name, now=now):
            return ()
        passed = guarding.isolation(self.rescue, now=now)
        self.rescue.isolating_at = now
        Rescue.objects.filter(pk=self.rescue.pk, token=self.token).update(isolating_at=now)
        return passed

    def _keep_passed_over(self, passed: Sequence[reasons.Reason]) -> None:
        """Writes what was passed over for this write, as part of the caller's transaction."""
        rows = guarding.as_rows(passed, step=self.step.name, now=self.now)
        new = guarding.fresh(self.rescue.passed_over, rows)
        if new:
            self.rescue.passed_over = [*self.rescue.passed_over, *new]
            Rescue.objects.filter(pk=self.rescue.pk).update(passed_over=self.rescue.passed_over)

    def keep_marks(self, marks: kernel_marks.Marks | None) -> None:
        """Notes what is on the node now; None: everything was taken back, also by rescues before this one."""
        self.rescue.marks = marks.to_json() if marks else {}
        self.marks_changed = True

    def note_answers(self) -> None:
        """Writes what the cluster answered although the rescue is no longer ours: it did happen."""
        ledger.append(self.cluster.name, self.answers)
        self.answers = []

    def keep_rows(self) -> None:
        """Writes the marks, as part of the caller's transaction."""
        if not self.marks_changed:
            return
        others = Rescue.objects.filter(node=self.node).exclude(marks={})
        if self.rescue.marks:
            Rescue.objects.filter(pk=self.rescue.pk).update(marks=self.rescue.marks)
            others = others.exclude(pk=self.rescue.pk)
        others.update(marks={})

    def stay(self, _node: port.Node | None = None) -> None:
        """Between two calls of one write: renews the lease if much of it has gone, so that it covers the next call.

        Raises LeaseLost, or turns.Busy, and then the next call is not made.
        """
        if self.now - self.renewed_at > turns.MUCH_OF_IT:
            self.renew()
        if self.turn is not None:
            self.turn.stay(now=self.now)

    def renew(self) -> None:
        """Extends the lease; raises LeaseLost if the rescue is no longer this worker's."""
        now = self.now
        ours = Rescue.objects.filter(pk=self.rescue.pk, token=self.token, state=Rescue.State.RUNNING).update(
            lease_until=now + turns.LEASE
        )
        if not ours:
            raise LeaseLost(f"rescue {self.rescue.pk} is no longer held with token {self.token}")
        self.renewed_at = now

    def _draft(self, verb: str, subject: str, data: dict[str, Any], *, node: str) -> ledger.Draft:
        return ledger.Draft(
            actor=f"rescue {self.rescue.pk}",
            verb=verb,
            subject=subject,
            node=node,
            rescue=self.rescue.pk,
            at=self.now,
            data={
                "step": self.step.name,
                "rule": self.rescue.rule,
                "revision": self.rescue.revision,
                **{key: value for key, value in data.items() if value is not None},
            },
        )


def brief(result: object) -> dict[str, Any]:
    """An answer in a few words; whole objects stay out of the ledger."""
    match result:
        case (port.Node() as before, port.Node() as after):
            return {"before": _shape(before), "after": _shape(after)}
        case port.Evicted() | port.Gone() | port.Blocked() | port.JobState() | str():
            return {"answer": str(result)[:500]}
    return {}


def _shape(node: port.Node) -> dict[str, Any]:
    """What of a node the portal may have changed."""
    return {
        "unschedulable": node.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints],
        "state": node.labels.get(kernel_marks.STATE_LABEL),
        "boot_id": node.boot_id,
    }
