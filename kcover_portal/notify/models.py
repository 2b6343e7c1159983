"""Channels, routes, deliveries. A delivery is one message to one channel, made of the notices that gathered for it."""

from urllib.parse import urlsplit

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from kcover import catalog
from kcover_portal.accounts.models import User
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import Step


class Channel(models.Model):
    """A way to people or to another system. Its address and secret are kept to be used and never shown again."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Signed webhook")
        SLACK = "slack", _("Slack, Mattermost, Rocket.Chat")
        TEAMS = "teams", _("Microsoft Teams")
        DINGTALK = "dingtalk", _("DingTalk")
        FEISHU = "feishu", _("Feishu, Lark")
        WECOM = "wecom", _("WeCom")
        PAGERDUTY = "pagerduty", _("PagerDuty")
        OPSGENIE = "opsgenie", _("Opsgenie")
        MAIL = "mail", _("E-mail")

    # They wake whoever is on call: an event for each alert and for its end, not a text (``senders.pagers``).
    PAGERS = (Kind.PAGERDUTY, Kind.OPSGENIE)

    name = models.CharField(max_length=63, unique=True, help_text="as policies name it")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    url = models.CharField(max_length=1000, blank=True, help_text="a secret: most services put their key into it")
    secret = models.CharField(max_length=200, blank=True, help_text="signs what is sent, or is a pager's key")
    recipients = models.JSONField(default=list, help_text="addresses of e-mail")
    language = models.CharField(max_length=10, default="en")
    person = models.ForeignKey(
        User,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="reaches this person alone: questions carry a link that answers in their name",
    )
    gather = models.PositiveIntegerField(default=10, help_text="seconds to gather before a message goes out")
    spacing = models.PositiveIntegerField(default=60, help_text="seconds between two messages at least")
    remind = models.PositiveIntegerField(
        null=True, help_text="seconds until a question that waits is told again; nothing: half of its time; 0: never"
    )
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    tried_at = models.DateTimeField(null=True, help_text="when a message was last begun to be sent")
    sent_at = models.DateTimeField(null=True, help_text="when one last arrived")
    trouble = models.CharField(max_length=500, blank=True, help_text="why the last try failed; nothing: it did not")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def pages(self) -> bool:
        """Whether it wakes people, with an event for each alert."""
        return self.kind in self.PAGERS

    @property
    def host(self) -> str:
        """What may be shown of the address."""
        return urlsplit(self.url).hostname or ""


class Route(models.Model):
    """Which happenings go to a channel (``kcover.notices``)."""

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


class Delivery(models.Model):
    """One message. While it ``gathers``, notices are added; a worker claims it by a conditional update."""

    class State(models.TextChoices):
        PENDING = "pending", _("Waiting")
        SENDING = "sending", _("Being sent")
        SENT = "sent", _("Sent")
        FAILED = "failed", _("Not delivered")
        DROPPED = "dropped", _("Dropped")

    UNDER_WAY = (State.PENDING, State.SENDING)

    channel = models.ForeignKey(Channel, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    name = models.CharField(max_length=63, help_text="the channel's name; it may be gone")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    gathers = models.BooleanField(default=False)
    test = models.BooleanField(default=False)
    key = models.UUIDField(unique=True, help_text="the same for every try: receivers know a repetition by it")
    left_out = models.PositiveIntegerField(default=0, help_text="happenings beyond those that are kept")
    subject = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True, help_text="as sent, but for links that answer in a person's name")
    attempts = models.PositiveIntegerField(default=0, help_text="reserved before each try")
    because = models.CharField(max_length=500, blank=True, help_text="what the other side said last")
    opened_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    token = models.PositiveBigIntegerField(default=0, help_text="fencing token of the last lease")
    lease_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("channel",), condition=models.Q(gathers=True), name="one_gathering_delivery_a_channel"
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


class Notice(models.Model):
    """One happening in one delivery. ``key`` names it for all time: a channel is told of it once."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="notices")
    channel = models.ForeignKey(Channel, on_delete=models.SET_NULL, null=True, related_name="+")
    key = models.CharField(max_length=160)
    kind = models.CharField(max_length=20)
    cluster = models.CharField(max_length=100, blank=True)
    node = models.CharField(max_length=253, blank=True)
    what = models.CharField(max_length=100, blank=True)
    severity = models.CharField(max_length=12, blank=True)
    record = models.BigIntegerField(null=True)
    because = models.CharField(max_length=1000, blank=True)
    drill = models.BooleanField(default=False)
    nodes = models.PositiveIntegerField(default=0)
    again = models.BooleanField(default=False, help_text="a reminder of what was told before")
    at = models.DateTimeField()
    step = models.ForeignKey(Step, on_delete=models.SET_NULL, null=True, related_name="+", help_text="waits for this")
    action = models.CharField(max_length=11, blank=True, help_text="for a pager: trigger, acknowledge or resolve")
    page = models.CharField(max_length=160, blank=True, help_text="for a pager: what it tells repetitions by")
    told_at = models.DateTimeField(null=True, help_text="for a pager: when it took this event")

    class Meta:
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("channel", "key"), name="one_notice_a_happening"),)
        # While a question waits, each second: who was told of it.
        indexes = (models.Index(fields=("record", "kind"), name="notices_of_a_record"),)


class Alert(models.Model):
    """What a pager was told of and is not over: so it is told of the end, and of nothing twice. Gone once it is over.

    Alike ones that came together are one ``page``, which is over when all of them are.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="alerts")
    name = models.CharField(max_length=160, help_text="kcover.paging: incident-41 for example")
    page = models.CharField(max_length=160)
    opened_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("channel", "name"), name="one_alert_a_channel"),)
        indexes = (models.Index(fields=("channel", "page"), name="alerts_of_a_page"),)

    def __str__(self) -> str:
        return self.name


class Cursor(models.Model):
    """How far the happenings of one source are read: a cluster's chain in the ledger, incidents by id."""

    name = models.CharField(max_length=120, primary_key=True)
    position = models.BigIntegerField(default=0)
    gaps = models.JSONField(default=dict, help_text="ids that were not there yet: id to when that was noticed")
    at = models.DateTimeField(help_text="when it was last moved, or last had something to tell")
