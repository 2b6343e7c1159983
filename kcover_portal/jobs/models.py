"""Orders to restart or stop a training job, as rows with a lease, and the failed containers behind them."""

from datetime import timedelta

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident


class JobOrder(models.Model):
    """An order about one job. Rows are the queue: a worker carries it out under a lease with a fencing token."""

    class Action(models.TextChoices):
        RESTART = "restart", _("Restart")
        STOP = "stop", _("Stop")

    class Cause(models.TextChoices):
        PERSON = "person", _("A person or program")
        LABEL = "label", _("The label kcover.io/need-recovery")
        POD = "pod", _("A failed pod")
        EVENT = "event", _("A Kubernetes Event")

    class State(models.TextChoices):
        RUNNING = "running", _("Running")
        HELD = "held", _("Needs attention")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        SHADOW = "shadow", _("Shadow only")
        REPLACED = "replaced", _("Replaced by another order")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="job_orders")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=253)
    action = models.CharField(max_length=10, choices=Action.choices)
    cause = models.CharField(max_length=10, choices=Cause.choices)
    requested_by = models.CharField(max_length=200)
    requested_because = models.JSONField(
        default=dict, help_text="a Reason: the fault behind it; {}: a person's own words"
    )
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, related_name="job_orders", help_text="of the failed pod"
    )
    reason = models.CharField(max_length=500, blank=True, help_text="a person's own words")
    requesters = models.JSONField(default=list, help_text="the people who count as the requester")
    awaits_approval = models.BooleanField(default=False, help_text="while it is held: another person must approve it")
    requested_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    because = models.JSONField(default=dict, help_text="a Reason: what it waits for, or how it ended")
    restart = models.JSONField(default=dict, help_text="the job and its pods, stored before the first call")
    since = models.DateTimeField(null=True, help_text="when every call had been made")
    due_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0, help_text="failures in a row")
    token = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    label_stays = models.BooleanField(
        db_default=False,
        default=False,
        help_text="the label that gave this order is on the job, obeyed, until its owner removes it",
    )

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "namespace", "kind", "name"),
                condition=models.Q(state="running"),
                name="one_running_order_a_job",
            ),
        )
        indexes = (
            models.Index(fields=("due_at",), condition=models.Q(state="running"), name="job_orders_due"),
            models.Index(fields=("cluster", "namespace", "name", "-id"), name="job_orders_of_job"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why it waits, or its result."""
        return reasons.kept(self.because)


class PodFailure(models.Model):
    """A container of a protected job's pod that ended with an error. It is over once the job runs again."""

    CODE = "Error"  # the container's reason, and the code of the incident
    FAILS_FIRST = "FailsFirst"  # the code of the incident that accuses a node
    WITNESS_WINDOW = timedelta(days=1)  # two attempts of a job within it may accuse a node

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pod_failures")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=253, help_text="of the job")
    pod = models.CharField(max_length=253)
    pod_uid = models.CharField(max_length=64)
    container = models.CharField(max_length=63)
    node = models.CharField(max_length=253)
    exit_code = models.IntegerField()
    at = models.DateTimeField(help_text="when the container ended, by the kubelet's clock")
    seen_at = models.DateTimeField()
    first = models.BooleanField(
        default=False, help_text="no other node of the job failed before, and most of its other pods had come up"
    )
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, related_name="pod_failures", help_text="null: beyond the bounds"
    )
    order = models.ForeignKey(
        JobOrder, on_delete=models.SET_NULL, null=True, related_name="pod_failures", help_text="that restarts the job"
    )
    over_at = models.DateTimeField(null=True, help_text="when the job ran again, or ended")

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("cluster", "pod_uid", "container", "at"), name="one_row_a_pod_failure"),
        )
        indexes = (
            models.Index(fields=("cluster", "namespace", "name"), name="pod_failures_of_job"),
            models.Index(fields=("cluster",), condition=models.Q(over_at=None), name="open_pod_failures"),
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


class JobPerformance(models.Model):
    """The performance of one job against its own past, as one source reads it. ``past``: of bounded size."""

    SLOW = "JobSlow"  # the code of the incident that accuses a node

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="job_performances")
    source = models.CharField(max_length=120, help_text="name of the source")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=253)
    past = models.JSONField(default=dict, help_text="as kcover.jobs.performance stores it")
    speed = models.FloatField(null=True, help_text="of the last reading, 1.0 is its usual speed; null: not known yet")
    slow_since = models.DateTimeField(null=True, help_text="since when a drop lasts; null: none does")
    slow_node = models.CharField(max_length=253, blank=True, help_text="that the drop follows; empty: none")
    seen_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "source", "namespace", "kind", "name"), name="one_row_a_job_performance"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
