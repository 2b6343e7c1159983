"""Policies and their immutable revisions."""

from django.db import models

from kcover.policy import document


class Policy(models.Model):
    """A named policy. ``revision`` is the active revision, 0 if the policy is disabled (archived)."""

    class Kind(models.TextChoices):
        RESCUE = document.RESCUE
        STANDBY = document.STANDBY

    kind = models.CharField(max_length=20, choices=Kind.choices, default=Kind.RESCUE)
    name = models.CharField(max_length=253)
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True)
    archived_by = models.CharField(max_length=200, blank=True)
    archived_because = models.CharField(max_length=500, blank=True)

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
    at = models.DateTimeField()

    class Meta:
        ordering = ("policy_id", "-number")
        constraints = (models.UniqueConstraint(fields=("policy", "number"), name="one_revision_a_number"),)
