"""Policies and their revisions; a revision never changes."""

from django.db import models


class Policy(models.Model):
    """A named policy; ``revision`` is the number in force, 0 when it was deleted."""

    name = models.CharField(max_length=253, unique=True)
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return self.name


class Revision(models.Model):
    """One text of a policy as its author wrote it, with the parsed document beside it."""

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
