"""Decisions, rescues, approvals, and actions on a rescue."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import decides, require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.masked_fields import MaskedField
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.filtersets import DecisionFilter, RescueFilter
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.queries import needs_person


def _take_over(rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None) -> Rescue:
    """Takes a node back from another system; ``plan_hash`` is ignored."""
    return services.take_over(rescue, actor=actor, reason=reason, now=now)


# Actions on a rescue, and the verb that each requires.
VERBS: dict[str, tuple[Callable[..., Rescue], str]] = {
    "approve": (services.approve, Verb.APPROVE),
    "reject": (services.reject, Verb.APPROVE),
    "cancel": (services.cancel, Verb.REPAIR),
    "retry": (services.retry, Verb.REPAIR),
    "skip": (services.skip, Verb.REPAIR),
    "take-over": (_take_over, Verb.REPAIR),
}
CONFIRMED = ("approve", "skip")  # ask a person for a fresh second factor


class TriedSerializer(serializers.Serializer[dict[str, Any]]):
    """A rule that was evaluated, and why it did or did not match."""

    rule = serializers.CharField()
    matched = serializers.BooleanField()
    because = serializers.CharField()

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        return {**instance, "because": str(reasons.from_json(instance["because"]))}


class DecisionSerializer(serializers.ModelSerializer[Decision]):
    """A decision about an incident, also if it is to do nothing, with its reasons in order.

    ``because`` has the English sentences, ``reasons`` the codes with parameters.
    """

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    node = serializers.SlugRelatedField[Node](slug_field="name", read_only=True)
    because = serializers.ListField(child=serializers.CharField(), source="reasons", read_only=True)
    reasons = ReasonSerializer(many=True, read_only=True)
    tried = TriedSerializer(many=True, read_only=True)
    steps = MaskedField()
    facts = MaskedField()

    class Meta:
        model = Decision
        fields = (
            "id",
            "cluster",
            "node",
            "incident",
            "answer",
            "mode",
            "rule",
            "policy",
            "revision",
            "because",
            "reasons",
            "tried",
            "steps",
            "facts",
            "count",
            "at",
            "last_at",
        )


class StepSerializer(serializers.ModelSerializer[Step]):
    """A step of a rescue. ``attempts`` are reserved before each call.

    ``because`` is the English sentence of ``because_reason``. ``round`` 2: repeated because the fault came back.
    """

    args = MaskedField()
    because = SentenceField()
    because_reason = ReasonSerializer(source="why", read_only=True, allow_null=True)
    validation = serializers.SerializerMethodField(help_text="of the node, that a step validate requested, by its id")

    def get_validation(self, row: Step) -> int | None:
        """Returns the id of the validation, None if the step has requested none."""
        validation: int | None = row.progress.get("validation")
        return validation

    class Meta:
        model = Step
        fields = (
            "index",
            "name",
            "args",
            "state",
            "attempts",
            "failures",
            "because",
            "because_reason",
            "validation",
            "round",
            "started_at",
            "finished_at",
        )


class PassedOverSerializer(serializers.Serializer[dict[str, Any]]):
    """A guard that a named person passed over; ``step`` "" means when the rescue was opened."""

    at = serializers.DateTimeField()
    step = serializers.CharField(allow_blank=True)
    guard = serializers.CharField()
    by = serializers.CharField()
    why = serializers.CharField()

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        return {**instance, "why": str(reasons.from_json(instance["why"]))}


class RescueSerializer(serializers.ModelSerializer[Rescue]):
    """A plan for a node and its progress. ``because`` is the English sentence of ``because_reason``."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    node = serializers.SlugRelatedField[Node](slug_field="name", read_only=True)
    incidents = serializers.PrimaryKeyRelatedField[Incident](many=True, read_only=True)
    steps = StepSerializer(many=True, read_only=True)
    passed_over = PassedOverSerializer(many=True, read_only=True)
    because = SentenceField()
    because_reason = ReasonSerializer(source="why", read_only=True, allow_null=True)
    reason = serializers.SerializerMethodField(help_text="a person's own words, or why the portal opened it")
    opened_because = serializers.SerializerMethodField(help_text="a reason as data; null: a person opened it")
    code = serializers.CharField(read_only=True, help_text="short name of the fault, such as xid 62")
    needs_person = serializers.SerializerMethodField(help_text="approval, people, or empty if it needs no attention")

    def get_needs_person(self, row: Rescue) -> str:
        """Returns the kind of attention that the rescue needs."""
        return needs_person.kind_of(row)

    def get_opened_because(self, row: Rescue) -> dict[str, Any] | None:
        return row.opened_because or None

    def get_reason(self, row: Rescue) -> str:
        return row.reason or reasons.text(row.opened_because)

    class Meta:
        model = Rescue
        fields = (
            "id",
            "cluster",
            "node",
            "state",
            "outcome",
            "verified",
            "on_probation",
            "because",
            "because_reason",
            "needs_human",
            "needs_person",
            "origin",
            "requested_by",
            "requesters",
            "requester_kind",
            "reason",
            "opened_because",
            "code",
            "fault_kind",
            "fault_code",
            "policy",
            "revision",
            "rule",
            "decision",
            "incidents",
            "plan_hash",
            "overrides",
            "passed_over",
            "steps",
            "opened_at",
            "due_at",
            "closed_at",
        )


class Decisions(base.ReadViewSet[Decision]):
    """Decisions, newest first."""

    queryset = Decision.objects.select_related("cluster", "node")
    serializer_class = DecisionSerializer
    filterset_class = DecisionFilter


def detailed() -> QuerySet[Rescue]:
    """Returns rescues with everything that is shown, in three queries."""
    incidents = Prefetch("incidents", Incident.objects.only("pk").order_by("pk"))
    return Rescue.objects.select_related("cluster", "node").prefetch_related("steps", incidents)


class Rescues(base.ReadViewSet[Rescue]):
    """Rescues with their steps, newest first."""

    queryset = detailed()
    serializer_class = RescueSerializer
    filterset_class = RescueFilter


def _canceller(who: accounts.Principal, rescue: Rescue) -> dict[str, Any]:
    """The canceller: the requester's name, and whether the caller may cancel questions that need two people.

    Raises Forbidden if the question is neither the caller's own nor may the caller cancel it.
    """
    person, approver = accounts.person(who), isinstance(who, User) and accounts.may(who, Verb.APPROVE, rescue.node)
    if services.is_held_question(rescue) and not approver and person not in rescue.requesters[:1]:
        raise http_errors.Forbidden(reasons.of("question_of_approver", needed=rescue.approvers))
    return {"person": person, "approver": approver}


class SteerBody(base.ActSerializer):
    """``plan_hash``: the plan that the caller saw. ``step``: the index of the step to retry or skip.

    The request is rejected if the plan or the current step has changed.
    """

    plan_hash = serializers.CharField(required=False, allow_null=True, max_length=64, default=None)
    step = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=32767, default=None)


class RescueAct(base.ActionView):
    """Actions on a rescue in progress. Decision systems can only cancel plans of decision systems.

    Only people approve and reject. A rescue that waits for two people is cancelled by its requester or an approver.
    """

    decision_systems = True

    @extend_schema(
        operation_id="rescues_act",
        parameters=[
            OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=list(VERBS)),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=SteerBody,
        responses={200: RescueSerializer},
    )
    @idempotency.once
    def post(self, request: Request, pk: int, verb: str) -> Response:
        """Executes the action and returns the rescue. 409 if its state does not allow the action."""
        base.known_only(request)
        if verb not in VERBS:
            raise http_errors.NotFound(reasons.of("unknown_action", action=short_text(verb), known=", ".join(VERBS)))
        who = principal(request)
        visible = accounts.visible(who, Rescue.objects.select_related("cluster", "node"))
        rescue = get_object_or_404(visible, pk=pk)
        steer, needed = VERBS[verb]
        require(request, needed, rescue.node)
        if needed == Verb.APPROVE and not isinstance(who, User):
            raise http_errors.Forbidden(reasons.of("person_required"))
        if decides(request) and (verb != "cancel" or rescue.origin != Rescue.Origin.API):
            raise http_errors.Forbidden(reasons.of("rescue_of_others"))
        body: dict[str, Any] = base.body_of(request, SteerBody)
        if verb in CONFIRMED:
            step_up(request)
        steer(
            rescue,
            actor=accounts.actor(who),
            reason=body["reason"],
            now=timezone.now(),
            plan_hash=body["plan_hash"],
            **({"via": "rest"} if needed == Verb.APPROVE else {}),
            **(_canceller(who, rescue) if verb == "cancel" else {}),
            **({"step": body["step"]} if verb in ("retry", "skip") else {}),
        )
        return Response(RescueSerializer(detailed().get(pk=pk)).data)
