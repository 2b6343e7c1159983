"""Check results and check runs."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover.checks import autopilot
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import idempotency, pagination, query_params
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base, scopes
from kcover_portal.api.v1.status import responses
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.filtersets import CheckRunFilter
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet.filtersets import CheckFilter
from kcover_portal.fleet.models import CheckResult, Cluster
from kcover_portal.fleet.services import node_scopes, scope_checks

MAX_BATCH = 100_000


class CheckSerializer(serializers.ModelSerializer[CheckResult]):
    """The latest result of one check on one device; ``changed_at`` is when its status last changed."""

    cluster = serializers.CharField(source="node.cluster.name", read_only=True)
    node = serializers.CharField(source="node.name", read_only=True)
    check = serializers.CharField(source="name", read_only=True)

    class Meta:
        model = CheckResult
        fields = (
            *("id", "cluster", "node", "check", "device", "status", "value", "unit", "message"),
            *("seen_at", "changed_at"),
        )


class Checks(base.ListViewSet[CheckResult]):
    """The latest results of all checks."""

    queryset = CheckResult.objects.select_related("node__cluster")
    serializer_class = CheckSerializer
    filterset_class = CheckFilter
    pagination_class = pagination.OldestFirst
    cluster_field = "node__cluster"


class CheckRunSerializer(serializers.ModelSerializer[CheckRun]):
    """A check run. ``done`` of ``total`` nodes have finished, ``wrong`` of them with a bad result."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    r = serializers.IntegerField(source="level", read_only=True)

    class Meta:
        model = CheckRun
        fields = (
            *("id", "cluster", "state", "checks", "r", "batch", "total", "done", "wrong"),
            *("requested_by", "requester_kind", "requested_at", "finished_at"),
        )


class CheckRunBody(scopes.ScopeBody):
    """A new check run on the nodes of a scope; without a selection, on all nodes with GPUs.

    ``r``: dcgm's level. ``batch``: nodes at a time; 0: all.
    """

    cluster = serializers.CharField(max_length=100)
    checks = serializers.ListField(
        child=serializers.ChoiceField(list(autopilot.CHECKS)), min_length=1, max_length=len(autopilot.CHECKS)
    )
    r = serializers.ChoiceField(list(autopilot.DCGM_LEVELS), required=False, default=1)
    batch = serializers.IntegerField(required=False, min_value=0, max_value=MAX_BATCH, default=0)


class CheckRuns(base.ReadViewSet[CheckRun]):
    """Check runs, newest first."""

    queryset = CheckRun.objects.select_related("cluster")
    node_field = None
    serializer_class = CheckRunSerializer
    filterset_class = CheckRunFilter

    @extend_schema(operation_id="check_runs_read", responses={200: OpenApiTypes.OBJECT})
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Returns a run with all nodes, in the JSON format of ``/status``."""
        query_params.refuse_unknown(request, ())
        run = self.get_object()
        targets = run.targets.select_related("node").order_by("place")
        summary = {target.node.name: target.statuses for target in targets if target.statuses}
        return Response(
            {
                **responses.run_json(run),
                "nodes": [responses.node_json(target) for target in targets],
                "summary": summary,
            }
        )

    @extend_schema(request=CheckRunBody, responses={202: CheckRunSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Starts a check run. 409 if too many are running in the cluster."""
        base.known_only(request)
        body, who = base.body_of(request, CheckRunBody), principal(request)
        cluster = base.cluster_named(request, body["cluster"])
        require(request, Verb.CHECK, cluster)
        run = check_runs.begin(
            cluster,
            scope_checks.select_for_gpus(cluster, node_scopes.read(scopes.given(body))),
            checks=list(dict.fromkeys(body["checks"])),
            level=body["r"],
            batch=body["batch"],
            actor=accounts.actor(who),
            requester=CheckRun.Requester.PERSON if isinstance(who, User) else CheckRun.Requester.TOKEN,
            now=timezone.now(),
        )
        return Response(CheckRunSerializer(run).data, status=202)


class Stop(base.ActionView):
    """Stops a check run."""

    @extend_schema(operation_id="check_runs_stop", request=base.ActSerializer, responses={200: CheckRunSerializer})
    @idempotency.once
    def post(self, request: Request, pk: int) -> Response:
        """Withdraws the checks that have not begun and requests no others. 409 if the run has ended."""
        base.known_only(request)
        who = principal(request)
        visible = accounts.visible(who, CheckRun.objects.select_related("cluster"), node=None)
        run = get_object_or_404(visible, pk=pk)
        require(request, Verb.CHECK, run.cluster)
        reason = base.body_of(request, base.ActSerializer)["reason"]
        check_runs.stop(run, actor=accounts.actor(who), reason=reason, now=timezone.now())
        return Response(CheckRunSerializer(visible.get(pk=pk)).data)
