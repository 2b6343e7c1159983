"""Decisions, rescues and steps. Their rows are the queue: a worker claims a rescue by a conditional update."""

import dataclasses
from datetime import datetime
from typing import Any, TypeVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import actions, reasons
from kcover.plans import lifecycle
from kcover.values.kube_names import ObjectName
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident

A = TypeVar("A", bound=actions.Args)
P = TypeVar("P", bound=actions.Progress)


class Decision(models.Model):
    """The decision about one incident, even if nothing is done. Equal repeats only raise ``count``."""

    class Answer(models.TextChoices):
        RESCUE = "rescue", _("Rescue")
        APPROVE = "approve", _("Needs approval")
        SHADOW = "shadow", _("Shadow")
        HOLD = "hold", _("Blocked")
        NONE = "none", _("No action")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="decisions")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="decisions")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, related_name="decisions")
    answer = models.CharField(max_length=10, choices=Answer.choices)
    mode = models.CharField(max_length=10)
    rule = models.CharField(max_length=300, blank=True)
    policy = models.CharField(max_length=253, blank=True)
    revision = models.PositiveIntegerField(null=True)
    because = models.JSONField(default=list)
    needs_person = models.BooleanField(
        default=False, db_default=False, help_text="it holds for a reason that only a person can resolve"
    )
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
        """The reasons, in the order of evaluation."""
        return tuple(reasons.from_json(stored) for stored in self.because)


class Rescue(models.Model):
    """The rescue record: one plan for one node, and its progress."""

    class State(models.TextChoices):
        HELD = "held", _("On hold")
        WAITING = "waiting", _("Waiting")
        RUNNING = "running", _("Running")
        SUCCEEDED = "succeeded", _("Succeeded")
        FAILED = "failed", _("Failed")
        CANCELLED = "cancelled", _("Cancelled")

    class Hold(models.TextChoices):
        NOTHING = "", _("Nothing")
        APPROVAL = "approval", _("Approval")
        STEP = "step", _("A failed step")
        EXTERNAL = "external", _("Another system")
        GUARD = "guard", _("A guard")

    class Origin(models.TextChoices):
        POLICY = "policy", _("Policy")
        API = "api", _("Decision system")
        MANUAL = "manual", _("Operator")

    class Requester(models.TextChoices):
        PERSON = "person", _("A person")
        TOKEN = "token", _("A program")
        POLICY = "policy", _("A policy")
        SYSTEM = "system", _("The portal")
        EXTERNAL = "external", _("A decision system")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rescues")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="rescues")
    node_uid = models.CharField(max_length=64, blank=True, help_text="uid of its machine when it was opened")
    decision = models.ForeignKey(Decision, on_delete=models.SET_NULL, null=True, related_name="rescues")
    incidents = models.ManyToManyField(Incident, related_name="rescues")
    origin = models.CharField(max_length=10, choices=Origin.choices)
    requested_by = models.CharField(max_length=200)
    requesters = models.JSONField(default=list, help_text="the people who count as the requester")
    requester_kind = models.CharField(max_length=10, choices=Requester.choices)
    reason = models.CharField(max_length=500, blank=True, help_text="a person's own words")
    opened_because = models.JSONField(default=dict, help_text="a Reason: why no person but the portal opened it")
    fault_kind = models.CharField(max_length=12, blank=True, help_text="kind of its fault: xid")
    fault_code = models.CharField(max_length=128, blank=True, help_text="code of its fault: 62")
    rule = models.CharField(max_length=300, blank=True)
    policy = models.CharField(max_length=253, blank=True)
    revision = models.PositiveIntegerField(null=True)
    plan_hash = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    outcome = models.CharField(max_length=20, blank=True, help_text="healed, isolated, escalated, done, ...")
    verified = models.BooleanField(null=True, help_text="the node was proved healthy; null: not tried")
    because = models.JSONField(default=dict, help_text="the reason why it waits, is held or ended so; {}: none")
    needs_human = models.BooleanField(default=False)
    hold = models.CharField(max_length=10, choices=Hold.choices, blank=True, help_text="what it waits for")
    gate = models.PositiveSmallIntegerField(null=True, help_text="index of the first step that needs an approval")
    approvers = models.PositiveSmallIntegerField(default=1, help_text="how many people must approve")
    approval_seconds = models.PositiveIntegerField(default=86_400, help_text="how long a request or approval is valid")
    expires_at = models.DateTimeField(null=True, help_text="when a request or an approval expires")
    overrides = models.JSONField(default=dict, help_text="guards that a named person may pass over: guard to name")
    passed_over = models.JSONField(default=list, help_text="overridden guards: when, before which step, and why")
    request = models.JSONField(default=dict, help_text="the decision system's request, as received")
    marks = models.JSONField(default=dict, help_text="what it changed on the node and has not reverted")
    marks_begun = models.JSONField(db_default={}, default=dict, help_text="marks of a write that has no answer yet")
    on_probation = models.BooleanField(
        db_default=False, default=False, help_text="the node was on probation when it was opened"
    )
    opened_at = models.DateTimeField()
    isolating_at = models.DateTimeField(null=True, help_text="when the guards last allowed the isolation")
    closed_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="when a worker continues it")
    calls_begun = models.PositiveIntegerField(default=0, help_text="calls that were made, or may have been")
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

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why it waits, is held or ended."""
        return reasons.kept(self.because)

    @property
    def code(self) -> str:
        """The fault in short: ``xid 62``; "" if the rescue is not about a fault."""
        return f"{self.fault_kind} {self.fault_code}".strip()


class Step(models.Model):
    """One step of a plan.

    ``progress`` is what it must remember between attempts, such as a boot ID or the remaining pods.
    """

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
    round = models.PositiveSmallIntegerField(default=1, help_text="2: repeated because the fault came back")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0, help_text="reserved before each call")
    failures = models.PositiveIntegerField(default=0, help_text="attempts in a row that asked to be repeated")
    progress = models.JSONField(default=dict)
    because = models.JSONField(default=dict, help_text="the reason why it waits, stopped or ended so; {}: none")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    withdraw_at = models.DateTimeField(null=True, help_text="when its request is withdrawn next; null: it is not")

    class Meta:
        ordering = ("rescue_id", "index")
        constraints = (models.UniqueConstraint(fields=("rescue", "index"), name="one_step_a_place"),)
        indexes = (
            models.Index(
                fields=("withdraw_at",), condition=models.Q(withdraw_at__isnull=False), name="steps_to_withdraw"
            ),
        )

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why it waits, stopped or ended."""
        return reasons.kept(self.because)

    @property
    def spec(self) -> actions.ActionSpec:
        return actions.ACTIONS[self.name]

    @property
    def takes_away(self) -> bool:
        """True if the step ends running work: it needs the approval, and the guards are evaluated right before it."""
        return self.spec.takes_away(self.args)

    @property
    def typed_progress(self) -> actions.Progress:
        """Its progress, with the fields that all actions have."""
        return self.spec.progress.from_json(self.progress)

    def args_as(self, record: type[A]) -> A:
        """Its arguments as the ``Args`` of its action. Raises TypeError for those of another action."""
        found = self.spec.args.from_json(self.args)
        if not isinstance(found, record):
            raise TypeError(f"step {self.name} has no {record.__module__}.{record.__name__}")
        return found

    def progress_as(self, record: type[P]) -> P:
        """Its progress as the ``Progress`` of its action. Raises TypeError for that of another action."""
        found = self.typed_progress
        if not isinstance(found, record):
            raise TypeError(f"step {self.name} has no {record.__module__}.{record.__name__}")
        return found

    def with_progress(self, **changes: Any) -> dict[str, Any]:
        """Its progress with these fields changed, as JSON. Raises TypeError for a field that its action lacks."""
        return dataclasses.replace(self.typed_progress, **changes).to_json()

    @property
    def leftovers(self) -> tuple[ObjectName, ...]:
        """The jobs that it requested, or was about to, and that are not known to be deleted."""
        return self.progress_as(actions.JobsProgress).leftovers if self.spec.leaves_jobs else ()

    def reserve(self, *, now: datetime) -> None:
        """Counts an attempt before it is made; saved by the caller. A crash leaves it counted (invariant 17)."""
        self.attempts += 1
        self.started_at = self.started_at or now
        self.state = self.State.RUNNING


class Approval(models.Model):
    """A person's approval or rejection of one rescue, bound to its plan, its gated step and its node."""

    rescue = models.ForeignKey(Rescue, on_delete=models.CASCADE, related_name="approvals")
    step = models.PositiveSmallIntegerField(default=0)
    node = models.CharField(max_length=253, blank=True)
    node_uid = models.CharField(max_length=64, blank=True)
    plan_hash = models.CharField(max_length=64)
    approved = models.BooleanField()
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    via = models.CharField(max_length=10, blank=True, help_text="console, rest or link")
    controllers = models.JSONField(default=list, help_text="others who could have used the account or the link")
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("rescue", "step", "plan_hash", "by"), name="one_vote_a_person"),)


class Assignment(models.Model):
    """A warm standby that takes a node's place: reserved, put into service, given back."""

    class State(models.TextChoices):
        RESERVED = "reserved", _("Reserved")
        ACTIVE = "active", _("In service")
        RELEASED = "released", _("Released")

    spare = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="stands_in")
    origin = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="stood_in_for")
    rescue = models.ForeignKey(Rescue, on_delete=models.CASCADE, related_name="assignments")
    state = models.CharField(max_length=10, choices=State.choices, default=State.RESERVED)
    marks = models.JSONField(default=dict, help_text="what it changed on the standby and has not reverted")
    marks_begun = models.JSONField(db_default={}, default=dict, help_text="marks of a write that has no answer yet")
    because = models.JSONField(default=dict, help_text="the reason why it was chosen or given back")
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


class Probation(models.Model):
    """The time after a return in which a node takes only work that may be lost."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="probations")
    node_uid = models.CharField(max_length=64, blank=True, help_text="uid of its machine")
    rescue = models.OneToOneField(Rescue, on_delete=models.CASCADE, related_name="probation")
    seconds = models.PositiveIntegerField()
    because = models.JSONField(help_text="a Reason: the basis of its length")
    marks = models.JSONField(default=dict, help_text="what it changed on the node")
    planned_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True, help_text="when the node was returned; null: not yet")
    until = models.DateTimeField()
    due_at = models.DateTimeField(null=True, help_text="when a worker looks at it next")
    end_because = models.JSONField(default=dict, help_text="a Reason: why it ends early, or has ended; {}: none")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node",),
                condition=models.Q(began_at__isnull=False, ended_at__isnull=True),
                name="one_probation_a_node",
            ),
        )
        indexes = (models.Index(fields=("due_at",), condition=models.Q(due_at__isnull=False), name="probations_due"),)

    @property
    def basis(self) -> reasons.Reason:
        return reasons.from_json(self.because)


class JobRestart(models.Model):
    """The last restart of a training job: at most one within a window, over all rescues (kcover's rule)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="job_restarts")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(
        max_length=63, default="", db_default="", help_text='of the job; "": an older portal did not record it'
    )
    job = models.CharField(max_length=253)
    rescue = models.ForeignKey(Rescue, on_delete=models.SET_NULL, null=True, related_name="job_restarts")
    at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1, help_text="restarts by the portal so far")
    because = models.JSONField(default=dict, help_text="a Reason: why it was restarted last")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("cluster", "namespace", "kind", "job"), name="one_restart_a_job"),
        )
