"""Training jobs, and orders to restart or stop one."""

from http import HTTPStatus
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.api.v1.rescues.node_actions import ReasonBody
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import queries, services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.runtime.services import concurrency_limits

DECLINE = "decline"
ACTIONS = (*JobOrder.Action.values, DECLINE)


class PerformanceSerializer(serializers.Serializer[queries.PerformanceView]):
    """The performance of a job against its own past."""

    speed = serializers.FloatField(
        allow_null=True, help_text="1.0 is its usual speed; null while too little is known of its past"
    )
    slow_since = serializers.DateTimeField(allow_null=True, help_text="since when a drop lasts; null: none does")
    slow_node = serializers.CharField(help_text='the node that the drop follows; "" if it follows none')
    at = serializers.DateTimeField(help_text="when it was read last")


class JobSerializer(serializers.Serializer[Any]):
    """A training job. ``because`` is what it waits for, or why the portal restarted it last; "" if it did nothing."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    protected = serializers.BooleanField()
    state = serializers.ChoiceField(queries.STATES)
    restarts = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    gpus = serializers.IntegerField()
    last_restart = serializers.DateTimeField(allow_null=True)
    because = serializers.SerializerMethodField()
    avoid = serializers.ListField(
        child=serializers.CharField(), help_text="nodes on which several attempts of the job failed first"
    )
    performance = PerformanceSerializer(allow_null=True, help_text="null if no source reads it")

    def get_because(self, job: queries.JobView) -> str:
        return str(job.because) if job.because else ""


class SilentSerializer(serializers.Serializer[queries.UnreadableCluster]):
    """A cluster whose jobs could not be read."""

    cluster = serializers.CharField()
    because = serializers.CharField()


class JobsSerializer(serializers.Serializer[Any]):
    """The jobs by cluster, namespace and name. It has no pages: a cluster runs some hundreds at most."""

    count = serializers.IntegerField()
    results = JobSerializer(many=True)
    unavailable = SilentSerializer(many=True)


class OrderSerializer(serializers.ModelSerializer[JobOrder]):
    """An order about a job."""

    cluster = serializers.CharField(source="cluster.name")
    because = SentenceField()

    class Meta:
        model = JobOrder
        fields = (
            *(
                "id",
                "cluster",
                "namespace",
                "kind",
                "name",
                "action",
                "cause",
                "requested_by",
                "reason",
                "requested_at",
            ),
            *("state", "because", "incident", "ended_at"),
        )


class OrderPreviewSerializer(serializers.Serializer[Any]):
    """The effects of an order, and the conditions that would hold it back."""

    dry_run = serializers.BooleanField()
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    action = serializers.CharField()
    pods = serializers.ListField(child=serializers.CharField())
    excludes = serializers.ListField(
        child=serializers.CharField(), help_text="hosts that the job is kept off, because attempts failed first there"
    )
    approvers = serializers.IntegerField(help_text="how many other people must approve the order")
    held_back = serializers.ListField(child=serializers.CharField())
    held_back_reasons = ReasonSerializer(many=True)


class Jobs(APIView):
    """Training jobs, read from the API servers."""

    schema = Schema()

    @extend_schema(
        operation_id="jobs_list",
        parameters=[
            *(OpenApiParameter(name, str, OpenApiParameter.QUERY) for name in ("cluster", "namespace", "kind")),
            OpenApiParameter("q", str, OpenApiParameter.QUERY, description="a part of the namespace and name"),
            OpenApiParameter("state", str, OpenApiParameter.QUERY, enum=queries.STATES),
        ],
        responses={200: JobsSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the jobs of the clusters that the caller sees; of a pool, those with pods on its nodes.

        503 if the named cluster does not answer.
        """
        base.known_only(request, ("cluster", "namespace", "kind", "q", "state"))
        asked = request.query_params
        state = base.choice(request, "state", queries.STATES)
        scope = accounts.scope(principal(request))
        clusters = scope.clusters().order_by("name")
        if "cluster" in asked:
            clusters = Cluster.objects.filter(pk=get_object_or_404(clusters, name=asked["cluster"]).pk)
        kind = services.kind_named(asked["kind"]) if asked.get("kind") else ""
        namespace = asked.get("namespace", "")[:63]
        with base.place(request, concurrency_limits.CLUSTER_READS):
            read, silent = queries.jobs(list(clusters), scope, now=timezone.now(), namespace=namespace, kind=kind)
        found = queries.matching(read, text=base.search_text(request), state=state)
        if silent and "cluster" in asked:
            raise http_errors.RetryAfter(
                reasons.of("job_cluster_silent", cluster=silent[0].cluster, why=silent[0].because),
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                retry_after=5,
            )
        unavailable = [{"cluster": one.cluster, "because": str(one.because)} for one in silent]
        return Response(
            {"count": len(found), "results": JobSerializer(found, many=True).data, "unavailable": unavailable}
        )


class JobAct(base.ActionView):
    """Orders about one job. A worker carries them out, under the cluster's mode and once a job in 30 s."""

    @extend_schema(
        operation_id="jobs_act",
        parameters=[
            OpenApiParameter("action", str, OpenApiParameter.PATH, enum=ACTIONS),
            OpenApiParameter("dry_run", bool, description="return the effects without carrying out the order"),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=ReasonBody,
        responses={200: OrderPreviewSerializer, 202: OrderSerializer},
    )
    def post(self, request: Request, cluster: str, namespace: str, kind: str, name: str, action: str) -> Response:
        """Orders a restart, or a stop by suspension (202); with ``dry_run`` returns what it would do (200).

        Where the cluster asks for two people, the order waits (``held``) until an approver gives it too. ``decline``
        ends an order that waits.
        """
        base.known_only(request, ("dry_run",) if action != DECLINE else ())
        if action not in ACTIONS:
            known = ", ".join(ACTIONS)
            raise http_errors.NotFound(reasons.of("job_action_unknown", action=short_text(action), known=known))
        who = principal(request)
        row = get_object_or_404(accounts.clusters_of(who), name=cluster)
        asked: dict[str, Any] = {
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "people": accounts.counted_as(who, at=timezone.now()),
            "may_approve": accounts.may(who, Verb.APPROVE, row),
        }
        if base.flag(request, "dry_run"):
            base.body_of(request, base.ActSerializer)
            with base.place(request, concurrency_limits.CLUSTER_READS):
                found = services.preview(row, **asked, action=action, now=timezone.now())
            return Response(_preview(row, found, action))
        require(request, Verb.REPAIR, row)
        if asked["may_approve"] and row.hand_approval == Cluster.HandApproval.ALWAYS and action != DECLINE:
            step_up(request)  # it may approve the order of another person
        body = base.body_of(request, ReasonBody)
        return self._act(request, row, action, {**asked, "reason": body["reason"]})

    @idempotency.once
    def _act(self, request: Request, cluster: Cluster, action: str, asked: dict[str, Any]) -> Response:
        actor, now = accounts.actor(principal(request)), timezone.now()
        if action == DECLINE:
            return Response(OrderSerializer(services.decline(cluster, actor=actor, now=now, **asked)).data)
        made = services.order(cluster, action=action, requested_by=actor, now=now, **asked)
        return Response(OrderSerializer(made).data, status=202)


def _preview(cluster: Cluster, preview: services.Preview, action: str) -> dict[str, Any]:
    job = preview.target.job
    return {
        "dry_run": True,
        "cluster": cluster.name,
        "namespace": job.namespace,
        "kind": job.kind,
        "name": job.name,
        "action": action,
        "pods": sorted(pod.name for pod in preview.target.pods),
        "excludes": list(preview.excludes),
        "approvers": int(preview.standing.waits),
        "held_back": [str(reason) for reason in preview.held_back],
        "held_back_reasons": [reason.to_json() for reason in preview.held_back],
    }
