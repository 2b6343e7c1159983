"""Sinks, and how far each has read. The records themselves belong to the topics."""

import hashlib
from typing import ClassVar
from urllib.parse import urlsplit

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.values import masked_addresses
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets, peek
from kcover_portal.lib import stored_secrets


class Sink(ModelWithSecrets):
    """A receiver of records. Its secret is never shown again, its address only in part."""

    class Kind(models.TextChoices):
        FILE = "file", _("JSON Lines file")
        SYSLOG = "syslog", _("Syslog (RFC 5424)")
        WEBHOOK = "webhook", _("Signed webhook")
        CLOUDEVENTS = "cloudevents", _("CloudEvents webhook")
        LOKI = "loki", _("Loki")
        BUCKET = "s3", _("S3 bucket")
        JIRA = "jira", _("Jira Cloud")
        MAIL = "mail", _("E-mail")

    WEBHOOKS: ClassVar[frozenset[str]] = frozenset({Kind.WEBHOOK, Kind.CLOUDEVENTS})  # signed, and with keys in URLs
    TICKETS: ClassVar[frozenset[str]] = frozenset({Kind.JIRA, Kind.MAIL})  # they understand the topic ``tickets`` only

    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    address = EncryptedTextField(
        bound_to="name",
        help_text="a file's name, tcp://HOST:PORT, recipients of mail, or a URL; a webhook's may contain a key",
    )
    secret = EncryptedTextField(
        bound_to="name",
        engine_only=True,
        sent_to="receiver",
        blank=True,
        help_text="signs what a webhook receives; token of Loki or Jira; ACCESS_KEY:SECRET_KEY of S3",
    )
    incoming_key = EncryptedTextField(
        default="",
        db_default="",
        bound_to="name",
        blank=True,
        help_text="checks what arrives: of a webhook, made of its secret; of others, as given",
    )
    options = models.JSONField(
        db_default={}, default=dict, help_text="settings of its kind: services.options names them"
    )
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
    def receiver(self) -> str:
        """The server that gets the secret, or signatures of it. Raises SecretUnreadable."""
        return stored_secrets.server(self.address)

    @property
    def shown_address(self) -> str:
        """The address without what may be a key."""
        address = peek(self, "address") or ""
        if self.kind not in self.WEBHOOKS:
            return address
        return masked_addresses.mask_text(f"{urlsplit(address).scheme}://{urlsplit(address).netloc}")

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why the last attempt failed; None if it succeeded."""
        return reasons.kept(self.problem)

    def digest_of(self, name: str) -> str:
        """SHA-256 of a name inside this sink, in hexadecimal. It stays the same after a restore of the database."""
        return hashlib.sha256(f"{self.name}\n{self.created_at.timestamp():.6f}\n{name}".encode()).hexdigest()


class Issue(models.Model):
    """The issue in Jira that a sink has for a repair, and what is left to do about it."""

    sink = models.ForeignKey(Sink, on_delete=models.CASCADE, related_name="issues")
    repair = models.BigIntegerField(help_text="its id; repairs are in an app above")
    key = models.CharField(max_length=60, blank=True, help_text="OPS-12; empty: Jira has not confirmed one")
    number = models.CharField(
        max_length=30,
        blank=True,
        default="",
        db_default="",
        help_text="Jira's id, which stays when the issue is moved to another project; empty: unknown",
    )
    asked_at = models.DateTimeField(null=True, help_text="when Jira was last asked to create it")
    begun = models.BigIntegerField(default=0, help_text="number of the record that Jira was last told")
    told = models.BigIntegerField(default=0, help_text="number of the record that Jira has confirmed")
    noted = models.BooleanField(default=False, help_text="the repair has the key as its ticket")
    closing = models.BooleanField(default=False, help_text="the repair has ended, the issue is not closed yet")
    closes_to = models.CharField(max_length=200, blank=True, help_text="the state to which it was last moved")
    attempts = models.PositiveIntegerField(default=0, help_text="to close it, in a row")
    due_at = models.DateTimeField(null=True, help_text="the next attempt to close it")
    problem = models.JSONField(default=dict, help_text="the reason why it could not be closed; {}: none")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("sink", "repair"), name="one_issue_a_repair"),)
        indexes = (
            models.Index(fields=("due_at",), condition=models.Q(closing=True), name="issues_to_close"),
            models.Index(fields=("sink", "key"), name="issues_by_key"),
            models.Index(fields=("sink", "number"), name="issues_by_number"),
        )

    def __str__(self) -> str:
        return self.key or f"issue of repair {self.repair}"

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why it could not be closed; None without one."""
        return reasons.kept(self.problem)


class Refusal(models.Model):
    """A record of a repair that a receiver refuses for good. After some attempts it is set aside for a person."""

    sink = models.ForeignKey(Sink, on_delete=models.CASCADE, related_name="refusals")
    topic = models.CharField(max_length=40)
    part = models.CharField(max_length=100, blank=True)
    number = models.BigIntegerField()
    repair = models.BigIntegerField(help_text="its id; repairs are in an app above")
    times = models.PositiveIntegerField(default=0)
    because = models.JSONField(default=dict, help_text="the reason of the last refusal")
    set_aside_at = models.DateTimeField(null=True, help_text="since then the sink goes on without it")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("sink", "topic", "part", "number"), name="one_refusal_a_record"),
        )

    def __str__(self) -> str:
        return f"record {self.number} of repair {self.repair}"

    @property
    def why(self) -> reasons.Reason | None:
        """The reason of the last refusal."""
        return reasons.kept(self.because)


class Position(models.Model):
    """The last record of one part of a topic that a sink has received."""

    sink = models.ForeignKey(Sink, on_delete=models.CASCADE, related_name="positions")
    topic = models.CharField(max_length=40)
    part = models.CharField(max_length=100, blank=True)
    number = models.BigIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("sink", "topic", "part"), name="one_position_per_part"),)
