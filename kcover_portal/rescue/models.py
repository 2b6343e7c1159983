"""Decisions, rescues and steps. Their rows are the queue: a worker claims a rescue by a conditional update."""

from datetime import datetime

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import lifecycle, reasons
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident


class Decision(models.Model):
    """An answer about one incident, kept also when it is no; equal repeats only raise ``count``."""

    class Answer(models.TextChoices):
        RESCUE = "rescue", _("Rescue")
        APPROVE = "approve", _("Needs approval")
        SHADOW = "shadow", _("Shadow")
        HOLD = "hold", _("Held back")
        NONE = "none", _("Nothing to do")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="decisions")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="decisions")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, related_name="decisions")
    answer = models.CharField(max_length=10, choices=Answer.choices)
    mode = models.CharField(max_length=10)
    rule = models.CharField(max_length=300, blank=True)
    policy = models.CharField(max_length=253, blank=True)
    revision = models.PositiveIntegerField(null=True)
    because = models.JSONField(default=list)
    tried = models.JSONField(default=list)
    steps = models.JSONField(default=list)
    facts = models.JSONField(default=dict)
    count = models.PositiveIntegerField(default=1)
    at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("node", "-id"), name="decisions_of_node"),)

    @property
    def reasons(self) -> tuple[reasons.Reason, ...]:
        """Why, in the order in which it was weighed."""
        return tuple(reasons.from_json(one) for one in self.because)


class Rescue(models.Model):
    """The rescue record: one plan for one node, and how far it came."""

    class State(models.TextChoices):
        HELD = "held", _("Held")
        WAITING = "waiting", _("Waiting")
        RUNNING = "running", _("Running")
        SUCCEEDED = "succeeded", _("Succeeded")
        FAILED = "failed", _("Failed")
        CANCELLED = "cancelled", _("Cancelled")

    class Hold(models.TextChoices):
        NOTHING = "", _("Nothing")
        APPROVAL = "approval", _("Approval")
        STEP = "step", _("A step that stopped")
        EXTERNAL = "external", _("Another system")

    class Origin(models.TextChoices):
        POLICY = "policy", _("Policy")
        API = "api", _("Decision system")
        MANUAL = "manual", _("Operator")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rescues")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="rescues")
    node_uid = models.CharField(max_length=64, blank=True, help_text="its machine's, when it was opened")
    decision = models.ForeignKey(Decision, on_delete=models.SET_NULL, null=True, related_name="rescues")
    incidents = models.ManyToManyField(Incident, related_name="rescues")
    origin = models.CharField(max_length=10, choices=Origin.choices)
    requested_by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    code = models.CharField(max_length=80, blank=True, help_text="the fault in short: xid 62")
    rule = models.CharField(max_length=300, blank=True)
    policy = models.CharField(max_length=253, blank=True)
    revision = models.PositiveIntegerField(null=True)
    plan_hash = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    outcome = models.CharField(max_length=20, blank=True, help_text="healed, isolated, escalated, done, ...")
    verified = models.BooleanField(null=True, help_text="the node was proved healthy; nothing: not tried")
    because = models.CharField(max_length=1000, blank=True, help_text="why it waits, is held or ended so")
    needs_human = models.BooleanField(default=False)
    hold = models.CharField(max_length=10, choices=Hold.choices, blank=True, help_text="what a held rescue waits for")
    gate = models.PositiveSmallIntegerField(null=True, help_text="index of the first step that needs an approval")
    approvers = models.PositiveSmallIntegerField(default=1, help_text="how many people must say yes")
    approval_seconds = models.PositiveIntegerField(default=86_400, help_text="how long a request and a yes hold")
    expires_at = models.DateTimeField(null=True, help_text="when what it waits for comes too late")
    overrides = models.JSONField(default=dict, help_text="guards that a named person may pass over: guard to name")
    passed_over = models.JSONField(default=list, help_text="what was passed over: when, before which step, and why")
    request = models.JSONField(default=dict, help_text="what a decision system asked for, as it came")
    marks = models.JSONField(default=dict, help_text="what it changed on the node and has not taken back")
    opened_at = models.DateTimeField()
    isolating_at = models.DateTimeField(null=True, help_text="when the guards last let it take the node out")
    closed_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="when a worker is to take it up next")
    token = models.PositiveBigIntegerField(default=0, help_text="fencing token of the last lease")
    lease_until = models.DateTimeField(null=True)
    key = models.CharField(max_length=200, null=True, unique=True, help_text="idempotency key of the request")

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node",),
                condition=models.Q(state__in=lifecycle.OPEN_RESCUE),
                name="one_open_rescue_a_node",
            ),
        )
        indexes = (
            models.Index(fields=("due_at",), condition=models.Q(state__in=("waiting", "running")), name="rescues_due"),
            models.Index(fields=("cluster", "state", "-id"), name="rescues_of_cluster"),
        )

    def __str__(self) -> str:
        return f"rescue {self.pk} of {self.node_id}"


class Step(models.Model):
    """One step of a plan. ``progress`` is what it must remember between attempts: boot id asked at, pods left, ..."""

    class State(models.TextChoices):
        PENDING = "pending", _("Pending")
        RUNNING = "running", _("Running")
        WAITING = "waiting", _("Waiting")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        SKIPPED = "skipped", _("Skipped")
        CANCELLED = "cancelled", _("Cancelled")

    rescue = models.ForeignKey(Rescue, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=30)
    args = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0, help_text="reserved before each call")
    failures = models.PositiveIntegerField(default=0, help_text="attempts in a row that asked to be repeated")
    progress = models.JSONField(default=dict)
    because = models.CharField(max_length=1000, blank=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    withdraw_at = models.DateTimeField(null=True, help_text="when what it asked for is called back; nothing: it is not")

    class Meta:
        ordering = ("rescue_id", "index")
        constraints = (models.UniqueConstraint(fields=("rescue", "index"), name="one_step_a_place"),)
        indexes = (
            models.Index(
                fields=("withdraw_at",), condition=models.Q(withdraw_at__isnull=False), name="steps_to_withdraw"
            ),
        )

    def reserve(self, *, now: datetime) -> None:
        """Counts an attempt before it is made; saved by the caller. A crash leaves it counted (invariant 17)."""
        self.attempts += 1
        self.started_at = self.started_at or now
        self.state = self.State.RUNNING


class Approval(models.Model):
    """A person's yes or no to one rescue, bound to its plan, its gated step and its node."""

    rescue = models.ForeignKey(Rescue, on_delete=models.CASCADE, related_name="approvals")
    step = models.PositiveSmallIntegerField(default=0)
    node = models.CharField(max_length=253, blank=True)
    node_uid = models.CharField(max_length=64, blank=True)
    plan_hash = models.CharField(max_length=64)
    approved = models.BooleanField()
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    via = models.CharField(max_length=10, blank=True, help_text="console, rest or link")
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("rescue", "step", "plan_hash", "by"), name="one_vote_a_person"),)


class Assignment(models.Model):
    """A warm standby that stands in for a node: reserved, put into service, given back."""

    class State(models.TextChoices):
        RESERVED = "reserved", _("Reserved")
        ACTIVE = "active", _("In service")
        RELEASED = "released", _("Given back")

    spare = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="stands_in")
    origin = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="stood_in_for")
    rescue = models.ForeignKey(Rescue, on_delete=models.CASCADE, related_name="assignments")
    state = models.CharField(max_length=10, choices=State.choices, default=State.RESERVED)
    marks = models.JSONField(default=dict, help_text="what it changed on the spare and has not taken back")
    because = models.CharField(max_length=500, blank=True)
    reserved_at = models.DateTimeField()
    activated_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("spare",), condition=models.Q(state__in=("reserved", "active")), name="one_promise_a_spare"
            ),
        )


class JobRestart(models.Model):
    """When a training job was last restarted: once within a window, whichever rescues ask for it (kcover's rule)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="job_restarts")
    namespace = models.CharField(max_length=63)
    job = models.CharField(max_length=253)
    rescue = models.ForeignKey(Rescue, on_delete=models.SET_NULL, null=True, related_name="job_restarts")
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "namespace", "job"), name="one_restart_a_job"),)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.job}"
