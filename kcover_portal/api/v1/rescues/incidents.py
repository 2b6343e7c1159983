"""Incidents and their occurrences."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.api import idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, require_override, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries, services
from kcover_portal.incidents.filtersets import OccurrenceFilter
from kcover_portal.incidents.models import STORM, Incident, Occurrence
from kcover_portal.jobs import queries as jobs
from kcover_portal.rescue import services as rescue
from kcover_portal.shared_reads.filtersets import IncidentFilter

NUMBERED = ("xid", "sxid")  # kinds whose codes are numbers


class WitnessSerializer(serializers.Serializer[queries.Witness]):
    """A witness of a fault: a source by its name, ``agent`` or ``portal``; by the portal's time."""

    source = serializers.CharField()  # type: ignore[assignment]  # DRF takes declared fields off the class
    first_seen_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    count = serializers.IntegerField()


class IncidentJobSerializer(serializers.Serializer[Any]):
    """A training job whose pod failed, and the newest order to restart it (null: none)."""

    namespace = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    order = serializers.IntegerField(allow_null=True)


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    """A fault of a device, from its first occurrence until it is proved gone."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    node = serializers.SlugRelatedField[Node](slug_field="name", read_only=True)
    code = serializers.SerializerMethodField(help_text="a number for xid and sxid, else a short text")
    message_reason = ReasonSerializer(read_only=True, allow_null=True)
    closed_because = SentenceField()
    program = serializers.BooleanField(source="is_user_fault", read_only=True, help_text="the same as is_user_fault")
    closed_because_reason = ReasonSerializer(source="closed_why", read_only=True, allow_null=True)
    ended_because_reason = ReasonSerializer(source="ended_why", read_only=True, allow_null=True)
    witnesses = serializers.SerializerMethodField()
    jobs = serializers.SerializerMethodField(help_text="of an incident of kind pod")

    class Meta:
        model = Incident
        fields = (
            "id",
            "cluster",
            "node",
            "kind",
            "code",
            "state",
            "count",
            "drill",
            "severity",
            "program",
            "is_user_fault",
            "cause",
            "device",
            "scope",
            "trait",
            "symptom_kind",
            "symptom",
            "gpu_uuid",
            "message",
            "message_reason",
            "advice",
            "witnesses",
            "jobs",
            "boot_id",
            "opened_at",
            "last_at",
            "ended_at",
            "ended_because_reason",
            "closed_at",
            "closed_because",
            "closed_because_reason",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._witnesses: dict[int, list[queries.Witness]] = {}
        self._jobs: dict[int, list[jobs.FailedJob]] = {}

    def get_code(self, incident: Incident) -> int | str:
        """Returns the code, a number for the kinds in NUMBERED."""
        return code_of(incident)

    @extend_schema_field(WitnessSerializer(many=True))
    def get_witnesses(self, incident: Incident) -> Any:
        """Returns the witnesses; those of a whole page are read at once."""
        if incident.pk not in self._witnesses:
            page = self._page(incident)
            found = queries.witnesses(page)
            self._witnesses = {pk: found.get(pk, []) for pk in page}
        return WitnessSerializer(self._witnesses[incident.pk], many=True).data  # type: ignore[arg-type]  # many

    @extend_schema_field(IncidentJobSerializer(many=True))
    def get_jobs(self, incident: Incident) -> Any:
        """Returns the training jobs whose pods failed, of a whole page at once."""
        if incident.kind != "pod":
            return []
        if incident.pk not in self._jobs:
            page = self._page(incident)
            found = jobs.of_incidents(page)
            self._jobs = {pk: found.get(pk, []) for pk in page}
        return IncidentJobSerializer(self._jobs[incident.pk], many=True).data

    def _page(self, incident: Incident) -> list[int]:
        page = getattr(self.parent, "instance", None)
        return [row.pk for row in page] if isinstance(page, list) else [incident.pk]


class OccurrenceSerializer(serializers.ModelSerializer[Occurrence]):
    """One occurrence; ``at`` is the portal's time, ``seen_at`` the agent's or source's clock.

    ``late_seconds``: it was told so long after its own time, when its boot was over, and does not count.
    """

    cluster = serializers.CharField(source="node.cluster.name", read_only=True)
    node = serializers.CharField(source="node.name", read_only=True)
    kind = serializers.CharField(source="incident.kind", read_only=True)
    code = serializers.SerializerMethodField(help_text="a number for xid and sxid, else a short text")
    message_reason = ReasonSerializer(read_only=True, allow_null=True)
    late_reason = ReasonSerializer(read_only=True, allow_null=True)

    class Meta:
        model = Occurrence
        fields = (
            "id",
            "incident",
            "cluster",
            "node",
            "kind",
            "code",
            "source",
            "witness",
            "sequence",
            "message",
            "message_reason",
            "lines_before",
            "drill",
            "count",
            "boot_id",
            "seen_at",
            "at",
            "earliest_at",
            "late_seconds",
            "late_reason",
        )

    def get_code(self, occurrence: Occurrence) -> int | str:
        return code_of(occurrence.incident)


def code_of(incident: Incident) -> int | str:
    """Returns the incident's code, as a number for the kinds in NUMBERED."""
    return int(incident.code) if incident.kind in NUMBERED else incident.code


class Incidents(base.ReadViewSet[Incident]):
    """Incidents, newest first."""

    queryset = Incident.objects.select_related("cluster", "node")
    serializer_class = IncidentSerializer
    filterset_class = IncidentFilter


class Occurrences(base.ListViewSet[Occurrence]):
    """Occurrences of faults, newest first. The path is ``events``: other systems rely on it."""

    queryset = Occurrence.objects.select_related("node__cluster", "incident")
    serializer_class = OccurrenceSerializer
    filterset_class = OccurrenceFilter
    cluster_field = "node__cluster"


class CloseBody(base.StrictSerializer):
    """The reason why the fault counts as gone."""

    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)


class Close(base.ActionView):
    """Closes an incident because a person confirms that the fault is gone or the storm is over."""

    @extend_schema(operation_id="incidents_close", request=CloseBody, responses={200: IncidentSerializer})
    @idempotency.once
    def post(self, request: Request, pk: int) -> Response:
        """Closes the incident. 409 if it is already closed. Faults on the nodes of a storm are decided again.

        To close a storm, a person needs a fresh second factor, and a token the scope ``override``.
        """
        base.known_only(request)
        who = principal(request)
        visible = accounts.visible(who, Incident.objects.select_related("cluster", "node"))
        row = get_object_or_404(visible, pk=pk)
        # Closing the fault of a two-person question would end the question.
        require(request, Verb.APPROVE if rescue.question_about(row) else Verb.CLOSE, row.node or row.cluster)
        if row.kind == STORM:  # it ends a guard for many nodes
            if isinstance(who, ApiToken):
                require_override(request, row.cluster)
            step_up(request)
        reason = base.body_of(request, CloseBody)["reason"]
        services.close_by_hand(row, actor=accounts.actor(who), reason=reason, now=timezone.now())
        row.refresh_from_db()
        return Response(IncidentSerializer(row).data)
