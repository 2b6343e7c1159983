"""Rows of the ledger. Written by ``ledger.services`` only; never updated, never deleted."""

from django.db import models


class Chain(models.Model):
    """The head of one cluster's chain; its row is the lock that keeps the chain in one line."""

    cluster = models.CharField(max_length=100, primary_key=True)
    sequence = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=64, default="")


class Entry(models.Model):
    """One act. ``data`` is plain JSON; ``digest`` covers every other field and the entry before."""

    cluster = models.CharField(max_length=100)
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    verb = models.CharField(max_length=60)
    subject = models.CharField(max_length=300, db_index=True)
    node = models.CharField(max_length=253, blank=True)
    rescue = models.BigIntegerField(null=True)
    data = models.JSONField(default=dict)
    previous = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("cluster", "sequence"), name="one_entry_a_place_in_the_chain"),)
        indexes = (
            models.Index(fields=("cluster", "node", "-id"), name="entry_of_node"),
            models.Index(fields=("rescue", "id"), name="entry_of_rescue"),
        )

    def __str__(self) -> str:
        return f"{self.cluster}/{self.sequence} {self.verb} {self.subject}"
