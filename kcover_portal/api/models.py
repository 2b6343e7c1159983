"""What the REST door must remember: answers given under an idempotency key."""

from django.db import models


class Answered(models.Model):
    """A request that acted, and its answer: asking again with the same key gives the same answer and acts no more."""

    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=200)
    request = models.CharField(max_length=64, help_text="SHA-256 of method, address and body")
    status = models.PositiveSmallIntegerField()
    body = models.JSONField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("actor", "key"), name="one_answer_a_key"),)
