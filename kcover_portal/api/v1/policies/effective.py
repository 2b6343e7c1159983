"""Which rule of the active policies would match a fault."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.faults import fault
from kcover.plans import plan
from kcover.values import masked_addresses
from kcover.values.quote import short_text
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import queries
from kcover_portal.shared_reads import policy_tries

KIND = OpenApiParameter("kind", str, enum=fault.INCIDENT_KINDS, description="default xid")
CODE = OpenApiParameter("code", str, required=True, description="for example 62, or the name of a check")
APPLICATION = OpenApiParameter(
    "application", bool, description="an application fault, of a kind other than xid and sxid"
)
NODE = OpenApiParameter("node", str, description="cluster/name of a node, whose labels are used")
LABEL = OpenApiParameter("label", str, many=True, description="key=value, instead of a node; may be repeated")


class TriedRuleSerializer(serializers.Serializer[Any]):
    """A rule that was evaluated."""

    rule = serializers.CharField()
    matched = serializers.BooleanField()
    because = serializers.CharField()


class PlannedSerializer(serializers.Serializer[Any]):
    """A step of the plan."""

    name = serializers.CharField()
    args = serializers.DictField()


class EffectiveSerializer(serializers.Serializer[Any]):
    """The rule that would run, or null, and the rules evaluated up to it."""

    rule = serializers.CharField(allow_null=True)
    policy = serializers.CharField(allow_null=True)
    revision = serializers.IntegerField(allow_null=True)
    mode = serializers.CharField(allow_null=True)
    steps = PlannedSerializer(many=True)
    tried = TriedRuleSerializer(many=True)


class Effective(base.ActionView):
    """The rule that would match a fault."""

    @extend_schema(
        operation_id="policies_effective",
        parameters=[KIND, CODE, APPLICATION, NODE, LABEL],
        responses={200: EffectiveSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the active rule that matches the fault on a node, or on any node with these labels."""
        base.known_only(request, ("kind", "code", "application", "node", "label"))
        kind, code = _fault(request)
        application = base.flag(request, "application")
        labels, drained = _labels(request)
        chosen, tried = queries.effective(kind=kind, code=code, application=application, labels=labels)
        steps = plan.of_rule(chosen.rule, code=code, on_drain_timeout=drained) if chosen else ()
        return Response(
            {
                "rule": chosen.name if chosen else None,
                "policy": chosen.policy if chosen else None,
                "revision": chosen.revision if chosen else None,
                "mode": chosen.rule.mode if chosen else None,
                "steps": [{"name": step.name, "args": masked_addresses.mask(step.args)} for step in steps],
                "tried": [{"rule": t.rule, "matched": t.matched, "because": str(t.because)} for t in tried],
            }
        )


def _fault(request: Request) -> tuple[str, str]:
    kind, code = request.query_params.get("kind", "xid"), request.query_params.get("code", "")
    if kind not in fault.INCIDENT_KINDS:
        known = ", ".join(fault.INCIDENT_KINDS)
        raise FieldError("kind", reasons.of("kind_unknown", kind=short_text(kind), known=known))
    numeric = kind in fault.NUMERIC_KINDS
    if not code or (numeric and not (code.isascii() and code.isdecimal() and len(code) <= 10)):
        raise FieldError("code", reasons.of("code_not_numeric" if numeric else "code_missing"))
    return kind, str(int(code)) if numeric else code


def _labels(request: Request) -> tuple[dict[str, str], str]:
    """The labels of the node, and what its cluster says about drains that have run out of time."""
    if "node" in request.query_params:
        node = policy_tries.find_node(principal(request), request.query_params["node"])
        return dict(node.labels), node.cluster.on_drain_timeout
    labels = {}
    for pair in request.query_params.getlist("label"):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise FieldError("label", reasons.of("label_selector_invalid", selector=short_text(pair)))
        labels[key] = value
    return labels, "hold"
