"""Batches, incidents and occurrences. They are ordered by the portal's own time and ids, never by an agent's clock."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _, ngettext

from kcover import reasons
from kcover.faults import catalog, fault, line_reading
from kcover.faults.line_reading import LineReading
from kcover.nodes import health
from kcover_portal.fleet.models import Cluster, Node

STORM = "storm"  # the kind of an incident that covers many nodes


class Batch(models.Model):
    """A report with items that was stored. Resending it adds nothing."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="batches")
    batch_id = models.UUIDField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("node", "batch_id"), name="one_batch"),)


class Incident(models.Model):
    """One fault of one device of one node, from its first occurrence until it is proved gone.

    A storm (one symptom on many nodes at once) is an incident without a node; ``scope`` names the nodes.
    """

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        CLOSED = "closed", _("Closed")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incidents")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, null=True, related_name="incidents")
    kind = models.CharField(max_length=12)
    code = models.CharField(max_length=160)
    device = models.CharField(
        max_length=128, blank=True, help_text="PCI slot, else UUID, else another name, with its part"
    )
    scope = models.JSONField(default=list, help_text="the nodes of a storm, by name")
    trait = models.CharField(max_length=16, blank=True, help_text="of a storm: code, job, switch or agent_version")
    symptom_kind = models.CharField(max_length=12, blank=True, help_text="of a storm of trait code: the faults' kind")
    symptom = models.CharField(max_length=320, blank=True, help_text="of a storm: the trait's value that nodes share")
    gpu_uuid = models.CharField(max_length=96, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    severity = models.CharField(max_length=12, blank=True)
    is_user_fault = models.BooleanField(default=False, help_text="caused by a user's program, not a fault of the node")
    cause = models.PositiveIntegerField(null=True, help_text="the Xid that the line names as its cause")
    drill = models.BooleanField(default=False)
    count = models.PositiveBigIntegerField(default=0)
    message = models.TextField(blank=True, help_text="the log line, or the English sentence of because")
    because = models.JSONField(default=dict, help_text="what the portal found itself; {}: the message is a log line")
    line_reading = models.JSONField(
        default=dict, db_default={}, help_text="the message as kcover.faults.line_reading reads it; {}: not read yet"
    )
    alias = models.CharField(
        max_length=160, blank=True, help_text="of an incident that a source opened: the fault that others may report"
    )
    advice = models.CharField(max_length=200, blank=True, help_text="what a source recommends: shown, never followed")
    boot_id = models.CharField(max_length=64, blank=True, help_text="of the last occurrence")
    counted_records = models.JSONField(default=list, help_text="the log records that were counted, by boot and source")
    fault_digests = models.JSONField(
        default=list, help_text="of an overflow: digests of the distinct faults that it counts"
    )
    opened_at = models.DateTimeField()
    last_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    repaired_at = models.DateTimeField(
        null=True, help_text="when the repair that closed it was done; null: no repair closed it"
    )
    ended_at = models.DateTimeField(
        null=True, help_text="when a source told the end of a fault that flaps; null: it has not ended, or is closed"
    )
    ended_because = models.JSONField(default=dict, db_default={}, help_text="what the source told of the end")
    ended_by = models.CharField(max_length=160, blank=True, db_default="", help_text="who told of the end")
    moves = models.JSONField(
        default=list, db_default=[], help_text="when it ended and came back while it stayed open, as ISO times"
    )
    told_checks = models.JSONField(
        default=list,
        db_default=[],
        help_text="where several checks tell it: witness, kind, code, last fault and end of each",
    )
    closed_because = models.JSONField(default=dict, help_text="the reason why it was closed; {}: none")
    decided_at = models.DateTimeField(null=True)
    decided_labels = models.CharField(max_length=16, blank=True, help_text="digest of the node's labels when decided")
    announced_at = models.DateTimeField(null=True, help_text="when the cluster's Event about it was written")
    decide_at = models.DateTimeField(null=True, help_text="when it is to be decided next; null: it is decided")

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node", "kind", "code", "device"),
                condition=models.Q(state="open"),
                name="one_open_incident_a_fault",
            ),
            models.UniqueConstraint(
                fields=("cluster", "kind", "code"),
                condition=models.Q(state="open", node=None),
                name="one_open_storm_a_symptom",
            ),
        )
        indexes = (
            models.Index(fields=("decide_at",), condition=models.Q(decide_at__isnull=False), name="due_incidents"),
            models.Index(fields=("ended_at",), condition=models.Q(ended_at__isnull=False), name="ended_incidents"),
            models.Index(fields=("node", "state"), name="incidents_of_node"),
            models.Index(fields=("cluster", "state", "-id"), name="incidents_of_cluster"),
            models.Index(fields=("cluster", "last_at"), name="recent_incidents"),
            models.Index(fields=("is_user_fault", "-id"), name="incidents_in_order"),  # the list's usual order
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.code} on {self.where}"

    @property
    def line(self) -> LineReading:
        """What its message says as a line of the kernel."""
        return line_reading.kept(self.line_reading, self.message)

    @property
    def message_reason(self) -> reasons.Reason | None:
        """The portal's own finding; None if the message is a log line."""
        return reasons.kept(self.because)

    @property
    def closed_why(self) -> reasons.Reason | None:
        return reasons.kept(self.closed_because)

    @property
    def ended_why(self) -> reasons.Reason | None:
        """Why it stays open although a source told of its end; None if none did."""
        told = reasons.kept(self.ended_because) if self.ended_at is not None else None
        return told and reasons.of("ended_flapping", why=told, after=reasons.span(health.FLAPPING_ENDS_AFTER))

    @property
    def moved_at(self) -> list[datetime]:
        """When it opened, ended, came back and was closed."""
        ends = () if self.closed_at is None else (self.closed_at,)
        return [self.opened_at, *(datetime.fromisoformat(at) for at in self.moves), *ends]

    @property
    def is_harmless(self) -> bool:
        """True of information, and of a monitor that does not work: neither the node nor a program is at fault."""
        return self.is_user_fault and self.severity == "info" and not self._is_of_program

    @property
    def _is_of_program(self) -> bool:
        entry = catalog.describe(self.kind, int(self.code)) if self.kind in fault.NUMERIC_KINDS else None
        return entry is not None and (entry.app_caused or entry.harmless)

    @property
    def where(self) -> str:
        """The node's name; for a storm, the number of nodes."""
        return self.node.name if self.node is not None else self._number_of_nodes

    @property
    def _number_of_nodes(self) -> str:
        return ngettext("%(n)d node", "%(n)d nodes", len(self.scope)) % {"n": len(self.scope)}


def teller(witness: str, because: Mapping[str, Any]) -> str:
    """The reporter of an occurrence: a source by its name, the node's ``agent`` or the ``portal`` itself."""
    return witness or ("portal" if because else "agent")


class Occurrence(models.Model):
    """One occurrence, or a run of equal ones. The number of rows per incident is bounded."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="occurrences")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="occurrences")
    boot_id = models.CharField(max_length=64, blank=True)
    source = models.CharField(max_length=32)
    witness = models.CharField(max_length=120, blank=True, help_text="name of the source; empty: agent or portal")
    sequence = models.BigIntegerField(null=True)
    message = models.TextField(blank=True)
    lines_before = models.TextField(
        default="", db_default="", blank=True, help_text="the kernel's lines before it, as the agent told them"
    )
    because = models.JSONField(default=dict, help_text="as of the incident")
    drill = models.BooleanField(default=False)
    count = models.PositiveBigIntegerField(default=1)
    seen_at = models.DateTimeField(null=True, help_text="by the agent's clock: shown, never trusted")
    at = models.DateTimeField(help_text="when the portal stored it")
    earliest_at = models.DateTimeField(
        null=True, help_text="of a source: it did not happen before, by the portal's clock; null: when it was stored"
    )
    late_seconds = models.FloatField(
        null=True, help_text="after its own time that it was stored, when its boot was over; null: in time"
    )
    doubt_until = models.DateTimeField(
        null=True, help_text="of a state that may be of the boot before: if it stands then, it is of the boot in doubt"
    )
    doubt = models.JSONField(
        default=dict, db_default={}, help_text="boot: the one in doubt; kind, code, device, uuid: as it was told"
    )

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node", "boot_id", "source", "sequence", "incident"),
                condition=models.Q(sequence__isnull=False),
                name="one_occurrence_a_log_record",
            ),
        )
        indexes = (
            models.Index(fields=("incident", "-id"), name="occurrences_of_incident"),
            models.Index(fields=("node", "at"), name="occurrences_of_node"),
            models.Index(
                fields=("node", "doubt_until"),
                condition=models.Q(doubt_until__isnull=False),
                name="occurrences_in_doubt",
            ),
        )

    @property
    def told_by(self) -> str:
        """A source by its name, the node's ``agent`` or the ``portal`` itself."""
        return teller(self.witness, self.because)

    @property
    def late_reason(self) -> reasons.Reason | None:
        """Why it does not count; None if it was told in time."""
        if self.late_seconds is None:
            return None
        late = reasons.span(timedelta(seconds=round(self.late_seconds)))
        return reasons.of("told_late", source=self.told_by, late=late)

    @property
    def message_reason(self) -> reasons.Reason | None:
        """As of the incident."""
        return reasons.kept(self.because)


class JobSeen(models.Model):
    """A training job that had pods on a node while a fault of the node was recent: a possible common cause of several
    faults.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="jobs_seen")
    job = models.CharField(max_length=320, blank=True, help_text="namespace/name; empty: jobs were looked up")
    at = models.DateTimeField(help_text="when it was last seen there")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("node", "job"), name="one_row_a_job_and_node"),)

    def __str__(self) -> str:
        return f"{self.job} on {self.node_id}"
