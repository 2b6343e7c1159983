"""Rows that the portal's processes share: the installation, heartbeats, leases, remembered hashes and counters."""

from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy


class Mode(models.TextChoices):
    """The mode of automation; the strictest of installation, cluster and rule wins."""

    PAUSED = "paused", _("Paused")
    SHADOW = "shadow", _("Shadow")
    APPROVE = "approve", pgettext_lazy("mode", "Approve")
    ENFORCE = "enforce", _("Enforce")


class Installation(models.Model):
    """The single row of settings for the whole portal."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    mode = models.CharField(max_length=10, choices=Mode.choices, default=Mode.ENFORCE)
    resumes_as = models.CharField(max_length=10, choices=Mode.choices, blank=True, help_text="the mode before a pause")
    reason = models.CharField(max_length=500, blank=True)
    changed_by = models.CharField(max_length=200, blank=True)
    changed_at = models.DateTimeField(null=True)
    decision_change = models.CharField(
        max_length=32, blank=True, help_text="id of the last change that affects decisions in every cluster"
    )
    first_choice_dismissed_at = models.DateTimeField(
        null=True, help_text="when an admin put off the choice of a first policy pack"
    )

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="one_installation"),)


class Heartbeat(models.Model):
    """The time when a process or a periodic task last ran."""

    name = models.CharField(max_length=60, primary_key=True)
    at = models.DateTimeField()
    since = models.DateTimeField(null=True, help_text="start of the present run of heartbeats without a gap")


class Lease(models.Model):
    """A lock with an end: at most one holder at a time, enforced by the database."""

    name = models.CharField(max_length=60, primary_key=True)
    holder = models.CharField(max_length=120, blank=True)
    until = models.DateTimeField()
    renewed_at = models.DateTimeField()


class RememberedHash(models.Model):
    """The hash of a value as a process last saw it; tells a change without storing the value."""

    topic = models.CharField(max_length=60)
    key = models.CharField(max_length=60, blank=True)
    value = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("topic", "key"), name="one_hash_a_key"),)


class Counter(models.Model):
    """A count that several processes add to and metrics show, for events that leave no row of their own."""

    topic = models.CharField(max_length=60)
    name = models.CharField(max_length=60)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("topic", "name"), name="one_counter_a_name"),)


class LoadSample(models.Model):
    """What the portal had to do at one time. A ring: ``slot`` is used again after a day.

    Numbers of reports and events add up since the installation.
    """

    slot = models.PositiveSmallIntegerField(primary_key=True)
    at = models.DateTimeField()
    reports = models.PositiveBigIntegerField(help_text="reports of agents that were stored")
    refused = models.PositiveBigIntegerField(help_text="reports of agents that were not")
    events = models.PositiveBigIntegerField(help_text="events of sources that were taken")
    rejected = models.PositiveBigIntegerField(help_text="events of sources that were not")
    rescues = models.PositiveIntegerField(help_text="rescues that were due for a worker")
    faults = models.PositiveIntegerField(help_text="faults that were due for a decision")
    waited = models.FloatField(help_text="seconds for which the oldest of them had been due")
