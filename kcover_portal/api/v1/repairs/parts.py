"""The hardware passport: parts by serial number, and their placements."""

from typing import Any

from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover.machines.risk import Risk
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.incidents.models import Incident
from kcover_portal.parts import queries, services
from kcover_portal.parts.filtersets import PartFilter, PlacementFilter
from kcover_portal.parts.models import Part, Placement
from kcover_portal.repairs.models import Repair
from kcover_portal.shared_reads import passports

KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


class PlacementSerializer(serializers.ModelSerializer[Placement]):
    """A part in a slot of a node. ``to``: null while it is there. ``doubt``: another node reports the part, too."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    node = serializers.CharField(source="node_name", read_only=True)
    to = serializers.DateTimeField(source="ended_at", allow_null=True, read_only=True)
    flags = serializers.ListField(child=serializers.CharField(), source="reasons", read_only=True)
    flag_reasons = ReasonSerializer(many=True, source="reasons", read_only=True)

    class Meta:
        model = Placement
        fields: tuple[str, ...] = (
            *("id", "cluster", "node", "slot", "device", "to", "doubt", "flags", "flag_reasons"),
            *("flagged_at", "reviewed_by", "reviewed_at"),
        )

    def get_fields(self) -> dict[str, Any]:
        """Adds ``from``, which is a keyword of Python."""
        return {**super().get_fields(), "from": serializers.DateTimeField(source="since", read_only=True)}


class PlacedPartSerializer(PlacementSerializer):
    """A placement with its part."""

    part = serializers.IntegerField(source="part_id", read_only=True)
    kind = serializers.ChoiceField(Part.Kind.choices, source="part.kind", read_only=True)
    serial = serializers.CharField(source="part.serial", read_only=True)
    model = serializers.CharField(source="part.model", read_only=True)

    class Meta(PlacementSerializer.Meta):
        fields = ("part", "kind", "serial", "model", *PlacementSerializer.Meta.fields)


class PartFaultSerializer(serializers.ModelSerializer[Incident]):
    """A fault of the part."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    node = serializers.CharField(source="where", read_only=True)

    class Meta:
        model = Incident
        fields = ("id", "cluster", "node", "kind", "code", "severity", "opened_at", "closed_at")


class PartRepairSerializer(serializers.ModelSerializer[Repair]):
    """A repair of the part, or one that took it out."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    node = serializers.CharField(source="node_name", read_only=True)

    class Meta:
        model = Repair
        fields = ("id", "cluster", "node", "state", "vendor", "ticket", "reported_at", "closed_at")


class PartTestSerializer(serializers.Serializer[passports.Test]):
    """A check of the part whose result changed, or a validation of its node."""

    at = serializers.DateTimeField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    name = serializers.CharField(help_text="the check, or the profile of the validation")
    status = serializers.CharField()
    validation = serializers.IntegerField(allow_null=True)


class RiskSerializer(serializers.Serializer[Risk]):
    """The chance of a fault within the next ``window_days`` days. ``base``: that of all parts of the kind."""

    probability = serializers.FloatField()
    base = serializers.FloatField()
    faults = serializers.IntegerField(help_text="in the last window_days days")
    window_days = serializers.IntegerField()
    basis = serializers.CharField(source="because")
    basis_reason = ReasonSerializer(source="because")


class PartSerializer(serializers.ModelSerializer[Part]):
    """A part, and where it is and has been, newest first; as far as the caller may see it."""

    placements = PlacementSerializer(many=True, source="seen", read_only=True)

    class Meta:
        model = Part
        fields: tuple[str, ...] = ("id", "kind", "serial", "model", "first_seen_at", "placements")


class PassportSerializer(PartSerializer):
    """A part with its history. Other fields than those of a part are null in a list without ``serial``."""

    faults = serializers.SerializerMethodField()
    repairs = serializers.SerializerMethodField()
    tests = serializers.SerializerMethodField()
    risk = serializers.SerializerMethodField()
    follows = serializers.SerializerMethodField()

    class Meta(PartSerializer.Meta):
        fields = (*PartSerializer.Meta.fields, "faults", "repairs", "tests", "risk", "follows")

    @extend_schema_field(PartFaultSerializer(many=True, allow_null=True))
    def get_faults(self, part: Part) -> Any:
        """Returns its grave faults, newest first."""
        return self._rows(part, "faults", PartFaultSerializer)

    @extend_schema_field(PartRepairSerializer(many=True, allow_null=True))
    def get_repairs(self, part: Part) -> Any:
        """Returns its repairs, newest first."""
        return self._rows(part, "repairs", PartRepairSerializer)

    @extend_schema_field(PartTestSerializer(many=True, allow_null=True))
    def get_tests(self, part: Part) -> Any:
        """Returns its tests, newest first."""
        return self._rows(part, "tests", PartTestSerializer)

    @extend_schema_field(RiskSerializer(allow_null=True))
    def get_risk(self, part: Part) -> Any:
        """Returns the chance of a fault; null without public data about such parts."""
        found = self._passport(part)
        return RiskSerializer(found.risk).data if found is not None and found.risk is not None else None

    @extend_schema_field(ReasonSerializer(allow_null=True))
    def get_follows(self, part: Part) -> Any:
        """Returns whether the faults follow the part or the slot; null: the data do not say so."""
        found = self._passport(part)
        return found.follows.to_json() if found is not None and found.follows is not None else None

    def _rows(self, part: Part, name: str, shape: type[serializers.BaseSerializer[Any]]) -> Any:
        found = self._passport(part)
        return shape(getattr(found, name), many=True).data if found is not None else None

    def _passport(self, part: Part) -> passports.Passport | None:
        """The passport; None in a list of many parts. It is read once."""
        if not self.context.get("whole"):
            return None
        kept: dict[int, passports.Passport] = self.context["passports"]
        if part.pk not in kept:
            kept[part.pk] = passports.of(principal(self.context["request"]), part, now=timezone.now())
        return kept[part.pk]


class ReviewBody(base.StrictSerializer):
    """The placement that was looked at, and why the part stays there."""

    placement = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)


class Parts(base.ReadViewSet[Part]):
    """Parts, the newest first. With ``serial``, their whole history."""

    queryset = Part.objects.all()
    serializer_class = PassportSerializer
    filterset_class = PartFilter

    def get_queryset(self) -> QuerySet[Part]:
        """Returns the parts that have a placement that the caller may see, with these placements."""
        if getattr(self, "swagger_fake_view", False):
            return Part.objects.none()
        seen = accounts.visible(principal(self.request), Placement.objects.select_related("cluster", "node"))
        rows = queries.with_placement(Part.objects.all(), seen)
        return rows.prefetch_related(Prefetch("placements", queryset=seen, to_attr="seen"))

    def get_serializer_context(self) -> dict[str, Any]:
        """Adds whether the whole history is asked for."""
        context = super().get_serializer_context()
        request = context["request"]  # None while the schema is generated
        named = request is not None and bool(request.query_params.get("serial"))
        return {**context, "whole": named or self.action == "retrieve", "passports": {}}


class Placements(base.ListViewSet[Placement]):
    """Placements of parts, the newest first."""

    queryset = Placement.objects.select_related("part", "cluster", "node")
    serializer_class = PlacedPartSerializer
    filterset_class = PlacementFilter


class Review(base.ActionView):
    """Records that a person looked at a flagged part."""

    @extend_schema(
        operation_id="parts_review", parameters=[KEY], request=ReviewBody, responses={200: PlacementSerializer}
    )
    @idempotency.once
    def post(self, request: Request, pk: int) -> Response:
        """Records the review of a flagged part, which ends the need. Requires the right ``handle-repairs``.

        409 if the part in this place is not flagged, or was reviewed.
        """
        base.known_only(request)
        body = base.body_of(request, ReviewBody)
        who = principal(request)
        seen = accounts.visible(who, Placement.objects.select_related("cluster", "node"))
        row = get_object_or_404(seen, pk=body["placement"], part=pk)
        require(request, Verb.HANDLE_REPAIRS, row.place)
        done = services.review(row.pk, actor=accounts.actor(who), reason=body["reason"], now=timezone.now())
        return Response(PlacementSerializer(done).data)
