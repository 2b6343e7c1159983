"""Preflight runs, their reports, and rejected reports."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover_portal.fleet.models import Cluster, Node


class PreflightRun(models.Model):
    """A run of a workload's preflight. It ends when every node has reported, or at its deadline."""

    class State(models.TextChoices):
        WAITING = "waiting", _("Waiting for reports")
        COMPLETE = "complete", _("Complete")
        EXPIRED = "expired", _("Expired")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="preflight_runs")
    namespace = models.CharField(max_length=63)
    workload = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, blank=True, help_text="uid of the workload's owner; it distinguishes reruns")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    size = models.PositiveIntegerField(help_text="number of expected reports, one per node")
    received = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    slow = models.JSONField(default=list)
    abnormal = models.JSONField(default=list)
    suspects = models.JSONField(default=list, help_text="both nodes, if the job has only two and one is slow")
    because = models.JSONField(default=list)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="when the run expires if it is incomplete")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "namespace", "workload", "uid", "size"),
                condition=models.Q(state="waiting"),
                name="one_waiting_run_a_workload_and_size",
            ),
        )
        indexes = (
            models.Index(fields=("due_at",), condition=models.Q(state="waiting"), name="preflight_runs_due"),
            models.Index(fields=("cluster", "namespace", "workload", "-id"), name="preflight_runs_of"),
        )

    def __str__(self) -> str:
        return f"preflight run {self.pk} of {self.namespace}/{self.workload}"


class PreflightReport(models.Model):
    """One node's report and its verdict."""

    class Verdict(models.TextChoices):
        NONE = "", _("Nothing")
        ABNORMAL = "abnormal", _("Abnormal")
        SLOW = "slow", _("Slow")
        SUSPECT = "suspect", _("Suspect (one of two)")

    run = models.ForeignKey(PreflightRun, on_delete=models.CASCADE, related_name="reports")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="preflight_reports")
    body = models.JSONField(help_text="the known fields of the report")
    verdict = models.CharField(max_length=10, choices=Verdict.choices, blank=True)
    at = models.DateTimeField()
    reported_at = models.DateTimeField(null=True, help_text="when the verdict was reported as a fault")

    class Meta:
        ordering = ("run_id", "node_id")
        constraints = (models.UniqueConstraint(fields=("run", "node"), name="one_report_a_node"),)
        indexes = (
            models.Index(
                fields=("id",),
                condition=models.Q(verdict__in=("abnormal", "slow"), reported_at=None),
                name="preflight_unreported",
            ),
        )


class PreflightRefusal(models.Model):
    """A rejected report, and the reason."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(PreflightRun, on_delete=models.CASCADE, null=True, related_name="refusals")
    namespace = models.CharField(max_length=63)
    workload = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, blank=True)
    node = models.CharField(max_length=253, blank=True)
    path = models.CharField(max_length=200, blank=True)
    because = models.JSONField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ("-id",)


class ReadReportObject(models.Model):
    """A ``PreflightReport`` object on a cluster that was read. The row ends with the object."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    uid = models.CharField(max_length=64)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "uid"), name="one_row_a_report_object"),)


class PairPlan(models.Model):
    """Pair tests of nodes that the portal runs itself: rounds, then confirmations of suspects, then the verdict.

    Those of a validation test its nodes (``subjects``) alone and against partners, see ``services.nccl_plans``.
    """

    class State(models.TextChoices):
        RUNNING = "running", _("Running")
        FINISHED = "finished", _("Finished")
        CANCELLED = "cancelled", _("Cancelled")

    class Rule(models.TextChoices):
        KCOVER = "kcover", _("Every pair failed (kcover)")
        CONFIRMED = "confirmed", _("Confirmed against clean nodes")
        VALIDATION = "validation", _("Validation of nodes")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pair_plans")
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    rule = models.CharField(max_length=10, choices=Rule.choices, default=Rule.CONFIRMED)
    rounds = models.PositiveSmallIntegerField(help_text="of pairs; confirmations follow them")
    threshold = models.FloatField(help_text="GB/s of bus bandwidth; a pair below it has failed")
    limits = models.JSONField(
        db_default={}, default=dict, help_text="of a validation: GB/s by NCCL test; null: the default"
    )
    subjects = models.JSONField(db_default=[], default=list, help_text="of a validation: the names of its nodes")
    key = models.CharField(max_length=16, help_text="random; part of the names of its Jobs")
    image = models.CharField(max_length=300)
    namespace = models.CharField(max_length=63, help_text="of its Jobs")
    gpus = models.PositiveSmallIntegerField(help_text="that each test uses on each node; 0: as many as both have")
    scheduled = models.BooleanField(
        db_default=False, default=False, help_text="begun by the cluster's setting nccl_every"
    )
    busy_nodes = models.BooleanField(default=False, help_text="nodes with other work are tested too")
    domains = models.JSONField(default=dict, help_text="leaf switch by name of the node")
    confirmed = models.BooleanField(default=False, help_text="the confirmations were planned, or none are needed")
    slow = models.JSONField(default=list)
    fabric = models.JSONField(default=list, help_text="leaf switches behind which most nodes are slow")
    inconclusive = models.JSONField(default=list)
    storm = models.BooleanField(default=False, help_text="so many are suspect that no fault is opened")
    reason = models.CharField(max_length=500, blank=True)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    worker = models.CharField(max_length=32, blank=True, help_text="random; of the worker that has the lease")
    busy_until = models.DateTimeField(null=True, help_text="the end of its lease")
    again_at = models.DateTimeField(null=True, help_text="no worker looks at it before; null: at once")
    cleaned = models.BooleanField(default=False, help_text="it has ended, and none of its Jobs exists")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("id",), condition=models.Q(cleaned=False), name="pair_plans_at_work"),)

    def __str__(self) -> str:
        return f"preflight plan {self.pk}"

    @property
    def label(self) -> str:
        """The label of its Jobs. It is not that of a plan with this number in another database."""
        return f"{self.pk}-{self.key}"


class PairTest(models.Model):
    """A test of two nodes: an all-reduce over the GPUs of both, in one Job on each node.

    A validation also tests nodes alone: then ``second`` is the same node as ``first``.
    """

    class State(models.TextChoices):
        PENDING = "pending", _("Pending")
        RUNNING = "running", _("Running")
        PASSED = "passed", _("Passed")
        FAILED = "failed", _("Failed")
        ERROR = "error", _("Not measured")
        CANCELLED = "cancelled", _("Cancelled")

    plan = models.ForeignKey(PairPlan, on_delete=models.CASCADE, related_name="tests")
    place = models.PositiveIntegerField()
    round = models.PositiveSmallIntegerField(help_text="from 1; confirmations come after the last round")
    first = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    second = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    confirms = models.CharField(max_length=253, blank=True, help_text="the suspect that the test confirms or clears")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    busbw = models.JSONField(default=dict, help_text="GB/s by message size in bytes")
    best = models.FloatField(null=True, help_text="the highest of them")
    device = models.CharField(max_length=120, blank=True)
    because = models.JSONField(default=dict, help_text="a Reason: why nothing was measured; {}: something was")
    waits_since = models.DateTimeField(null=True, help_text="since when one of its nodes cannot be tested")
    again_at = models.DateTimeField(null=True, help_text="no worker looks at these nodes before")
    begun_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("plan_id", "place")
        constraints = (models.UniqueConstraint(fields=("plan", "place"), name="one_pair_test_a_place"),)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Both nodes by rank, or the only one."""
        return (self.first,) if self.first_id == self.second_id else (self.first, self.second)

    @property
    def gpus(self) -> int:
        """How many GPUs it uses on each node."""
        return self.plan.gpus or min(node.gpus for node in self.nodes)


class PreflightGate(models.Model):
    """The result of a node's last plan of pair tests, and the gate's label on the node."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, related_name="preflight_gate")
    plan = models.ForeignKey(PairPlan, on_delete=models.SET_NULL, null=True, related_name="+")
    node_uid = models.CharField(max_length=64, blank=True, help_text="uid of the machine that was tested")
    passed_at = models.DateTimeField(null=True, help_text="null: it did not pass in its last plan")
    label = models.CharField(max_length=10, blank=True, help_text="the value that the portal wrote; empty: none")
