"""The repair desk: repairs of machines, and the moves that take them from the report to the passed validation."""

from collections.abc import Mapping
from typing import Any

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.repairs import repairs as core
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.fleet.models import Node
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import queries, services
from kcover_portal.repairs.filtersets import RepairFilter
from kcover_portal.repairs.models import Repair, VendorTerms

VERBS = [move.value for move in core.Move]
KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


def _days() -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=core.MAX_TERM_DAYS, default=None
    )


class MachineSerializer(serializers.Serializer[Repair]):
    """The machine. ``node`` is its name when the repair was reported."""

    cluster = serializers.CharField(source="cluster.name")
    node = serializers.CharField(source="node_name")
    serial = serializers.CharField(source="machine_serial")


class PartSerializer(serializers.Serializer[core.Part]):
    """The sick part. ``kind``: ``gpu``, ``nic`` ...; ``node``: the machine as a whole."""

    kind = serializers.CharField()
    serial = serializers.CharField()
    slot = serializers.CharField()


class RepairSerializer(serializers.ModelSerializer[Repair]):
    """A repair. ``opened_because`` has the English sentences of ``opened_because_reasons``; ``verbs``: possible now."""

    machine = MachineSerializer(source="*", read_only=True)
    part = PartSerializer(read_only=True)
    opened_because = serializers.ListField(child=serializers.CharField(), source="reasons", read_only=True)
    opened_because_reasons = ReasonSerializer(many=True, source="reasons", read_only=True)
    verbs = serializers.ListField(child=serializers.CharField(), read_only=True, source="moves")
    evidence = serializers.SerializerMethodField(help_text="address of its rescue's evidence; null: no rescue")

    def get_evidence(self, row: Repair) -> str | None:
        return None if row.rescue_id is None else reverse("api:rescue-evidence", args=(row.rescue_id,))

    class Meta:
        model = Repair
        fields = (
            *("id", "state", "machine", "part", "vendor", "queue", "ticket", "assignee", "due", "action"),
            *(
                "removed_serial",
                "opened_because",
                "opened_because_reasons",
                "opened_by",
                "opened_role",
                "rescue",
                "evidence",
                "verbs",
            ),
            *(f"{state}_at" for state in core.State),
        )


class NewRepairSerializer(RepairSerializer):
    """A repair that was just reported."""

    beside = serializers.SerializerMethodField(help_text="other open repairs of the machine, oldest first")

    def get_beside(self, row: Repair) -> list[int]:
        return list(queries.open_of(row).values_list("pk", flat=True))

    class Meta(RepairSerializer.Meta):
        fields = (*RepairSerializer.Meta.fields, "beside")


class MachineBody(base.StrictSerializer):
    """The machine of a new repair."""

    cluster = serializers.CharField(max_length=100)
    node = serializers.CharField(max_length=253)
    serial = serializers.CharField(required=False, allow_blank=True, max_length=120)


class SerialBody(base.StrictSerializer):
    """What may be changed about a machine."""

    serial = serializers.CharField(allow_blank=True, max_length=120)


class PartBody(base.StrictSerializer):
    """A part, or the fields of one to change."""

    kind = serializers.CharField(required=False, max_length=32)
    serial = serializers.CharField(required=False, allow_blank=True, max_length=120)
    slot = serializers.CharField(required=False, allow_blank=True, max_length=60)


class DetailsBody(base.StrictSerializer):
    """The reason, and what may be said with each request."""

    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)
    assignee = serializers.CharField(required=False, allow_blank=True, max_length=200)
    due = serializers.DateTimeField(required=False, allow_null=True, help_text="the next date")
    part = PartBody(required=False)


class RepairVerbBody(DetailsBody):
    """A reason, and details to change. ``refuse`` hands the repair back, whatever ``assignee`` and ``due`` say."""

    action = serializers.CharField(required=False, allow_blank=True, max_length=200, help_text="to the part")
    machine = SerialBody(required=False)


class RecordBody(DetailsBody):
    """What a report and a change may say."""

    vendor = serializers.CharField(required=False, allow_blank=True, max_length=120)
    queue = serializers.CharField(required=False, allow_blank=True, max_length=120)
    ticket = serializers.CharField(required=False, allow_blank=True, max_length=200)


class RepairPatch(RecordBody):
    """The details to change."""

    machine = SerialBody(required=False)


class RepairBody(RecordBody):
    """A new repair."""

    machine = MachineBody()


class VendorTermsSerializer(serializers.ModelSerializer[VendorTerms]):
    """The days that a vendor has; null: not agreed."""

    class Meta:
        model = VendorTerms
        fields = ("vendor", "accept_days", "return_days", "changed_by", "changed_at")


class VendorTermsBody(base.StrictSerializer):
    """The terms to set; a field that is left out or null is not agreed."""

    vendor = serializers.CharField(max_length=120)
    accept_days = _days()
    return_days = _days()
    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)


class Repairs(base.ReadViewSet[Repair]):
    """Repairs, newest first."""

    queryset = Repair.objects.select_related("cluster", "node")
    serializer_class = RepairSerializer
    filterset_class = RepairFilter

    @extend_schema(parameters=[KEY], request=RepairBody, responses={201: NewRepairSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Reports a repair. 409 while a repair of the same part is open.

        ``beside`` names other open repairs of the machine.
        """
        base.known_only(request)
        body = base.body_of(request, RepairBody)
        who, reason = principal(request), body.pop("reason")
        node = _node(request, body["machine"].pop("cluster"), body["machine"].pop("node"))
        require(request, Verb.HANDLE_REPAIRS, node)
        part = core.Part(**body.pop("part", {}))
        made = services.report(
            node,
            part=part,
            details=_columns(body),
            actor=accounts.actor(who),
            role=accounts.role_in(who, Verb.HANDLE_REPAIRS, node),
            reason=reason,
            now=timezone.now(),
        )
        return Response(NewRepairSerializer(made).data, status=201)

    @extend_schema(request=RepairPatch, responses={200: RepairSerializer})
    def partial_update(self, request: Request, pk: int) -> Response:
        """Changes the named details, all or none. 409 for a closed repair."""
        base.known_only(request)
        row = self.get_object()
        require(request, Verb.HANDLE_REPAIRS, row.place)
        body = base.body_of(request, RepairPatch)
        reason, actor = body.pop("reason"), accounts.actor(principal(request))
        changed = services.change(row, _columns(body), actor=actor, reason=reason, now=timezone.now())
        return Response(RepairSerializer(changed).data)


class RepairAct(base.ActionView):
    """Takes a repair to its next state."""

    @extend_schema(
        operation_id="repairs_act",
        parameters=[OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=VERBS), KEY],
        request=RepairVerbBody,
        responses={200: RepairSerializer},
    )
    @idempotency.once
    def post(self, request: Request, pk: int, verb: str) -> Response:
        """Executes the verb. 409 if the state does not allow it, or for ``close`` without a passed validation.

        ``refuse`` hands the repair back to the role that reported it.
        """
        base.known_only(request)
        if verb not in VERBS:
            unknown = reasons.of("repair_verb_unknown", verb=short_text(verb), known=", ".join(VERBS))
            raise http_errors.NotFound(unknown)
        who = principal(request)
        row = get_object_or_404(accounts.visible(who, Repair.objects.select_related("cluster", "node")), pk=pk)
        require(request, Verb.HANDLE_REPAIRS, row.place)
        body = base.body_of(request, RepairVerbBody)
        reason = body.pop("reason")
        done = services.act(
            row, core.Move(verb), _columns(body), actor=accounts.actor(who), reason=reason, now=timezone.now()
        )
        return Response(RepairSerializer(done).data)


class Terms(base.ActionView):
    """The terms of vendors."""

    @extend_schema(operation_id="repairs_terms", responses={200: VendorTermsSerializer(many=True)})
    def get(self, request: Request) -> Response:
        """Returns the terms of all vendors by name."""
        base.known_only(request)
        return Response(VendorTermsSerializer(VendorTerms.objects.all(), many=True).data)

    @extend_schema(
        operation_id="repairs_set_terms", request=VendorTermsBody, responses={200: VendorTermsSerializer(many=True)}
    )
    def put(self, request: Request) -> Response:
        """Sets the terms of a vendor; without days, removes them. Requires an admin of all clusters."""
        base.known_only(request)
        require(request, Verb.CONFIGURE, None)
        body = base.body_of(request, VendorTermsBody)
        step_up(request)
        terms = core.Terms(accept_days=body["accept_days"], return_days=body["return_days"])
        actor = accounts.actor(principal(request))
        services.set_terms(body["vendor"], terms, actor=actor, reason=body["reason"], now=timezone.now())
        return Response(VendorTermsSerializer(VendorTerms.objects.all(), many=True).data)


def _columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a repair that a body names."""
    found = {name: value for name, value in body.items() if name not in ("machine", "part")}
    found |= {f"machine_{name}": value for name, value in body.get("machine", {}).items()}
    return found | {f"part_{name}": value for name, value in body.get("part", {}).items()}


def _node(request: Request, cluster: str, name: str) -> Node:
    """The node, if the caller may see it. Raises FieldError."""
    rows = accounts.visible(principal(request), Node.objects.select_related("cluster"), node="")
    node = rows.filter(cluster__name=cluster, name=name).first()
    if node is None:
        unknown = reasons.of("repair_node_unknown", cluster=short_text(cluster), node=short_text(name))
        raise FieldError("machine.node", unknown)
    return node
