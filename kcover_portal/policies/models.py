"""Policies and their immutable revisions."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.policy import document
from kcover_portal.fleet.models import Cluster


class Policy(models.Model):
    """A named policy. ``revision`` is the active revision, 0 if the policy is disabled (archived)."""

    class Kind(models.TextChoices):
        RESCUE = document.RESCUE
        STANDBY = document.STANDBY

    kind = models.CharField(max_length=20, choices=Kind.choices, default=Kind.RESCUE)
    name = models.CharField(max_length=253)
    revision = models.PositiveIntegerField(default=0)
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        null=True,
        related_name="policy_objects",
        help_text="the cluster that keeps the policy as an object: it holds there only; null: one of the portal's own",
    )
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True)
    archived_by = models.CharField(max_length=200, blank=True)
    archived_because = models.JSONField(default=dict, blank=True, help_text="the Reason; {}: nobody gave one")

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "policies"
        constraints = (
            models.UniqueConstraint(fields=("kind", "name"), name="one_policy_a_name"),
            # In KCE there is one WarmStandbyPolicy per cluster.
            models.UniqueConstraint(
                fields=("kind",),
                condition=models.Q(kind=document.STANDBY, revision__gt=0),
                name="one_standby_policy_in_force",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Revision(models.Model):
    """One text of a policy as written by its author, with the parsed document."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    text = models.TextField()
    document = models.JSONField()
    author = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    because = models.JSONField(default=dict, blank=True, help_text="the portal's own Reason; {}: none")
    at = models.DateTimeField()

    class Meta:
        ordering = ("policy_id", "-number")
        constraints = (models.UniqueConstraint(fields=("policy", "number"), name="one_revision_a_number"),)

    @property
    def why(self) -> reasons.Reason | None:
        """The portal's own reason."""
        return reasons.kept(self.because)


class PolicyTry(models.Model):
    """A text that is tried on incidents by workers, in slices. Nothing of it is applied."""

    class State(models.TextChoices):
        """``running`` from the first slice on, also between slices and after a worker's death."""

        WAITING = "waiting", _("Waiting")
        RUNNING = "running", _("Running")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        CANCELLED = "cancelled", _("Cancelled")

    OPEN = (State.WAITING, State.RUNNING)

    text = models.TextField()
    owner = models.CharField(max_length=40, help_text="who asked, as places name them; only they may read it")
    past = models.BooleanField(help_text="decide on the facts of the first decision instead of the present ones")
    pending = models.JSONField(default=list, help_text="ids of the incidents that are left, the next one last")
    total = models.PositiveIntegerField()
    truncated = models.BooleanField(default=False)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    because = models.JSONField(default=dict, blank=True)
    slices = models.PositiveIntegerField(default=0, help_text="begun since the last progress")
    holder = models.CharField(max_length=40, blank=True)
    lease_until = models.DateTimeField(null=True)
    requested_at = models.DateTimeField()
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("state",), name="tries_by_state"),)
        constraints = (
            models.UniqueConstraint(
                fields=("owner",), condition=models.Q(state__in=("waiting", "running")), name="one_open_try_a_person"
            ),
        )


class PolicyTryResult(models.Model):
    """One incident of a try."""

    tried = models.ForeignKey(PolicyTry, on_delete=models.CASCADE, related_name="results")
    incident = models.BigIntegerField()
    cluster = models.BigIntegerField()
    data = models.JSONField()

    class Meta:
        ordering = ("-incident",)
        constraints = (models.UniqueConstraint(fields=("tried", "incident"), name="one_result_an_incident"),)
