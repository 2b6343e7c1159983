"""Sinks, and how far each has read. The records themselves belong to the topics."""

from urllib.parse import urlsplit

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import masked_addresses, reasons
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets, peek


class Sink(ModelWithSecrets):
    """A receiver of records. Its secret is never shown again, its address only in part."""

    class Kind(models.TextChoices):
        FILE = "file", _("JSON Lines file")
        SYSLOG = "syslog", _("Syslog (RFC 5424)")
        WEBHOOK = "webhook", _("Signed webhook")

    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    address = EncryptedTextField(
        bound_to="name", help_text="a file's name, tcp://HOST:PORT, or the webhook's address, which may contain a key"
    )
    secret = EncryptedTextField(bound_to="name", blank=True, help_text="signs what a webhook receives")
    topics = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="no attempt before: the back-off after failures")
    attempts = models.PositiveIntegerField(default=0, help_text="failures in a row")
    failures = models.PositiveBigIntegerField(default=0, help_text="failures since its creation")
    sent = models.PositiveBigIntegerField(default=0, help_text="records since its creation; repeated ones count again")
    sent_at = models.DateTimeField(null=True, help_text="the last success")
    problem = models.JSONField(default=dict, help_text="the reason of the last failure; {}: the last attempt succeeded")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def shown_address(self) -> str:
        """The address without what may be a key."""
        address = peek(self, "address") or ""
        if self.kind != self.Kind.WEBHOOK:
            return address
        return masked_addresses.mask_text(f"{urlsplit(address).scheme}://{urlsplit(address).netloc}")

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why the last attempt failed; None if it succeeded."""
        return reasons.kept(self.problem)


class Position(models.Model):
    """The last record of one part of a topic that a sink has received."""

    sink = models.ForeignKey(Sink, on_delete=models.CASCADE, related_name="positions")
    topic = models.CharField(max_length=40)
    part = models.CharField(max_length=100, blank=True)
    number = models.BigIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("sink", "topic", "part"), name="one_position_per_part"),)
