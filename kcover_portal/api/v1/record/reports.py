"""Reports about reliability: sums and intervals of a period, and nodes that fail repeatedly."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kcover.reports.records import By
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster
from kcover_portal.reports import lemon_repairs, parameters, reliability, tables
from kcover_portal.runtime.services import concurrency_limits


def _numbers(*names: str) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    return {name: serializers.FloatField(allow_null=True) for name in names}


def _counts(*names: str) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    return {name: serializers.IntegerField() for name in names}


def _cost() -> serializers.Field[Any, Any, Any, Any]:
    return serializers.CharField(allow_null=True, help_text="null: a cluster has no gpu_hour_price")


_MOMENTS = {"from": serializers.DateTimeField(), "to": serializers.DateTimeField()}
_SUMS = {
    **_counts("faults", "recovered", "not_recovered"),
    **_numbers("recovery_median_seconds", "recovery_p90_seconds", "gpu_hours_lost"),
    "cost": _cost(),
    **_counts("rescues", "succeeded"),
    **_numbers("success", "success_low", "success_high"),
    **_numbers("hours_between_faults", "hours_between_faults_low", "hours_between_faults_high"),
}
_FIGURES = inline_serializer(
    "ReportFigures",
    {
        **_MOMENTS,
        **_SUMS,
        **_numbers("gpus", "availability"),
        **{
            name: field
            for about in ("detection", "approval", "job_restart")
            for name, field in {
                **_counts(f"{about}_known"),
                **_numbers(f"{about}_median_seconds", f"{about}_p90_seconds"),
            }.items()
        },
        **_numbers("automation", "automation_low", "automation_high"),
        **_counts("false_isolations", "isolations"),
        **_numbers("false_isolation", "false_isolation_low", "false_isolation_high"),
        **_counts("second_reboots", "reboots"),
        **_numbers("second_reboot", "second_reboot_low", "second_reboot_high"),
    },
)
_KEY = {"key": serializers.CharField(help_text='"": without such a group')}
RELIABILITY = inline_serializer(
    "ReliabilityReport",
    {
        "by": serializers.ChoiceField([str(by) for by in By]),
        "period": _FIGURES,
        "before": _FIGURES,
        "rows": inline_serializer("ReportGroup", {**_KEY, **_SUMS}, many=True),
        "phases": inline_serializer("ReportPhase", {**_KEY, **_numbers("gpu_hours_lost"), "cost": _cost()}, many=True),
        "steps": inline_serializer(
            "ReportStep",
            {
                "step": serializers.CharField(),
                **_counts("done", "failed"),
                **_numbers("success", "success_low", "success_high"),
            },
            many=True,
        ),
        "trend": inline_serializer(
            "ReportBucket",
            {**_MOMENTS, **_counts("faults"), **_numbers("recovery_median_seconds", "gpu_hours_lost")},
            many=True,
        ),
    },
)


class LemonSerializer(serializers.Serializer[Any]):
    """A node that fails repeatedly."""

    cluster = serializers.CharField()
    node = serializers.CharField()
    pool = serializers.CharField()
    faults_28d = serializers.IntegerField(help_text="faults within an hour of each other count once")
    faults_56d = serializers.IntegerField()
    causes = serializers.CharField()
    last_fault_at = serializers.DateTimeField()
    gpu_hours_lost_56d = serializers.FloatField()
    probability = serializers.FloatField(help_text="of a fault within window_days")
    probability_all = serializers.FloatField(help_text="the same for all nodes")
    window_days = serializers.IntegerField()
    basis = serializers.CharField()
    basis_reason = ReasonSerializer()
    advice = serializers.CharField()
    advice_reason = ReasonSerializer()
    repair = serializers.IntegerField(allow_null=True, help_text="the open repair of the machine; null: none")
    repair_due = serializers.BooleanField(help_text="with lemon_repairs the portal reports, or would report, a repair")


class LemonsSerializer(serializers.Serializer[Any]):
    """All such nodes, the likeliest next fault first."""

    count = serializers.IntegerField()
    results = LemonSerializer(many=True)


def _cluster(request: Request, scope: accounts.Scope) -> Cluster | None:
    """The cluster that the caller names. Raises Http404."""
    name = request.query_params.get("cluster", "")
    return get_object_or_404(scope.clusters(), name=name) if name else None


class Reliability(APIView):
    """Sums and intervals of a period."""

    schema = Schema()

    @extend_schema(
        operation_id="reports_reliability",
        parameters=[
            OpenApiParameter("from", str, OpenApiParameter.QUERY, description="a date or time; default: 30 days ago"),
            OpenApiParameter("to", str, OpenApiParameter.QUERY, description="a date or time; default: now"),
            OpenApiParameter("cluster", str, OpenApiParameter.QUERY),
            OpenApiParameter("by", str, OpenApiParameter.QUERY, enum=[str(by) for by in By]),
        ],
        responses={200: RELIABILITY},
    )
    def get(self, request: Request) -> Response:
        """Returns the figures of the period and of the one before it, sums by group, phases, steps and the trend."""
        base.known_only(request, ("from", "to", "cluster", "by"))
        scope, asked = accounts.scope(principal(request)), request.query_params
        cluster, by = _cluster(request, scope), parameters.by(asked.get("by", ""))
        since, until = (parameters.moment(name, asked.get(name, "")) for name in ("from", "to"))
        period = reliability.period(since, until, now=timezone.now())
        with base.place(request, concurrency_limits.REPORTS):
            found = reliability.reliability(scope, cluster, by, period)
        return Response(
            {
                "by": found.by,
                "period": tables.figures(found.now),
                "before": tables.figures(found.before),
                "rows": [tables.group(row) for row in found.rows],
                "phases": [tables.phase(row) for row in found.phases],
                "steps": [tables.step(row) for row in found.steps],
                "trend": [tables.bucket(row) for row in found.buckets],
            }
        )


class Lemons(APIView):
    """Nodes that fail repeatedly."""

    schema = Schema()

    @extend_schema(
        operation_id="reports_lemons",
        parameters=[OpenApiParameter("cluster", str, OpenApiParameter.QUERY)],
        responses={200: LemonsSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the nodes with two or more episodes of faults in 28 days, or three in 56, with their risk."""
        base.known_only(request, ("cluster",))
        scope = accounts.scope(principal(request))
        cluster = _cluster(request, scope)
        with base.place(request, concurrency_limits.REPORTS):
            found = lemon_repairs.with_outlooks(reliability.nodes_that_fail(scope, cluster, now=timezone.now()))
        rows = [
            {**tables.lemon(row, outlook), "basis_reason": row.risk.because, "advice_reason": row.advice}
            for row, outlook in found
        ]
        return Response(LemonsSerializer({"count": len(rows), "results": rows}).data)
