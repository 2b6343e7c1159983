"""The rows of the ledger. Only ``ledger.services`` writes them; entries are never updated or deleted."""

from typing import Final

from django.db import models

from kcover import audit

RESCUE_ENDS: Final = tuple(sorted(audit.RescueEnded.verbs()))  # verbs of entries that end a rescue


class Chain(models.Model):
    """The head of a cluster's chain. Appends are serialized by a lock on this row."""

    cluster = models.CharField(max_length=100, primary_key=True)
    sequence = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=64, default="")


class Entry(models.Model):
    """One audited act (``kcover.audit.from_entry``). ``digest`` covers all other fields and the previous digest."""

    cluster = models.CharField(max_length=100)
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    verb = models.CharField(max_length=60)
    subject = models.CharField(max_length=400, db_index=True, help_text="for people; programs read data")
    node = models.CharField(max_length=253, blank=True)
    rescue = models.BigIntegerField(null=True)
    data = models.JSONField(default=dict)
    previous = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("cluster", "sequence"), name="one_entry_per_sequence"),)
        indexes = (
            models.Index(fields=("cluster", "node", "-id"), name="entry_of_node"),
            models.Index(fields=("rescue", "id"), name="entry_of_rescue"),
            # one row a rescue: the healing records read the ends of a chain in order
            models.Index(
                fields=("cluster", "sequence"),
                name="entry_of_rescue_end",
                condition=models.Q(verb__in=("rescue.cancelled", "rescue.failed", "rescue.succeeded")),
            ),
        )

    def __str__(self) -> str:
        return f"{self.cluster}/{self.sequence} {self.verb} {self.subject}"
