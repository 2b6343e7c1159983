"""The context of a step, and the only way in which a step writes to a cluster."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import DatabaseError, transaction
from django.db.models import F

from kcover import audit, reasons
from kcover.decisions import guards
from kcover.nodes import marks as core_marks
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import call_answers, call_checks, errors, lease, node_lock, own_rows, recheck_guards
from kcover_portal.rescue.step.errors import AnotherMachine, LeaseLost, WriteForbidden

log = logging.getLogger(__name__)
T = TypeVar("T")
HeldBack = recheck_guards.HeldBack

COUNTED_HOLDS = timedelta(seconds=2)  # a drain's evictions in one round are asked about together


@dataclass(slots=True, kw_only=True)
class Context:
    """One run of one step by the worker that holds the lease with ``token``."""

    rescue: Rescue
    step: Step
    steps: Sequence[Step]  # all of the plan, in order, as they are while this worker has the lease
    node: Node
    cluster: Cluster
    token: int
    clock: Callable[[], datetime]
    renewed_at: datetime
    # What is true on the cluster and not yet in the rows: written with the step's next transaction, or when it ends.
    answers: list[ledger.Draft] = field(default_factory=list)
    marks_changed: bool = False
    progress_changed: bool = False
    begun: audit.Call | None = None  # a write that was begun with the claim
    checked: call_checks.CallCheck | None = None  # the claim, checked a moment ago together with others
    other_lock: node_lock.NodeLock | None = None  # on another node, while that is written to
    counted_at: datetime | None = None  # when the guards were last counted and let it pass
    passed_over: tuple[reasons.Reason, ...] = ()  # what a named person passed over for it, by that count
    figures: ledger.Draft | None = None  # of the guards, for the ledger before the write that takes work away

    @property
    def now(self) -> datetime:
        return self.clock()

    @property
    def claim(self) -> call_checks.Claim:
        """The rescue and the token of its lease."""
        return self.rescue.pk, self.token

    @property
    def kube(self) -> port.Cluster:
        """The cluster's API server. Raises port.KubeError when its way in is unusable."""
        return fleet.connect(self.cluster)

    @property
    def marks(self) -> core_marks.Marks:
        """The changes to the node by this rescue, or by the one whose marks it took over."""
        return core_marks.read(self.rescue.marks) or core_marks.Marks(rescue=self.rescue.pk)

    def check_machine(self, node: port.Node) -> None:
        """Raises AnotherMachine where the live node is not the one that the rescue was opened for."""
        if self.rescue.node_uid and node.uid != self.rescue.node_uid:
            raise AnotherMachine(
                reasons.of("another_machine", node=node.name, uid=node.uid, expected=self.rescue.node_uid)
            )

    def remember(self, **progress: Any) -> None:
        """Stores what a second run of the step needs, before the call. Raises TypeError for an unknown field."""
        with transaction.atomic():
            self.renew()
            self.note(**progress)
            own_rows.save_step(self.step, "progress")
        self.progress_changed = False

    def note(self, **progress: Any) -> None:
        """As ``remember``, but stored with the step's next transaction: before its next call, or with its outcome."""
        self.step.progress = self.step.with_progress(**progress)
        self.progress_changed = True

    def write(
        self,
        kind: audit.Call,
        call: Callable[[], T],
        *,
        target: str = "",
        node: str = "",
        destructive: bool = False,
        wanted: audit.Wanted | None = None,
    ) -> T:
        """Makes one write to the cluster: guards and lease first, a ledger entry before and one after.

        ``node``: the one that it is about, where that is another than the rescue's; its turn is taken meanwhile.

        Raises HeldBack, LeaseLost, or the port's error or WriteForbidden after noting it.
        """
        node = node or self.node.name
        target = target or f"node {node}"
        try:
            with self._lock_node(node) as self.other_lock:
                return self._write(kind, call, target=target, node=node, destructive=destructive, wanted=wanted)
        except node_lock.Busy as other:
            raise HeldBack(other.reason, seconds=1.0) from other
        finally:
            self.other_lock = None

    def _lock_node(self, node: str) -> contextlib.AbstractContextManager[node_lock.NodeLock | None]:
        """The rescue's own node is its own while it holds the lease."""
        if node == self.node.name:
            return contextlib.nullcontext()
        return node_lock.acquire(Node.objects.get(cluster=self.cluster, name=node), clock=self.clock)

    def _write(
        self,
        kind: audit.Call,
        call: Callable[[], T],
        *,
        target: str,
        node: str,
        destructive: bool,
        wanted: audit.Wanted | None,
    ) -> T:
        if self._has_begun(kind):
            self._ask_once_more(kind, target, node=node)
        else:
            with transaction.atomic():
                late = self._check_isolation()
                self.renew(calls_begun=F("calls_begun") + 1)
                self.check_guards(destructive=destructive)
                self.keep_rows()
                passed = (*(late.overridden if late else ()), *(self.passed_over if destructive else ()))
                self._keep_passed_over(passed)
                figures = [self._draft(late.act)] if late else []
                # Figures of an act that takes work away stand with its call, so that no entry before them is newer.
                figures += [self.figures] if destructive and self.figures else []
                begun = self.begin(kind, target=target, node=node, wanted=wanted, passed=passed)
                ledger.append(self.cluster.name, [*self.answers, *figures, begun])
            self.answers, self.marks_changed, self.progress_changed = [], False, False
            self.figures = None if destructive else self.figures
        try:
            result = call()
        except (port.KubeError, WriteForbidden, LeaseLost, HeldBack, node_lock.Busy) as error:
            if isinstance(error, HeldBack):  # by what the live node shows
                self._uncount()
            self._note_failed(kind, target, error, node=node)
            raise
        done = audit.ClusterCallDone(answer=call_answers.of(result), **self._call(kind, target, node=node))
        self.answers.append(self._draft(done))
        return result

    def begin(
        self,
        kind: audit.Call,
        *,
        target: str = "",
        node: str = "",
        wanted: audit.Wanted | None = None,
        passed: Sequence[reasons.Reason] = (),
    ) -> ledger.Draft:
        """The ledger's entry before a write. ``passed``: the guards that a named person overrode for it."""
        node = node or self.node.name
        begun = audit.ClusterCallBegun(
            wanted=wanted,
            attempt=self.step.attempts,
            passed_over=tuple(passed),
            **self._call(kind, target or f"node {node}", node=node),
        )
        return self._draft(begun)

    def _ask_once_more(self, kind: audit.Call, target: str, *, node: str) -> None:
        """Checks again before a write that was begun with the decision: a person may have paused or cancelled since.

        Raises HeldBack, LeaseLost.
        """
        checked, self.checked = self.checked, None
        if checked is None or self.now - checked.at > call_checks.VALID_FOR:
            checked = call_checks.check([self.claim], now=self.now)[self.claim]
        error = checked.error
        if error is None:
            return
        if isinstance(error, HeldBack):
            self._uncount()
        self._note_failed(kind, target, error, node=node)
        raise error

    def _note_failed(
        self, kind: audit.Call, target: str, error: port.KubeError | reasons.ExplainedError, *, node: str
    ) -> None:
        held_back = isinstance(error, HeldBack)
        failed = audit.ClusterCallFailed(
            because=errors.reason_of(error), held_back=held_back, **self._call(kind, target, node=node)
        )
        self.answers.append(self._draft(failed))

    def _has_begun(self, kind: audit.Call) -> bool:
        """Returns whether the write was begun with the decision, a moment ago. A late one is noted as not made."""
        if self.begun != kind or self.now - self.renewed_at > lease.RENEW_AFTER:
            self.note_not_made(reasons.of("call_not_in_time"))
            return False
        self.begun = None
        return True

    def note_not_made(self, why: reasons.Reason) -> None:
        """Notes a write that was begun with the decision, and that this attempt has not made."""
        begun, self.begun = self.begun, None
        if begun is not None:
            self._note_failed(begun, f"node {self.node.name}", HeldBack(why), node=self.node.name)
            self._uncount()

    def _uncount(self) -> None:
        """Takes back the count of a call that this worker has not made, whoever has the rescue now.

        At once, so that the count is right even if the worker dies before it settles. A count that stays too high only
        lets a person check.
        """
        try:
            own_rows.update_rescue(self.rescue.pk, calls_begun=F("calls_begun") - 1)
        except DatabaseError as error:
            log.warning("rescue %s: a call that was not made stays counted: %s", self.rescue.pk, error)

    def check_guards(self, *, destructive: bool) -> None:
        """Asks again, right before a write, what may hold it back (invariant 37). Raises HeldBack."""
        mode, why = fleet.mode_now(self.cluster)
        if mode in fleet.MODES_WITHOUT_WRITES:
            raise HeldBack(recheck_guards.silent(mode, why))
        if destructive:
            if recheck_guards.needs_approval(self.rescue, mode=mode):
                raise recheck_guards.ApprovalNeeded(reasons.of("approve_step", step=self.step.name))
            self._check_destructive(mode)

    def _check_destructive(self, mode: str) -> None:
        """Evaluate the destructive guards of ``kcover.decisions.guards``; counts are refreshed every two seconds."""
        now = self.now
        node = fleet.node_of(self.node.pk)
        if node.labels.get(guards.EXCLUDE_LABEL) == "true":
            raise HeldBack(recheck_guards.excluded(node.name))
        if self.counted_at is not None and now - self.counted_at < COUNTED_HOLDS:
            return
        passed = recheck_guards.destructive(self.rescue, self.step, node=node, mode=mode, now=now)
        self.passed_over, self.counted_at, self.figures = passed.overridden, now, self._draft(passed.act)

    def _check_isolation(self) -> recheck_guards.GuardsPassed | None:
        """The guards of isolation once more, where they were asked long ago and the node is still in service.

        Raises HeldBack. What they let pass counts for others from now.
        """
        now = self.now
        if not recheck_guards.isolates_late(self.rescue, step=self.step.name, now=now):
            return None
        passed = recheck_guards.isolation(self.rescue, self.step, now=now)
        self.rescue.isolating_at = now
        Rescue.objects.filter(pk=self.rescue.pk, token=self.token).update(isolating_at=now)
        return passed

    def _keep_passed_over(self, passed: Sequence[reasons.Reason]) -> None:
        """Writes what was passed over for this write, as part of the caller's transaction."""
        recheck_guards.keep_rows(self.rescue, passed, step=self.step.name, now=self.now)

    def keep_marks(self, marks: core_marks.Marks | None) -> None:
        """Notes what is on the node now; None: everything was taken back, also by rescues before this one."""
        self.rescue.marks, self.rescue.marks_begun = marks.to_json() if marks else {}, {}
        self.marks_changed = True

    def begin_marks(self, marks: core_marks.Marks) -> None:
        """Stores what a write is to put on the node, before it is made, where the rows do not state it yet.

        Only what the rows state is taken back later, also if this worker dies before it knows the answer. A cordon of
        its own and the state label need no row: the node's kubelet may change them. Raises LeaseLost.
        """
        known = self.marks
        if marks.stated_by(known):
            self.renew_if_needed()
            return
        self.renew(marks_begun=marks.to_json())
        self.rescue.marks_begun = marks.to_json()

    def note_answers(self) -> None:
        """Writes what the cluster answered although the rescue is no longer ours: it did happen."""
        ledger.append(self.cluster.name, self.answers)
        self.answers = []

    def keep_rows(self) -> None:
        """Writes progress and marks that have changed, as part of the caller's transaction."""
        if self.progress_changed:
            own_rows.save_step(self.step, "progress")
        if self.marks_changed:
            own_rows.keep_marks(self.rescue)

    def renew_if_needed(self, _node: port.Node | None = None) -> None:
        """Between two calls of one write: renews the lease if much of it has gone, so that it covers the next call.

        Raises LeaseLost, or node_lock.Busy, and then the next call is not made.
        """
        if self.now - self.renewed_at > lease.RENEW_AFTER:
            self.renew()
        if self.other_lock is not None:
            self.other_lock.renew(now=self.now)

    def renew(self, **also: Any) -> None:
        """Extends the lease, and updates other columns with it; raises LeaseLost if another worker has the rescue."""
        now = self.now
        columns = {"lease_until": now + lease.TIME, **also}
        if not own_rows.CLAIMS.update(self.rescue.pk, self.token, Rescue.State.RUNNING, columns):
            raise call_checks.lost(self.claim)
        self.renewed_at = now

    def _call(self, kind: audit.Call, target: str, *, node: str) -> dict[str, Any]:
        """The fields that every entry about one call of this step has."""
        return {
            "call": kind,
            "target": target,
            "node": node,
            "rescue": self.rescue.pk,
            "step": self.step.index,
            "name": self.step.name,
            "rule": self.rescue.rule,
            "revision": self.rescue.revision,
        }

    def _draft(self, act: audit.Act) -> ledger.Draft:
        return ledger.Draft(act=act, actor=f"rescue {self.rescue.pk}", at=self.now)
