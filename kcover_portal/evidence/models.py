"""Bundles of evidence and their chunks."""

import uuid

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover_portal.fleet.models import Node


class Bundle(models.Model):
    """A bundle that one round of a rescue asked for. The row stays when its content is deleted.

    The rescue belongs to an app above this one, so it is here by its id.
    """

    class State(models.TextChoices):
        REQUESTED = "requested", _("Requested")
        KEPT = "kept", _("Stored")
        DELETED = "deleted", _("Deleted")
        MISSED = "missed", _("Missing")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="evidence")
    rescue = models.PositiveBigIntegerField()
    number = models.PositiveSmallIntegerField(help_text="the round of the rescue that asked for it")
    state = models.CharField(max_length=10, choices=State.choices, default=State.REQUESTED)
    sha256 = models.CharField(max_length=64, blank=True, help_text="of the whole bundle, as the agent stated it")
    size = models.PositiveIntegerField(default=0, help_text="bytes of the whole bundle, as the agent stated it")
    received = models.PositiveIntegerField(default=0, help_text="bytes that are stored")
    restarts = models.PositiveSmallIntegerField(default=0, help_text="uploads whose bytes had another hash")
    requested_at = models.DateTimeField()
    taken_at = models.DateTimeField(null=True, help_text="when the agent collected it, by the portal's clock")
    kept_at = models.DateTimeField(null=True, help_text="when the portal had all of it")

    class Meta:
        ordering = ("rescue", "number")
        constraints = (models.UniqueConstraint(fields=("rescue", "number"), name="one_bundle_a_round"),)
        indexes = (
            models.Index(fields=("requested_at",), condition=models.Q(received__gt=0), name="bundles_with_content"),
            models.Index(
                fields=("requested_at", "id"), condition=models.Q(state="requested"), name="bundles_requested"
            ),
        )

    def __str__(self) -> str:
        return f"evidence {self.number} of rescue {self.rescue}"


class Chunk(models.Model):
    """A part of a bundle."""

    bundle = models.ForeignKey(Bundle, on_delete=models.CASCADE, related_name="chunks")
    offset = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("bundle_id", "offset")
        constraints = (models.UniqueConstraint(fields=("bundle", "offset"), name="one_chunk_an_offset"),)
