"""The probation of a node: its length and basis, and its early end."""

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.rescues.node_actions import ReasonBody
from kcover_portal.fleet.models import Node
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Probation
from kcover_portal.rescue.queries import probations


class ProbationSerializer(serializers.ModelSerializer[Probation]):
    """A probation that a node is on.

    ``because``: the English sentence of the basis of its length, ``because_reason``: the code with parameters.
    ``ends_because``: why it ends early, as soon as the portal may write; null: it ends at ``until``.
    """

    node = serializers.CharField(source="node.name", read_only=True)
    cluster = serializers.CharField(source="node.cluster.name", read_only=True)
    rescue = serializers.IntegerField(source="rescue_id", read_only=True, help_text="the rescue that returned the node")
    because = serializers.SerializerMethodField()
    because_reason = ReasonSerializer(source="basis", read_only=True)
    ends_because = serializers.SerializerMethodField()

    class Meta:
        model = Probation
        fields = (
            *("id", "cluster", "node", "rescue", "seconds", "because", "because_reason"),
            *("began_at", "until", "ends_because"),
        )

    def get_because(self, row: Probation) -> str:
        """Returns the basis of its length."""
        return str(row.basis)

    def get_ends_because(self, row: Probation) -> str | None:
        """Returns why it ends early."""
        return reasons.text(row.end_because) or None


class NodeProbation(base.ActionView):
    """The probation that a node is on."""

    @extend_schema(operation_id="nodes_probation", responses={200: ProbationSerializer})
    def get(self, request: Request, cluster: str, name: str) -> Response:
        """Returns the probation of the node. 404 if it is on none."""
        base.known_only(request)
        row = probations.on_node(_node(request, cluster, name))
        if row is None:
            raise http_errors.NotFound(reasons.of("no_probation", node=name))
        return Response(ProbationSerializer(row).data)


class EndProbation(base.ActionView):
    """Ends the probation of a node early."""

    @extend_schema(
        operation_id="nodes_end_probation",
        parameters=[OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)],
        request=ReasonBody,
        responses={202: ProbationSerializer},
    )
    @idempotency.once
    def post(self, request: Request, cluster: str, name: str) -> Response:
        """Requests the end of the probation (202). A worker removes label and taint. 409 if it is on none."""
        base.known_only(request)
        node = _node(request, cluster, name)
        require(request, Verb.REPAIR, node)
        reason = base.body_of(request, ReasonBody)["reason"]
        actor = accounts.actor(principal(request))
        row = services.end_probation(node, actor=actor, reason=reason, now=timezone.now())
        return Response(ProbationSerializer(row).data, status=202)


def _node(request: Request, cluster: str, name: str) -> Node:
    rows = accounts.visible(principal(request), Node.objects.select_related("cluster"), node="")
    return get_object_or_404(rows, cluster__name=cluster, name=name)
