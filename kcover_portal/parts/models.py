"""Parts by serial number, and their placements."""

from datetime import datetime

from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover import reasons
from kcover.machines import parts
from kcover.reasons import Reason
from kcover_portal.fleet.models import Cluster, Node


class Part(models.Model):
    """A part that at least one node has reported by its serial number."""

    class Kind(models.TextChoices):
        GPU = "gpu", "GPU"
        NIC = "nic", _("Network adapter")
        BOARD = "board", pgettext_lazy("part", "Board")
        MACHINE = "machine", _("Machine")

    assert list(Kind.values) == list(parts.Kind)

    kind = models.CharField(max_length=8, choices=Kind.choices)
    serial = models.CharField(max_length=64)
    model = models.CharField(max_length=120, blank=True)
    first_seen_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("kind", "serial"), name="one_part_a_serial"),)
        indexes = (models.Index(fields=("serial",), name="parts_by_serial"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.serial}"


class Placement(models.Model):
    """A part in a slot of a node, from an inventory that lists it until one that does not.

    The row outlives the node: it keeps the names.
    """

    class Doubt(models.TextChoices):
        NONE = "", _("None")
        CLAIMED = "claimed", _("Another node has it, too; not decided yet")
        CONFLICT = "conflict", _("Two nodes reported it at the same time")

    part = models.ForeignKey(Part, on_delete=models.CASCADE, related_name="placements")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="placements")
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True, related_name="placements")
    node_name = models.CharField(max_length=253)
    slot = models.CharField(max_length=64, blank=True, help_text="its PCI address")
    device = models.CharField(max_length=96, blank=True, help_text="UUID of a GPU, names of an adapter's ports")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    doubt = models.CharField(max_length=8, choices=Doubt.choices, default=Doubt.NONE, blank=True)
    flags = models.JSONField(default=list, help_text="Reasons why a person should look at it")
    flagged_at = models.DateTimeField(null=True)
    reviewed_by = models.CharField(max_length=200, blank=True)
    reviewed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-since", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("part", "cluster", "node_name", "slot"),
                condition=models.Q(until=None),
                name="one_open_placement_a_slot",
            ),
        )
        indexes = (
            models.Index(fields=("cluster", "node_name", "slot"), name="placements_of_slot"),
            models.Index(fields=("node", "-since"), name="placements_of_node"),
            models.Index(fields=("id",), condition=models.Q(until=None, doubt="claimed"), name="claimed_placements"),
            models.Index(
                fields=("id",),
                condition=models.Q(flagged_at__isnull=False, reviewed_at=None),
                name="flagged_placements",
            ),
        )

    def __str__(self) -> str:
        return f"{self.part_id} in {self.node_name}"

    @property
    def ended_at(self) -> datetime | None:
        """When the part left, or its node left the cluster; None while it is there."""
        return self.until or (self.node.gone_at if self.node is not None else None)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why a person should look at it."""
        return tuple(reasons.from_json(stored) for stored in self.flags)

    @property
    def place(self) -> Node | Cluster:
        """Where rights about it are checked: its node, or the cluster once the node is gone."""
        return self.node or self.cluster
