"""Actions on the nodes of a scope, with a preview of each node."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.plans.plan import VERBS
from kcover.values.quote import short_text
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require_somewhere, step_up
from kcover_portal.api.v1 import base, scopes
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.rescues.node_actions import ReasonBody
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import scope_checks
from kcover_portal.lib.errors import FieldError
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.control import requests
from kcover_portal.runtime.services import concurrency_limits


class ManyNodesDryRunBody(scopes.ScopePreviewBody):
    """A scope with a selection, and the reason for an act on its nodes."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS, default="")


class ManyNodesBody(scopes.ScopePreviewBody, ReasonBody):
    """A scope with a selection, and the reason for an act on its nodes. Not required for a dry run."""


class NodePreviewSerializer(serializers.Serializer[rescues.NodePreview]):
    """What the act would do to a node. ``pods``: how many it evicts; null if it evicts none or may not be done.

    ``budgets``: the disruption budgets that allow no eviction of one of them now; null also if they cannot be read.
    """

    node = serializers.CharField(source="node.name")
    held_back = serializers.SerializerMethodField()
    held_back_reasons = ReasonSerializer(source="held_back", many=True)
    pods = serializers.SerializerMethodField()
    budgets = serializers.SerializerMethodField()
    approvers = serializers.SerializerMethodField()

    def get_held_back(self, hit: rescues.NodePreview) -> list[str]:
        """The English sentences of what holds it back."""
        return [str(reason) for reason in hit.held_back]

    def get_pods(self, hit: rescues.NodePreview) -> int | None:
        """The number of pods that the act evicts."""
        return None if hit.plan is None or hit.plan.pods is None else len(hit.plan.pods)

    def get_budgets(self, hit: rescues.NodePreview) -> list[str] | None:
        """The blocking disruption budgets, as namespace/name."""
        return hit.plan.budgets if hit.plan else None

    def get_approvers(self, hit: rescues.NodePreview) -> int:
        """How many other people must approve before it starts."""
        return hit.plan.approvers if hit.plan else 0


class ManyNodesPreviewSerializer(serializers.Serializer[Any]):
    """The dry run of an act on several nodes."""

    dry_run = serializers.BooleanField()
    nodes = NodePreviewSerializer(many=True)


class NodeResultSerializer(serializers.Serializer[rescues.NodeResult]):
    """The rescue of a node; null if the node was refused, and ``because`` says why."""

    node = serializers.CharField(source="node.name")
    rescue = serializers.SerializerMethodField()
    because = serializers.SerializerMethodField()
    because_reason = ReasonSerializer(source="because", allow_null=True)

    def get_rescue(self, got: rescues.NodeResult) -> int | None:
        """The id of the rescue."""
        return got.rescue.pk if got.rescue else None

    def get_because(self, got: rescues.NodeResult) -> str:
        """The English sentence of the refusal, or an empty text."""
        return str(got.because) if got.because else ""


class ManyNodesResultSerializer(serializers.Serializer[Any]):
    """The result of an act on several nodes."""

    dry_run = serializers.BooleanField()
    nodes = NodeResultSerializer(many=True)


class ManyNodesAct(base.ActionView):
    """Actions on the nodes of a scope. Each node gets a rescue of its own, under the same guards and approvals."""

    @extend_schema(
        operation_id="nodes_act_many",
        parameters=[
            OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=VERBS),
            OpenApiParameter("dry_run", bool, description="return the plan without carrying it out"),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=ManyNodesBody,
        responses={
            200: PolymorphicProxySerializer(
                component_name="ManyNodes",
                serializers=[ManyNodesPreviewSerializer, ManyNodesResultSerializer],
                resource_type_field_name=None,
            )
        },
    )
    def post(self, request: Request, verb: str) -> Response:
        """Opens a rescue for each node of a scope, or with ``dry_run`` returns what each would do. At most 100 nodes.

        A node that is refused does not stop the others: its ``because`` says why. With the same ``Idempotency-Key``, a
        node keeps the rescue that it got before, and a node that was refused is requested again.
        """
        base.known_only(request, ("dry_run",))
        if verb not in VERBS:
            raise http_errors.NotFound(reasons.of("unknown_action", action=short_text(verb), known=", ".join(VERBS)))
        who, now = principal(request), timezone.now()
        if base.flag(request, "dry_run"):
            nodes = _nodes(request, base.body_of(request, ManyNodesDryRunBody))
            with base.place(request, concurrency_limits.CLUSTER_READS):
                hits = rescues.preview_nodes(nodes, verb, who=who, now=now)
            return Response(ManyNodesPreviewSerializer({"dry_run": True, "nodes": hits}).data)
        require_somewhere(request, requests.right_for(verb))
        if requests.needs_factor(verb):
            step_up(request)
        body = base.body_of(request, ManyNodesBody)
        key = idempotency.key_of(request)
        results = rescues.request_nodes(
            _nodes(request, body),
            verb,
            who=who,
            reason=body["reason"],
            key=None if key is None else idempotency.short(request, verb, key),
            now=now,
        )
        return Response(ManyNodesResultSerializer({"dry_run": False, "nodes": results}).data)


def _nodes(request: Request, body: dict[str, Any]) -> list[Node]:
    """The nodes of the scope that the caller sees, by name. Raises FieldError."""
    cluster, seen = scopes.visible_cluster(request, body["cluster"])
    scope = scopes.selection(body)
    visible = seen.rows(Node.objects.filter(cluster=cluster, in_cluster=True), node="")
    rows = scope_checks.select(cluster, scope, among=visible)
    if (count := rows.count()) > rescues.MAX_NODES_AT_ONCE:
        raise FieldError(scope.kind, reasons.of("scope_too_wide", most=rescues.MAX_NODES_AT_ONCE, count=count))
    return list(rows.select_related("cluster"))
