"""One row per report."""

from django.db import models


class Report(models.Model):
    node = models.CharField(max_length=253, db_index=True)
    batch_id = models.UUIDField(unique=True)
    received_at = models.DateTimeField(auto_now_add=True, db_index=True)
    body = models.JSONField()

    class Meta:
        app_label = "naive"
