"""Sources, and the events that they have sent lately."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.sources import settings
from kcover.values import masked_addresses
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib import stored_secrets


class Source(ModelWithSecrets):
    """A system that reports faults of the nodes of one cluster. Its token is never shown again."""

    class Kind(models.TextChoices):
        PODS = "pods", _("Pods")
        EVENTS = "events", _("Kubernetes Events")
        CONDITIONS = "conditions", _("Node conditions")
        ALERTMANAGER = "alertmanager", "Alertmanager"
        CLOUDEVENTS = "cloudevents", "CloudEvents"
        LOKI = "loki", "Loki"
        GPUD = "gpud", "gpud"
        PROMETHEUS = "prometheus", "Prometheus"
        PERFORMANCE = "performance", _("Performance of jobs")
        POD_LOGS = "pod-logs", _("Pod logs")

    name = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="sources")
    url = models.CharField(max_length=1000, blank=True)
    token = EncryptedTextField(
        bound_to="name",
        engine_only=True,
        sent_to="receiver",
        blank=True,
        help_text="sent to the address; at most 4000 characters",
    )
    settings = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    last_contact_at = models.DateTimeField(null=True, help_text="when it last sent or answered anything")
    event_at = models.DateTimeField(null=True, help_text="when the portal took its last event")
    newest_at = models.DateTimeField(null=True, help_text="own time of its newest event that is no backfill")
    lag = models.FloatField(null=True, help_text="seconds from the newest event's own time to its arrival")
    accepted = models.PositiveBigIntegerField(default=0)
    duplicates = models.PositiveBigIntegerField(default=0)
    rejected = models.PositiveBigIntegerField(default=0)
    error = models.JSONField(default=dict, help_text="the last Reason why something was not taken; {}: none")
    error_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="when the portal reads it next; null: at once")
    attempts = models.PositiveIntegerField(default=0, help_text="failed reads since the last that worked")
    cursor = models.JSONField(default=dict, help_text="up to where it was read")

    class Meta:
        ordering = ("cluster__name", "name")

    def __str__(self) -> str:
        return self.name

    @property
    def is_builtin(self) -> bool:
        """True if the source exists for each cluster."""
        return self.kind in settings.WATCHED

    @property
    def is_pushed(self) -> bool:
        """True if another system sends the events."""
        return self.kind in settings.PUSHED

    @property
    def shown_url(self) -> str:
        """The address without secrets."""
        return masked_addresses.mask_text(self.url)

    @property
    def receiver(self) -> str:
        """The server that gets the token, and whether it must prove who it is."""
        return f"{stored_secrets.server(self.url)}{' insecure' if self.settings.get('insecure') else ''}"

    @property
    def is_pulled(self) -> bool:
        """True if the portal asks for the events."""
        return self.kind in settings.PULLED

    @property
    def why(self) -> reasons.Reason | None:
        """The last error."""
        return reasons.kept(self.error)


class SourceTest(models.Model):
    """A test that a worker does, because the process that was asked cannot read the source's token."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="tests")
    asked_at = models.DateTimeField(db_index=True)
    answered_at = models.DateTimeField(null=True)
    ok = models.BooleanField(default=False)
    seen = models.PositiveIntegerField(default=0)
    lag = models.FloatField(null=True)
    error = models.JSONField(default=dict, help_text="a Reason; {}: none")

    def __str__(self) -> str:
        return f"test of {self.source_id}"

    @property
    def why(self) -> reasons.Reason | None:
        """Why the source cannot be used."""
        return reasons.kept(self.error)


class TakenEvent(models.Model):
    """An event that a source sent. A repetition of it changes nothing."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="taken_events")
    digest = models.CharField(max_length=32, help_text="of its identity within the source")
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("source", "digest"), name="one_row_a_taken_event"),)


class ToldSeries(models.Model):
    """The latest fault and the latest pass that a sending source told of one series. Times are the source's own."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="told_series")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="told_series")
    digest = models.CharField(max_length=32, help_text="of its identity within the source")
    kind = models.CharField(max_length=12, help_text="of its faults")
    check_name = models.CharField(max_length=200)
    device = models.JSONField(default=list, help_text="slot, UUID, unit and part")
    xid = models.BigIntegerField(null=True, help_text="the last one that it named; 0: none; null: nobody kept it")
    fault_at = models.DateTimeField(null=True)
    passed_at = models.DateTimeField(null=True)
    at = models.DateTimeField(db_index=True, help_text="when the portal last stored it")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("source", "digest"), name="one_row_a_told_series"),)
        indexes = (models.Index(fields=("source", "node"), name="told_series_of_node"),)
