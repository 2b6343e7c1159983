"""What people did about a need."""

from django.db import models

from kcover_portal.fleet.models import Cluster


class NeedAct(models.Model):
    """An act about a need. Rows are only added; the newest one of a verb counts, while the cause lasts."""

    class Verb(models.TextChoices):
        ACKNOWLEDGE = "acknowledge"
        UNACKNOWLEDGE = "unacknowledge"
        ASSIGN = "assign"
        SNOOZE = "snooze"
        NOTE = "note"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="need_acts")
    need = models.CharField(max_length=32, help_text="the id of the cause")
    verb = models.CharField(max_length=16, choices=Verb.choices)
    by = models.CharField(max_length=200)
    at = models.DateTimeField()
    members = models.JSONField(default=list, help_text="the nodes of the need as its author saw it; or its rows")
    severity = models.CharField(max_length=10, blank=True, help_text="of the need as its author saw it")
    assignee = models.CharField(max_length=200, blank=True, help_text="of assign; empty: nobody")
    until = models.DateTimeField(null=True, help_text="of snooze; null: not snoozed any more")
    text = models.CharField(max_length=500, blank=True, help_text="a person's own words")

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=("need", "id"), name="need_acts_of_need"),)

    def __str__(self) -> str:
        return f"{self.verb} {self.need}"
