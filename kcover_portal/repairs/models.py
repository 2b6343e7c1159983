"""Repairs of machines."""

from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover import reasons
from kcover.reasons import Reason
from kcover.repairs import repairs
from kcover.values.quote import short_text
from kcover_portal.audit_stream.models import Sink
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Rescue


class Repair(models.Model):
    """A repair of one part of one machine. The row outlives the node: it keeps the machine's names."""

    class State(models.TextChoices):
        REPORTED = "reported", pgettext_lazy("repair", "Reported")
        ACCEPTED = "accepted", pgettext_lazy("repair", "Accepted")
        IN_REPAIR = "in_repair", _("In repair")
        RETURNED = "returned", pgettext_lazy("repair", "Returned")
        VALIDATING = "validating", pgettext_lazy("repair", "Validating")
        CLOSED = "closed", pgettext_lazy("repair", "Closed")
        REFUSED = "refused", pgettext_lazy("repair", "Refused")

    assert list(State.values) == list(repairs.State)

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="repairs")
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True, related_name="repairs")
    node_name = models.CharField(max_length=253)
    machine_serial = models.CharField(max_length=120, blank=True)
    part_kind = models.CharField(max_length=32, default="node", help_text="gpu, nic ...; node: the whole machine")
    part_serial = models.CharField(max_length=120, blank=True)
    part_slot = models.CharField(max_length=60, blank=True)
    removed_serial = models.CharField(
        default="", db_default="", max_length=120, blank=True, help_text="of the part that the repair took out"
    )
    vendor = models.CharField(max_length=120, blank=True, help_text="who repairs it")
    queue = models.CharField(max_length=120, blank=True, help_text="of the vendor or of a team")
    ticket = models.CharField(max_length=200, blank=True, help_text="its name in another system")
    assignee = models.CharField(max_length=200, blank=True, help_text="who takes care of it")
    due = models.DateTimeField(null=True, help_text="the next date")
    action = models.CharField(max_length=200, blank=True, help_text="what is done, or was done, to the part")
    opened_because = models.JSONField(default=list, help_text="Reasons")
    opened_by = models.CharField(max_length=200)
    opened_role = models.CharField(
        default="", db_default="", max_length=60, blank=True, help_text="by which it was opened; empty: unknown"
    )
    rescue = models.ForeignKey(Rescue, on_delete=models.SET_NULL, null=True, related_name="repairs")
    state = models.CharField(max_length=12, choices=State.choices, default=State.REPORTED)
    reported_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    in_repair_at = models.DateTimeField(null=True)
    returned_at = models.DateTimeField(null=True)
    validating_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    refused_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "node_name", "part_kind", "part_serial", "part_slot"),
                condition=~models.Q(state="closed"),
                name="one_open_repair_a_part",
            ),
        )
        indexes = (models.Index(fields=("cluster",), condition=~models.Q(state="closed"), name="open_repairs"),)

    def __str__(self) -> str:
        return f"repair {self.pk}"

    @property
    def part(self) -> repairs.Part:
        return repairs.Part(kind=self.part_kind, serial=self.part_serial, slot=self.part_slot)

    @property
    def title(self) -> str:
        """The machine and the part, for messages: at most 120 characters."""
        return short_text(f"{self.node_name} {self.part}")

    @property
    def stage(self) -> repairs.State:
        """The state, as the life cycle names it."""
        return repairs.State(self.state)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it was opened."""
        return tuple(reasons.from_json(stored) for stored in self.opened_because)

    @property
    def place(self) -> Node | Cluster:
        """Where rights about it are checked: its node, or the cluster once the node is gone."""
        return self.node or self.cluster

    @property
    def moves(self) -> tuple[repairs.Move, ...]:
        """The moves that its state allows."""
        return repairs.possible(self.stage)


class TicketEvent(models.Model):
    """What ticket systems are told about one act on a repair, in the order of its cluster."""

    cluster = models.CharField(max_length=100, help_text="its name")
    number = models.BigIntegerField(help_text="in the cluster, without gaps")
    repair = models.BigIntegerField(help_text="id of the repair")
    at = models.DateTimeField()
    document = models.JSONField(help_text="event (open, update or close), and the repair as it was then")

    class Meta:
        ordering = ("cluster", "number")
        constraints = (models.UniqueConstraint(fields=("cluster", "number"), name="one_ticket_event_a_number"),)

    def __str__(self) -> str:
        return f"ticket event {self.number} of {self.cluster}"


class VendorDelivery(models.Model):
    """An event of a vendor that was carried out, and the answer to it: a repeated delivery gets the same one."""

    sink = models.ForeignKey(Sink, on_delete=models.CASCADE, related_name="+", help_text="whose secret signed it")
    delivery = models.CharField(max_length=100, help_text="its id, from the vendor")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the body")
    repair = models.ForeignKey(Repair, on_delete=models.CASCADE, related_name="+")
    event = models.CharField(max_length=12, help_text="for people who read the row")
    answer = models.JSONField()
    received_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("sink", "delivery"), name="one_delivery_an_id"),)

    def __str__(self) -> str:
        return f"delivery {self.delivery} of {self.sink_id}"


class VendorTerms(models.Model):
    """The days that a vendor has: the date of a repair without another one."""

    vendor = models.CharField(max_length=120, unique=True)
    accept_days = models.PositiveSmallIntegerField(null=True, help_text="from the report to the acceptance")
    return_days = models.PositiveSmallIntegerField(null=True, help_text="from the handover to the return")
    changed_by = models.CharField(max_length=200)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("vendor",)

    def __str__(self) -> str:
        return self.vendor

    @property
    def terms(self) -> repairs.Terms:
        return repairs.Terms(accept_days=self.accept_days, return_days=self.return_days)
