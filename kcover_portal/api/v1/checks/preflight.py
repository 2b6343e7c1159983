"""Preflight: receiving reports, and the runs with their results."""

from datetime import timedelta
from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import preflight as rule, reasons
from kcover.values.quote import short_repr, short_text
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.api import http_errors, query_params
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.api.permissions import RolePermission, require
from kcover_portal.api.v1 import base, deadlines, status
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight import services
from kcover_portal.preflight.filtersets import PreflightRunFilter
from kcover_portal.preflight.models import PreflightRefusal, PreflightReport, PreflightRun
from kcover_portal.preflight.services import node_reports

NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# Of one agent's token in one process: each report asks the cluster for the pods of the node.
REPORTS_PER_SECOND, BURST_REPORTS = 2, 20

report_rates: LeakyBuckets[int] = LeakyBuckets(rate=REPORTS_PER_SECOND, burst=BURST_REPORTS)  # by key of the token


class Reporting(RolePermission):
    """Admits agents and everyone with a role. The view checks which nodes they may report."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Returns True for an agent's token."""
        if isinstance(request.auth, ApiToken) and request.auth.kind == ApiToken.Kind.AGENT:
            return True
        return super().has_permission(request, view)


class ReportBody(base.StrictSerializer):
    """A node's report and its workload."""

    namespace = serializers.RegexField(NAMESPACE, max_length=63)
    workload = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=253,
        help_text="required if not in the report",
    )
    workload_uid = serializers.CharField(
        required=False,
        allow_blank=True,
        allow_null=True,
        default="",
        max_length=64,
        help_text="uid of its owner",
    )
    within = deadlines.DeadlineField(
        required=False,
        allow_null=True,
        default=None,
        help_text="time to collect the reports of the run, such as 30m; the first report of a run sets it",
    )
    report = serializers.JSONField(help_text="kcover's report, complete or compacted")


class TakenSerializer(serializers.Serializer[Any]):
    """The effect of a report. ``change`` is ``counted``, ``replaced``, ``same`` or ``restarted``."""

    run = serializers.IntegerField()
    change = serializers.ChoiceField(rule.CHANGES)
    because = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(PreflightRun.State.choices)
    received = serializers.IntegerField()
    expected_reports = serializers.IntegerField()


class Reports(base.ActionView):
    """Receives preflight reports."""

    agents_too = True  # a node may report about itself
    permission_classes = (Reporting,)

    @extend_schema(
        operation_id="preflight_report",
        parameters=[OpenApiParameter("cluster", str, description="required unless the token is bound to a cluster")],
        request=ReportBody,
        responses={202: TakenSerializer},
    )
    def post(self, request: Request) -> Response:
        """Stores a node's report (202). Repeating the same report changes nothing.

        An agent can report about its own node only, twice per second, 20 reports at once (429); others need the role
        operator. 400 explains why a report is rejected.
        """
        base.known_only(request, ("cluster",))
        _limit_rate(request)
        cluster = _cluster(request)
        sent = sent_report(base.body_of(request, ReportBody))
        node = sent.report.get("node_name")
        _speaks_for(request, node, cluster)
        if _is_agent(request):
            taken = services.receive_from_node(cluster, str(node), sent, now=timezone.now())
        else:
            taken = node_reports.store(sent.of(cluster), sent, now=timezone.now())
        return Response(answer_to(taken), status=HTTPStatus.ACCEPTED)


def sent_report(body: dict[str, Any]) -> services.SentReport:
    """Returns the report in a validated body. Raises FieldError."""
    if not isinstance(body["report"], dict):
        raise FieldError("report", reasons.of("not_an_object"))
    return services.SentReport(
        namespace=body["namespace"],
        report=body["report"],
        workload=body["workload"],
        uid=body["workload_uid"] or "",
        within=timedelta(seconds=body["within"]) if body["within"] else None,
    )


def answer_to(taken: services.AddedReport) -> dict[str, Any]:
    """Returns the body of the response to a report."""
    run = taken.run
    return {
        "run": run.pk,
        "change": taken.change,
        "because": str(taken.because) if taken.because else None,
        "state": run.state,
        "received": run.received,
        "expected_reports": run.size,
    }


def _cluster(request: Request) -> Cluster:
    token = request.auth
    if isinstance(token, ApiToken) and token.kind == ApiToken.Kind.AGENT:
        if token.cluster is None or not token.node:
            raise http_errors.Forbidden(reasons.of("enrolment_token"))
        if (named := request.query_params.get("cluster")) not in (None, token.cluster.name):
            raise http_errors.Forbidden(
                reasons.of("other_cluster", cluster=token.cluster.name, other=short_text(named))
            )
        return token.cluster
    cluster = status.cluster_of(request)
    require(request, Verb.CHECK, cluster)
    return cluster


def _limit_rate(request: Request) -> None:
    """Raises RetryAfter for an agent that has sent too many reports."""
    token = request.auth
    if isinstance(token, ApiToken) and _is_agent(request) and (wait := report_rates.take(token.pk)):
        limit = reasons.of("report_rate", node=token.node, rate=REPORTS_PER_SECOND, burst=BURST_REPORTS)
        raise http_errors.RetryAfter(limit, status=HTTPStatus.TOO_MANY_REQUESTS, retry_after=wait)


def _is_agent(request: Request) -> bool:
    return isinstance(request.auth, ApiToken) and request.auth.kind == ApiToken.Kind.AGENT


def _speaks_for(request: Request, node: object, cluster: Cluster) -> None:
    """Raises Forbidden if an agent reports about another node (invariant 47)."""
    token = request.auth
    if isinstance(token, ApiToken) and token.kind == ApiToken.Kind.AGENT and node != token.node:
        raise http_errors.Forbidden(reasons.of("other_node", node=token.node, other=short_repr(node)))


class PreflightRunSerializer(serializers.ModelSerializer[PreflightRun]):
    """A run. ``suspects`` are both nodes of a two-node job, because either one could be slow."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    expected_reports = serializers.IntegerField(source="size", read_only=True)
    slow_nodes = serializers.ListField(source="slow", child=serializers.CharField(), read_only=True)
    abnormal_nodes = serializers.ListField(source="abnormal", child=serializers.CharField(), read_only=True)
    suspect_nodes = serializers.ListField(source="suspects", child=serializers.CharField(), read_only=True)
    because = serializers.SerializerMethodField()

    class Meta:
        model = PreflightRun
        fields = (
            *("id", "cluster", "namespace", "workload", "uid", "state", "received", "expected_reports"),
            *("slow_nodes", "abnormal_nodes", "suspect_nodes", "rejected", "because"),
            *("first_at", "last_at", "due_at", "ended_at"),
        )

    def get_because(self, run: PreflightRun) -> list[str]:
        """The reasons in English."""
        return [str(reasons.from_json(reason)) for reason in run.because]


class Runs(base.ReadViewSet[PreflightRun]):
    """Preflight runs, newest first."""

    queryset = PreflightRun.objects.select_related("cluster")
    node_field = None
    serializer_class = PreflightRunSerializer
    filterset_class = PreflightRunFilter

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Lists the runs of preflight.

        With ``namespace``, ``workload`` and ``uid``, the fields of one run are also returned beside ``results``: of
        the waiting run with the most reports, or else of the newest run. A program that waits for one run then does
        not have to search the list.
        """
        answer = super().list(request, *args, **kwargs)
        rows = answer.data["results"]
        if rows and {"namespace", "workload", "uid"} <= set(request.query_params):
            waiting = [row for row in rows if row["state"] == PreflightRun.State.WAITING]
            answer.data = {**max(waiting or rows[:1], key=lambda row: row["received"]), **answer.data}
        return answer

    @extend_schema(operation_id="preflight_runs_read", responses={200: OpenApiTypes.OBJECT})
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Returns a run with its reports and the rejected ones."""
        query_params.refuse_unknown(request, ())
        run = self.get_object()
        return Response(
            {
                **PreflightRunSerializer(run).data,
                "reports": [_report(report) for report in _reports(run)],
                "refusals": [_refusal(refusal) for refusal in run.refusals.all()],
            }
        )


def _reports(run: PreflightRun) -> QuerySet[PreflightReport]:
    return run.reports.select_related("node").order_by("node__name")


def _refusal(refusal: PreflightRefusal) -> dict[str, Any]:
    reason = reasons.text(refusal.because)
    return {"node": refusal.node, "path": refusal.path, "reason": reason, "at": refusal.at}


def _report(report: PreflightReport) -> dict[str, Any]:
    return {"node": report.node.name, "verdict": report.verdict, "at": report.at, "report": report.body}
