"""The table of winning rules over all active policies."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.faults import fault
from kcover.values.quote import short_text
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import policy_tries, policy_winners

KIND = OpenApiParameter("kind", str, enum=fault.INCIDENT_KINDS, description="faults of one kind")
CODE = OpenApiParameter("code", str, description="one fault, of kind xid unless kind says otherwise")
POOL = OpenApiParameter("pool", str, description="nodes of one pool")
NODE = OpenApiParameter("node", str, description="cluster/name of one node")


class GroupSerializer(serializers.Serializer[Any]):
    """Nodes that no rule can tell apart. ``labels``: those that rules select by. ``node``: one of them."""

    cluster = serializers.CharField()
    pool = serializers.CharField(allow_blank=True)
    labels = serializers.DictField(child=serializers.CharField())
    nodes = serializers.IntegerField()
    node = serializers.CharField()
    external = serializers.BooleanField(help_text="an external decision system decides in this cluster")


class WinnerSerializer(serializers.Serializer[Any]):
    """A rule. ``mode``: the strictest of installation, cluster and rule. ``minCount``: it waits for so many faults."""

    rule = serializers.CharField()
    policy = serializers.CharField()
    revision = serializers.IntegerField()
    priority = serializers.IntegerField()
    mode = serializers.CharField()
    minCount = serializers.IntegerField(allow_null=True)


class FaultSerializer(serializers.Serializer[Any]):
    """A fault, null for any other code of the kind, and for each group the rules in order; empty: no rule covers it."""

    kind = serializers.CharField()
    code = serializers.CharField(allow_null=True)
    winners = serializers.ListField(child=WinnerSerializer(many=True))


class WinnersSerializer(serializers.Serializer[Any]):
    """``winners`` of each fault are in the order of ``groups``. ``moreFaults``, ``moreGroups``: left out."""

    groups = GroupSerializer(many=True)
    faults = FaultSerializer(many=True)
    moreFaults = serializers.IntegerField()
    moreGroups = serializers.IntegerField()


class Winners(base.ActionView):
    """Which rule wins for which fault on which nodes."""

    @extend_schema(
        operation_id="policies_winners", parameters=[KIND, CODE, POOL, NODE], responses={200: WinnersSerializer}
    )
    def get(self, request: Request) -> Response:
        """Returns the winning rules for listed and recent faults on the nodes that you see."""
        base.known_only(request, ("kind", "code", "pool", "node"))
        who, asked = principal(request), request.query_params
        kind = asked.get("kind", "")
        if kind and kind not in fault.INCIDENT_KINDS:
            known = ", ".join(fault.INCIDENT_KINDS)
            raise FieldError("kind", reasons.of("kind_unknown", kind=short_text(kind), known=known))
        code = asked.get("code", "")
        if not policy_winners.is_code(kind, code):
            raise FieldError("code", reasons.of("code_not_numeric"))
        node = policy_tries.find_node(who, asked["node"]) if "node" in asked else None
        with base.place(request, concurrency_limits.VALIDATIONS):
            found = policy_winners.winners(
                who, now=timezone.now(), kind=kind, code=code, pool=asked.get("pool", ""), node=node
            )
        return Response(
            {
                "groups": [
                    {
                        "cluster": group.cluster,
                        "pool": group.pool,
                        "labels": group.labels,
                        "nodes": group.nodes,
                        "node": group.example,
                        "external": group.external,
                    }
                    for group in found.groups
                ],
                "faults": [
                    {"kind": row.kind, "code": row.code or None, "winners": [_cell(cell) for cell in row.cells]}
                    for row in found.rows
                ],
                "moreFaults": found.more_rows,
                "moreGroups": found.more_groups,
            }
        )


def _cell(cell: tuple[policy_winners.Winner, ...]) -> list[dict[str, Any]]:
    return [
        {
            "rule": one.candidate.name,
            "policy": one.candidate.policy,
            "revision": one.candidate.revision,
            "priority": one.candidate.rule.priority,
            "mode": one.mode,
            "minCount": one.candidate.rule.minimum.count if one.candidate.rule.minimum else None,
        }
        for one in cell
    ]
