"""The only way from an order to a cluster: mode and lease are checked, and entries written, around each call."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.jobs import queries
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import order_guards, recovery
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.step import call_answers, lease, recheck_guards
from kcover_portal.runtime.services import claims

CLAIMS = claims.Claims(
    model=JobOrder,
    due=queries.due_orders,
    lasts=lease.TIME,
    state=JobOrder.State.RUNNING,
    related=("cluster", "incident"),
)
BEGUN = "begun"  # of a stored restart: a call that takes work away may have been made


class OrderLeaseLost(Exception):
    """Another worker has the order, or a person settled it."""


class HeldBack(reasons.ExplainedError):
    """A mode or guard allows no write now. ``again_at``: when to evaluate again; None: soon."""

    def __init__(self, reason: reasons.Reason, *, again_at: datetime | None = None) -> None:
        super().__init__(reason)
        self.again_at = again_at


class OrderCalls:
    """The row of an order and the calls that a worker makes for it, while it holds the lease."""

    def __init__(self, *, order: JobOrder, clock: Callable[[], datetime]) -> None:
        self.order, self.clock = order, clock
        self.answers: list[ledger.Draft] = []

    @property
    def kube(self) -> port.Cluster:
        """The order's cluster."""
        return fleet.connect(self.order.cluster)

    def update(self, write: Callable[..., bool] = CLAIMS.write, **columns: Any) -> None:
        """Writes columns of the order if it is still ours. Raises OrderLeaseLost."""
        if not write(self.order, **columns):
            raise OrderLeaseLost

    def write(
        self,
        kind: audit.Call,
        call: Callable[[], Any],
        *,
        target: str = "",
        destructive: bool = False,
        wanted: audit.Wanted | None = None,
    ) -> Any:
        """Makes one call: mode and lease first, an entry before and one after.

        Raises HeldBack, OrderLeaseLost or the port's errors.
        """
        fields: dict[str, Any] = {"call": kind, "target": target, "job_order": self.order.pk}
        with transaction.atomic():
            self._check_mode()
            if destructive and not self.order.restart.get(BEGUN):
                self.check_guards(nodes=())
                self.update(restart={**self.order.restart, BEGUN: True})
            self.update(CLAIMS.renew, now=self.clock())
            begun = self.draft(audit.ClusterCallBegun(wanted=wanted, **fields))
            ledger.append(self.order.cluster.name, [*self.answers, begun])
        self.answers = []
        try:
            result = call()
        except port.KubeError as error:
            failed = audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **fields)
            self.answers.append(self.draft(failed))
            raise
        self.answers.append(self.draft(audit.ClusterCallDone(answer=call_answers.of(result), **fields)))
        return result

    def check_guards(self, *, nodes: Collection[str]) -> None:
        """Evaluates the guards before a restart that no person ordered. Raises HeldBack.

        ``nodes``: of the job; () for those that it had when the restart was claimed. A restart that has begun goes on:
        half of a job does not run.
        """
        order = self.order
        if order.cause == JobOrder.Cause.PERSON:
            return  # evaluated when it was given
        now = self.clock()
        known = nodes or order.restart.get("nodes", ())
        about = order_guards.GuardSubject(
            cluster=order.cluster, namespace=order.namespace, nodes=known, incident=order.incident
        )
        verdict = order_guards.evaluate(about, now=now)
        if verdict.held:
            raise HeldBack(reasons.both(*verdict.held), again_at=verdict.again_at)

    def _check_mode(self) -> None:
        mode, why = fleet.mode_now(self.order.cluster)
        if mode in fleet.MODES_WITHOUT_WRITES:
            raise HeldBack(recheck_guards.silent(mode, why))
        if self.order.cause == JobOrder.Cause.PERSON:
            return
        self.order.cluster.refresh_from_db(fields=["job_recovery"])
        mode = recovery.mode_of(self.order.cluster)
        if mode in fleet.MODES_WITHOUT_WRITES:
            raise HeldBack(recheck_guards.silent("shadow", ""))
        if mode == "approve":
            raise HeldBack(reasons.of("job_needs_approver"))

    def draft(self, act: audit.Act) -> ledger.Draft:
        """An entry of the audit log by this order."""
        return ledger.Draft(act=act, actor=f"order {self.order.pk}", at=self.clock())

    def note_answers(self) -> None:
        """Writes what the cluster answered last, also if the order is no longer ours: it did happen."""
        ledger.append(self.order.cluster.name, self.answers)
        self.answers = []
