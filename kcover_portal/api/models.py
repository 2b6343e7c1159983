"""Responses stored for idempotency keys."""

from django.db import models


class Answered(models.Model):
    """An executed request and its response, which is returned again for the same idempotency key."""

    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=200)
    request = models.CharField(max_length=64, help_text="SHA-256 of method, address and body")
    status = models.PositiveSmallIntegerField()
    body = models.JSONField()
    rights = models.JSONField(default=list, help_text="[role, cluster] that the request was checked for")
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("actor", "key"), name="one_answer_a_key"),)
