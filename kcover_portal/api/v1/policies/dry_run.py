"""Dry runs of policies: which rule matches, and what a text would have decided."""

import collections
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import plan, reasons
from kcover.decisions import decide as core
from kcover.faults import fault
from kcover.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.incidents import code_of
from kcover_portal.errors import FieldError
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries, services
from kcover_portal.rescue.decide import backtest

MOST_DAYS = 90
MOST = 1000  # newest incidents per dry run

KIND = OpenApiParameter("kind", str, enum=fault.INCIDENT_KINDS, description="default xid")
CODE = OpenApiParameter("code", str, required=True, description="for example 62, or the name of a check")
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


class JudgedSerializer(serializers.Serializer[Any]):
    """A decision that was not stored."""

    answer = serializers.ChoiceField(choices=core.ANSWERS)
    mode = serializers.CharField()
    rule = serializers.CharField(allow_null=True)
    because = serializers.ListField(child=serializers.CharField())
    steps = serializers.ListField(child=serializers.CharField())


class TrialSerializer(serializers.Serializer[Any]):
    """An incident under the active rules (``before``) and under the text (``after``)."""

    incident = serializers.IntegerField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    kind = serializers.CharField()
    code = serializers.CharField(help_text="a number for xid and sxid, else a short text")
    opened_at = serializers.DateTimeField()
    changed = serializers.BooleanField()
    before = JudgedSerializer()
    after = JudgedSerializer()


class CountsSerializer(serializers.Serializer[Any]):
    """Incidents by answer."""

    before = serializers.DictField(child=serializers.IntegerField())
    after = serializers.DictField(child=serializers.IntegerField())


class TriedOutSerializer(serializers.Serializer[Any]):
    """What the text would change. ``truncated``: there were more incidents; only the newest were used."""

    incidents = serializers.IntegerField()
    changed = serializers.IntegerField()
    truncated = serializers.BooleanField()
    answers = CountsSerializer()
    results = TrialSerializer(many=True)


class TryBody(base.Strict):
    """A text, and the incidents to try it on.

    These are the open incidents of one ``node``, all open ones (``fleet``, the default), or all of the last ``days``.
    """

    yaml = serializers.CharField(trim_whitespace=False)
    node = serializers.CharField(required=False, help_text="cluster/name")
    fleet = serializers.BooleanField(required=False)
    days = serializers.IntegerField(required=False, min_value=1, max_value=MOST_DAYS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Allows at most one of the three."""
        given = [name for name in ("node", "fleet", "days") if attrs.get(name)]
        if len(given) > 1:
            raise FieldError(given[1], reasons.of("exclusive", other=given[0]))
        return attrs


class Try(base.Acts):
    """What a text would have decided. Nothing is stored or executed."""

    @extend_schema(operation_id="policies_try", request=TryBody, responses={200: TriedOutSerializer})
    def post(self, request: Request) -> Response:
        """Decides the visible incidents by the active rules and by the text. 422 if the text is invalid."""
        base.known_only(request)
        body = base.body_of(request, TryBody)
        rules = services.draft(body["yaml"])
        rows = _incidents(request, body).select_related("node__cluster", "cluster").order_by("-pk")
        found = list(rows[: MOST + 1])
        trials = list(backtest.run(rules, found[:MOST], now=timezone.now(), past="days" in body))
        return Response(
            {
                "incidents": len(trials),
                "changed": sum(trial.changed for trial in trials),
                "truncated": len(found) > MOST,
                "answers": {
                    "before": collections.Counter(trial.before.answer for trial in trials),
                    "after": collections.Counter(trial.after.answer for trial in trials),
                },
                "results": [_trial(trial) for trial in trials],
            }
        )


class Effective(base.Acts):
    """The rule that would match a fault."""

    @extend_schema(
        operation_id="policies_effective",
        parameters=[KIND, CODE, NODE, LABEL],
        responses={200: EffectiveSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the active rule that matches the fault on a node, or on any node with these labels."""
        base.known_only(request, ("kind", "code", "node", "label"))
        kind, code = _fault(request)
        chosen, tried = queries.effective(kind=kind, code=code, labels=_labels(request))
        steps = plan.of_rule(chosen.rule, code=code) if chosen else ()
        return Response(
            {
                "rule": chosen.name if chosen else None,
                "policy": chosen.policy if chosen else None,
                "revision": chosen.revision if chosen else None,
                "mode": chosen.rule.mode if chosen else None,
                "steps": [{"name": step.name, "args": dict(step.args)} for step in steps],
                "tried": [{"rule": t.rule, "matched": t.matched, "because": str(t.because)} for t in tried],
            }
        )


def _incidents(request: Request, body: dict[str, Any]) -> QuerySet[Incident]:
    visible = accounts.clusters_of(principal(request))
    rows = Incident.objects.filter(cluster__in=visible, node__isnull=False)
    if "days" in body:
        return rows.filter(opened_at__gte=timezone.now() - timedelta(days=body["days"]))
    rows = rows.filter(state=Incident.State.OPEN)
    return rows.filter(node=_node(request, body["node"])) if "node" in body else rows


def _node(request: Request, named: str) -> Node:
    """Returns the node of ``cluster/name``. Raises FieldError if it is not visible."""
    cluster, _, name = named.partition("/")
    visible = accounts.clusters_of(principal(request))
    node = Node.objects.filter(cluster__in=visible, cluster__name=cluster, name=name).first()
    if node is None:
        raise FieldError("node", reasons.of("unknown_node", node=short_text(named)))
    return node


def _fault(request: Request) -> tuple[str, str]:
    kind, code = request.query_params.get("kind", "xid"), request.query_params.get("code", "")
    if kind not in fault.INCIDENT_KINDS:
        known = ", ".join(fault.INCIDENT_KINDS)
        raise FieldError("kind", reasons.of("kind_unknown", kind=short_text(kind), known=known))
    numeric = kind in fault.NUMERIC_KINDS
    if not code or (numeric and not (code.isascii() and code.isdecimal() and len(code) <= 10)):
        raise FieldError("code", reasons.of("code_not_numeric" if numeric else "code_missing"))
    return kind, str(int(code)) if numeric else code


def _labels(request: Request) -> dict[str, str]:
    if "node" in request.query_params:
        return dict(_node(request, request.query_params["node"]).labels)
    labels = {}
    for pair in request.query_params.getlist("label"):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise FieldError("label", reasons.of("label_selector_invalid", selector=short_text(pair)))
        labels[key] = value
    return labels


def _trial(trial: backtest.Backtest) -> dict[str, Any]:
    incident = trial.incident
    return {
        "incident": incident.pk,
        "cluster": incident.cluster.name,
        "node": trial.node.name,
        "kind": incident.kind,
        "code": code_of(incident),
        "opened_at": incident.opened_at,
        "changed": trial.changed,
        "before": _decision(trial.before),
        "after": _decision(trial.after),
    }


def _decision(decision: core.Decision) -> dict[str, Any]:
    return {
        "answer": decision.answer,
        "mode": decision.mode,
        "rule": decision.rule,
        "because": [str(reason) for reason in decision.because],
        "steps": [step.name for step in decision.steps],
    }
