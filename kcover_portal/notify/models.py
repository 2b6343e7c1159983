"""Channels, routes and deliveries. A delivery is one message to one channel, with a notice for each of its events."""

import zoneinfo
from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover import reasons
from kcover.faults import catalog
from kcover.notify import schedule
from kcover.notify.schedule import Schedule
from kcover_portal.accounts.models import User
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets, peek
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import stored_secrets
from kcover_portal.rescue.models import Step


class Channel(ModelWithSecrets):
    """A way to reach people or another system. Its address and secret are never shown again."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Signed webhook")
        SLACK = "slack", _("Slack, Mattermost, Rocket.Chat")
        TEAMS = "teams", _("Microsoft Teams")
        DINGTALK = "dingtalk", _("DingTalk")
        FEISHU = "feishu", _("Feishu, Lark")
        WECOM = "wecom", _("WeCom")
        PAGERDUTY = "pagerduty", _("PagerDuty")
        OPSGENIE = "opsgenie", _("Opsgenie")
        ALERTMANAGER = "alertmanager", _("Alertmanager")
        MAIL = "mail", _("E-mail")

    # They wake the person on call: an event for each alert and for its end instead of a text (``senders.pagers``).
    PAGERS = (Kind.PAGERDUTY, Kind.OPSGENIE, Kind.ALERTMANAGER)

    name = models.CharField(max_length=63, unique=True, help_text="the name that policies use")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    url = EncryptedTextField(
        bound_to="name",
        engine_only=True,
        blank=True,
        help_text="a secret: most services put their key into it; at most 1000 characters",
    )
    secret = EncryptedTextField(
        bound_to="name",
        engine_only=True,
        sent_to="receiver",
        blank=True,
        help_text="signs what is sent, or is a pager's key; at most 200 characters, of an Alertmanager 4000",
    )
    recipients = models.JSONField(default=list, help_text="addresses of e-mail")
    language = models.CharField(max_length=10, default="en")
    person = models.ForeignKey(
        User,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="reaches only this person: questions carry a link that answers in their name",
    )
    addressed_by = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="who last chose its address; empty: whoever made it",
    )
    person_by = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="who last chose its person; empty: as addressed_by",
    )
    batching = models.PositiveIntegerField(
        default=10, help_text="seconds during which events are batched into one message"
    )
    min_interval = models.PositiveIntegerField(default=60, help_text="least seconds between two messages")
    remind = models.PositiveIntegerField(
        null=True, help_text="seconds until a reminder of a pending question; null: half of its time; 0: never"
    )
    for_owners = models.BooleanField(
        default=False, db_default=False, help_text="owners of jobs may name it in the annotation kcover.io/notify"
    )
    quiet_hours = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="Mon-Fri 22:00-07:00; urgent events ignore them",
    )
    digest_at = models.CharField(
        max_length=5, blank=True, default="", db_default="", help_text="08:30: one message a day, save urgent events"
    )
    time_zone = models.CharField(
        max_length=60, blank=True, default="", db_default="", help_text="of both; empty: KCOVER_TIME_ZONE"
    )
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    tried_at = models.DateTimeField(null=True, help_text="when the last attempt to send began")
    sent_at = models.DateTimeField(null=True, help_text="when a message last arrived")
    trouble = models.JSONField(default=dict, help_text="a Reason: why the last attempt failed; empty: it did not")
    repeat_at = models.DateTimeField(null=True, help_text="when an Alertmanager gets its open alerts again")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def pages(self) -> bool:
        """True if the channel is a pager, which gets an event for each alert."""
        return self.kind in self.PAGERS

    @property
    def schedule(self) -> Schedule:
        """When it receives events that are not urgent. Raises ScheduleInvalid."""
        try:
            zone = zoneinfo.ZoneInfo(self.time_zone or settings.TIME_ZONE)
        except (zoneinfo.ZoneInfoNotFoundError, OSError):  # a zone that the system's database has no longer
            zone = zoneinfo.ZoneInfo("UTC")
        return Schedule(
            zone=zone, quiet=schedule.read_quiet(self.quiet_hours), digest=schedule.read_time(self.digest_at)
        )

    @property
    def receiver(self) -> str:
        """The server that gets signatures of the secret, or the secret itself. Raises SecretUnreadable."""
        return stored_secrets.server(self.url)

    @property
    def host(self) -> str:
        """The part of the address that may be shown; "" where only the engine can read it."""
        return urlsplit(peek(self, "url") or "").hostname or ""


class Route(models.Model):
    """The events that go to a channel (``kcover.notify.events``)."""

    SEVERITIES = (
        ("info", _("Info")),
        ("warning", _("Warning")),
        ("degraded", pgettext_lazy("severity", "Degraded")),
        ("fatal", _("Fatal")),
    )
    assert [name for name, _label in SEVERITIES] == list(catalog.SEVERITIES)

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="routes")
    kinds = models.JSONField(default=list)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="+")
    least = models.CharField(max_length=10, choices=SEVERITIES, blank=True, help_text="incidents from here on")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("channel__name", "pk")


class NamespaceRoute(models.Model):
    """The channel of the training jobs in some namespaces of a cluster whose own annotation names none."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="namespace_routes")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    namespace = models.CharField(max_length=63, help_text="a name, or a pattern with *")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("cluster__name", "namespace")
        constraints = (models.UniqueConstraint(fields=("cluster", "namespace"), name="one_route_a_namespace"),)


class Delivery(models.Model):
    """One message. While it is ``batching``, notices are added; a worker claims it by a conditional update."""

    class State(models.TextChoices):
        PENDING = "pending", _("Waiting")
        SENDING = "sending", _("Sending")
        SENT = "sent", _("Sent")
        FAILED = "failed", _("Not delivered")
        DROPPED = "dropped", _("Dropped")

    UNDER_WAY = (State.PENDING, State.SENDING)

    channel = models.ForeignKey(Channel, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    name = models.CharField(max_length=63, help_text="the channel's name; the channel may be deleted")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    batching = models.BooleanField(default=False)
    test = models.BooleanField(default=False)
    key = models.UUIDField(
        unique=True, help_text="the same for every attempt, so that receivers recognise a repetition"
    )
    omitted = models.PositiveIntegerField(default=0, help_text="events beyond those that are kept")
    subject = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True, help_text="as sent, without links that answer in a person's name")
    attempts = models.PositiveIntegerField(default=0, help_text="reserved before each attempt")
    because = models.JSONField(default=dict, help_text="a Reason: the other side's last answer")
    opened_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    token = models.PositiveBigIntegerField(default=0, help_text="fencing token of the last lease")
    lease_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("channel",), condition=models.Q(batching=True), name="one_batching_delivery_per_channel"
            ),
        )
        indexes = (
            models.Index(
                fields=("due_at",), condition=models.Q(state__in=("pending", "sending")), name="deliveries_due"
            ),
            models.Index(fields=("closed_at",), name="deliveries_closed"),
        )

    def __str__(self) -> str:
        return f"delivery {self.pk} to {self.name}"

    @property
    def why(self) -> reasons.Reason | None:
        """The last answer of the other side, or why nothing was sent."""
        return reasons.kept(self.because)


class Notice(models.Model):
    """One event in one delivery. ``key`` names the event for good, so that a channel gets it once."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="notices")
    channel = models.ForeignKey(Channel, on_delete=models.SET_NULL, null=True, related_name="+")
    key = models.CharField(max_length=160)
    kind = models.CharField(max_length=20)
    cluster = models.CharField(max_length=100, blank=True)
    node = models.CharField(max_length=253, blank=True)
    what = models.CharField(max_length=100, blank=True)
    severity = models.CharField(max_length=12, blank=True)
    record = models.BigIntegerField(null=True)
    because = models.JSONField(default=dict, help_text="a Reason: why it happened; empty: unknown")
    drill = models.BooleanField(default=False)
    nodes = models.PositiveIntegerField(default=0)
    again = models.BooleanField(default=False, help_text="a reminder of an earlier event")
    at = models.DateTimeField()
    step = models.ForeignKey(
        Step, on_delete=models.SET_NULL, null=True, related_name="+", help_text="the step that waits for this notice"
    )
    action = models.CharField(max_length=11, blank=True, help_text="for a pager: trigger, acknowledge or resolve")
    page = models.CharField(max_length=160, blank=True, help_text="for a pager: by which it recognises repetitions")
    accepted_at = models.DateTimeField(null=True, help_text="for a pager: when it accepted this event")
    body = models.JSONField(default=dict, db_default={}, help_text="for an Alertmanager: its alert, with the labels")

    class Meta:
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("channel", "key"), name="one_notice_per_event"),)
        # Read each second while a request is pending, to find out who was notified of it.
        indexes = (models.Index(fields=("record", "kind"), name="notices_of_a_record"),)

    @property
    def why(self) -> reasons.Reason | None:
        """The reason of the event, or the message of a rule."""
        return reasons.kept(self.because)


class Alert(models.Model):
    """An alert that is open at a pager, so that it is resolved there and not opened twice. Deleted once resolved.

    Similar alerts of one delivery share a ``page``, which is resolved with the last of them.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="alerts")
    name = models.CharField(max_length=160, help_text="kcover.notify.pager: incident-41 for example")
    page = models.CharField(max_length=160)
    opened_at = models.DateTimeField()
    body = models.JSONField(default=dict, db_default={}, help_text="for an Alertmanager: the alert as it is repeated")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("channel", "name"), name="one_alert_a_channel"),)
        indexes = (models.Index(fields=("channel", "page"), name="alerts_of_a_page"),)

    def __str__(self) -> str:
        return self.name


class OpenNeed(models.Model):
    """A need that no entry of the audit log announces, such as a source that fails. Deleted once it has ended."""

    kind = models.CharField(max_length=12, help_text="kcover.needs")
    record = models.BigIntegerField(help_text="the id of the cluster, source or repair")
    cluster = models.CharField(max_length=100)
    name = models.CharField(max_length=120, help_text="of the source, which may be deleted, or of the repair")
    since = models.DateTimeField()
    announced_at = models.DateTimeField(null=True, help_text="null: it has not lasted long enough yet")
    absent_since = models.DateTimeField(null=True, help_text="null: it is still there")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("kind", "record"), name="one_open_need_a_record"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.name or self.cluster}"


class Cursor(models.Model):
    """The position up to which one source of events was read: a cluster's chain in the ledger, or incidents by id."""

    name = models.CharField(max_length=120, primary_key=True)
    position = models.BigIntegerField(default=0)
    gaps = models.JSONField(default=dict, help_text="ids that did not exist yet: id to when that was noticed")
    at = models.DateTimeField(help_text="when it was last moved")
