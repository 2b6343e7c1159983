"""Actions on a node (cordon, drain, reboot, ...), with a preview."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from kcover import reasons
from kcover.decisions import guards
from kcover.plans.plan import VERBS
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import decides, require, require_override, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.rescues.rescues import RescueSerializer, detailed
from kcover_portal.fleet.models import Node
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import concurrency_limits


class PlannedStepSerializer(serializers.Serializer[Any]):
    """A step of the plan."""

    name = serializers.CharField()
    args = serializers.DictField()


class PodSerializer(serializers.Serializer[Any]):
    """A pod that a drain would evict."""

    namespace = serializers.CharField()
    name = serializers.CharField()
    owner = serializers.CharField()


class PreviewSerializer(serializers.Serializer[Any]):
    """The plan of an action, and what would hold it back."""

    dry_run = serializers.BooleanField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    verb = serializers.CharField()
    steps = PlannedStepSerializer(many=True)
    held_back = serializers.ListField(child=serializers.CharField())
    held_back_reasons = ReasonSerializer(many=True)
    pods = PodSerializer(many=True, allow_null=True)
    jobs = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="training jobs that lose a pod, as namespace/job"
    )
    budgets = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="disruption budgets that allow no eviction of one of the pods now, as namespace/name; "
        "null if it evicts none, or if they cannot be read",
    )
    approvers = serializers.IntegerField(help_text="how many other people must approve before it starts")
    plan_hash = serializers.CharField()


class ReasonBody(base.StrictSerializer):
    """The reason for a manual action, recorded in the audit log. Not required for a dry run."""

    reason = serializers.CharField(
        max_length=base.MAX_REASON_CHARACTERS,
        error_messages={
            "required": "A reason is required for manual actions.",
            "blank": "A reason is required for manual actions.",
            "null": "A reason is required for manual actions.",
        },
    )


class NodeActBody(ReasonBody):
    """``override``: names of guards to pass over. Requires the role approver; the audit log records it."""

    override = serializers.ListField(
        child=serializers.ChoiceField(list(guards.GUARDS)), required=False, default=list, max_length=len(guards.GUARDS)
    )


class NodeAct(base.ActionView):
    """Actions on a node. Each opens a rescue under the same guards as a policy.

    It waits for an approval (state ``held``) if it takes work away and the cluster asks for approvals of actions by
    hand, by default in mode approve. On a node that a two-person question is about, it needs as many approvals.
    """

    decision_systems = True

    @extend_schema(
        operation_id="nodes_act",
        parameters=[
            OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=VERBS),
            OpenApiParameter("dry_run", bool, description="return the plan without carrying it out"),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=NodeActBody,
        responses={200: PreviewSerializer, 201: RescueSerializer},
    )
    def post(self, request: Request, cluster: str, name: str, verb: str) -> Response:
        """Opens a rescue (201), or with ``dry_run`` returns its plan (200)."""
        base.known_only(request, ("dry_run",))
        if verb not in VERBS:
            raise http_errors.NotFound(reasons.of("unknown_action", action=short_text(verb), known=", ".join(VERBS)))
        rows = accounts.visible(principal(request), Node.objects.select_related("cluster"), node="")
        node = get_object_or_404(rows, cluster__name=cluster, name=name)
        if base.flag(request, "dry_run"):
            base.body_of(request, base.ActSerializer)
            with base.place(request, concurrency_limits.CLUSTER_READS):
                return self._preview(node, verb, by_person=isinstance(principal(request), User))
        require(request, requests.right_for(verb), node)
        body = base.body_of(request, NodeActBody)
        if body["override"]:
            require_override(request, node)
        if body["override"] or requests.needs_factor(verb):
            step_up(request)
        return self._open(request, node, verb, reason=body["reason"], override=body["override"])

    def _preview(self, node: Node, verb: str, *, by_person: bool) -> Response:
        preview = rescue.preview(node, verb, now=timezone.now(), by_person=by_person)
        return Response(
            {
                "dry_run": True,
                "cluster": node.cluster.name,
                "node": node.name,
                "verb": verb,
                "steps": preview.steps,
                "held_back": [str(reason) for reason in preview.held_back],
                "held_back_reasons": [reason.to_json() for reason in preview.held_back],
                "pods": preview.pods,
                "jobs": preview.jobs,
                "budgets": preview.budgets,
                "approvers": preview.approvers,
                "plan_hash": preview.plan_hash,
            }
        )

    @idempotency.once
    def _open(self, request: Request, node: Node, verb: str, *, reason: str, override: list[str]) -> Response:
        who = principal(request)
        opened = rescue.request(
            node,
            verb,
            actor=accounts.actor(who),
            person=accounts.person(who),
            reason=reason,
            now=timezone.now(),
            origin=Rescue.Origin.API.value if decides(request) else Rescue.Origin.MANUAL.value,
            override=override,
            requester=(Rescue.Requester.PERSON if isinstance(who, User) else Rescue.Requester.TOKEN).value,
        )
        location = reverse("api:rescue", kwargs={"pk": opened.pk}, request=request)
        return Response(RescueSerializer(detailed().get(pk=opened.pk)).data, status=201, headers={"Location": location})
