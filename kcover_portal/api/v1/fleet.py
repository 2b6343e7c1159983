"""Clusters, nodes and GPUs; acts on a node; the pause of everything."""

from collections.abc import Callable
from typing import Any, Literal, cast

import django_filters as filters
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import exceptions, serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from kcover import guards, health, lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.api import idempotency, paging
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import decides, require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.rescues import RescueSerializer, detailed
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.filtersets import GpuFilter, NodeFilter
from kcover_portal.fleet.models import OBJECT_NAME, Agent, Cluster, Gpu, Mode, Node
from kcover_portal.fleet.services import bounds
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import NodeHealth
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.models import Rescue

VERBS = ("cordon", "uncordon", "drain", "reboot", "release")
NAMESPACE = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
NodeState = Literal["gone", "rescue", "faulty", "unknown", "not-ready", "cordoned", "healthy"]


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster; its credentials are never shown."""

    class Meta:
        model = Cluster
        fields = (
            "id",
            "name",
            "mode",
            "pause_reason",
            "decision_mode",
            "drills",
            "reboot",
            "job_image",
            "job_namespace",
            "event_namespace",
            "hold_down",
            "ready_within",
            "decision_url",
            "decision_timeout",
            "decision_fallback",
            "autopilot_labels",
            "preflight_within",
            "storage_class",
            "in_cluster",
            "version",
            "watched_at",
            "watch_error",
            "created_at",
        )


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """The last word of a node's agent; ``skew`` is seconds its clock is ahead."""

    class Meta:
        model = Agent
        fields = ("seen_at", "version", "boot_id", "boot_seen_at", "skew")


class CauseSerializer(serializers.Serializer[Any]):
    """What speaks against health: an open ``fault``, a ``check`` that fails, either of them ``flapping``, the agent's
    ``silence``, the cluster's word (``ready``); ``about`` names which."""

    kind = serializers.ChoiceField(health.CAUSES)
    about = serializers.CharField()
    state = serializers.ChoiceField(health.STATES)


class HealthSerializer(serializers.Serializer[Any]):
    """How well something is, from open faults, checks and the agent's silence; the worst cause first."""

    state = serializers.ChoiceField(health.STATES)
    causes = CauseSerializer(many=True)


def _health_of(serializer: serializers.BaseSerializer[Any], node: Node, page: Callable[[Any], Node]) -> NodeHealth:
    """The node's health, asked for once for all rows of the page that the serializer is at; ``page``: a row's node."""
    context = cast("dict[str, Any]", serializer.context)  # the root's, which all of its fields share
    held: dict[int, NodeHealth] = context.setdefault("health_of", {})
    if node.pk not in held:
        many = serializer.parent
        rows = many.instance if isinstance(many, serializers.ListSerializer) else None
        nodes = {one.pk: one for one in (map(page, rows) if rows is not None else (node,))}
        held.update(incidents.health_of(list(nodes.values()), now=timezone.now()))
    return held[node.pk]


class NodeSerializer(serializers.ModelSerializer[Node]):
    """A node, with the one word for its state, its open faults and its open rescue."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    state = serializers.SerializerMethodField()
    cordoned = serializers.BooleanField(source="unschedulable", read_only=True)
    agent = AgentSerializer(read_only=True, allow_null=True)
    faults = serializers.IntegerField(read_only=True, help_text="open incidents that are faults of the node")
    rescue = serializers.IntegerField(read_only=True, allow_null=True, help_text="the open rescue's id")
    health = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = (
            "id",
            "cluster",
            "name",
            "state",
            "health",
            "known",
            "ready",
            "ready_since",
            "cordoned",
            "pool",
            "model",
            "gpus",
            "faults",
            "rescue",
            "labels",
            "taints",
            "conditions",
            "marks",
            "driver",
            "kernel",
            "kubelet",
            "address",
            "boot_id",
            "agent",
            "created_at",
            "synced_at",
            "gone_at",
        )

    def get_state(self, node: Any) -> NodeState:
        """The first that holds; the filter ``state`` finds nodes for which it holds at all."""
        holds: dict[NodeState, bool] = {
            "gone": node.gone_at is not None,
            "rescue": node.rescue is not None,
            "faulty": node.faults > 0,
            "unknown": not node.known,
            "not-ready": not node.ready,
            "cordoned": node.unschedulable,
        }
        return next((state for state, held in holds.items() if held), "healthy")

    @extend_schema_field(HealthSerializer)
    def get_health(self, node: Any) -> Any:
        """Beside ``state``, which is one word for all that is going on."""
        return HealthSerializer(_health_of(self, node, lambda row: row).node).data


class GpuSerializer(serializers.ModelSerializer[Gpu]):
    """A GPU of a node's last inventory."""

    cluster = serializers.CharField(source="node.cluster.name", read_only=True)
    node = serializers.CharField(source="node.name", read_only=True)
    health = serializers.SerializerMethodField()

    class Meta:
        model = Gpu
        fields = ("id", "uuid", "cluster", "node", "index", "pci", "model", "serial", "health", "seen_at")

    @extend_schema_field(HealthSerializer)
    def get_health(self, gpu: Any) -> Any:
        """What names this GPU; of a node that is not heard of nothing is known."""
        return HealthSerializer(_health_of(self, gpu.node, lambda row: row.node).gpus[gpu.pk]).data


class ClusterFilter(filters.FilterSet):
    """Clusters by mode."""

    mode = filters.MultipleChoiceFilter(choices=Mode.choices, label=_("Mode"))
    q = filters.CharFilter(field_name="name", lookup_expr="icontains", label=_("Search"))

    class Meta:
        model = Cluster
        fields: tuple[str, ...] = ()


class ClusterBody(base.Strict):
    """Settings to change; what is left out stays."""

    mode = serializers.ChoiceField(Mode.choices, required=False)
    decision_mode = serializers.ChoiceField(Cluster.DecisionMode.choices, required=False)
    drills = serializers.ChoiceField(Cluster.Drills.choices, required=False)
    reboot = serializers.ChoiceField(Cluster.Reboot.choices, required=False)
    job_image = serializers.CharField(required=False, max_length=300)
    job_namespace = serializers.RegexField(NAMESPACE, required=False, max_length=63)
    event_namespace = serializers.RegexField(NAMESPACE, required=False, max_length=63)
    ready_within = serializers.IntegerField(required=False, min_value=60, max_value=86_400)
    decision_url = serializers.URLField(required=False, allow_blank=True, max_length=500)
    decision_secret = serializers.CharField(required=False, allow_blank=True, max_length=200)
    decision_timeout = serializers.IntegerField(required=False, min_value=1, max_value=30)
    decision_fallback = serializers.ChoiceField(Cluster.Fallback.choices, required=False)
    autopilot_labels = serializers.BooleanField(required=False)
    preflight_within = serializers.IntegerField(required=False, min_value=60, max_value=86_400)
    storage_class = serializers.RegexField(
        OBJECT_NAME,
        required=False,
        allow_blank=True,
        max_length=253,
        error_messages={"invalid": "Write the name of a storage class: a-z, 0-9, '-' and '.'."},
    )
    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.REASON)


# Where decisions go, and what runs with every right on a node.
ADMINS = frozenset(
    {"decision_url", "decision_secret", "decision_timeout", "decision_fallback", "reboot", "job_image", "job_namespace"}
)


class Clusters(base.Reads[Cluster]):
    """The clusters that the portal looks after."""

    queryset = Cluster.objects.all()
    serializer_class = ClusterSerializer
    filterset_class = ClusterFilter
    pagination_class = paging.ByName
    lookup_field = "name"
    cluster_field = "pk"

    @extend_schema(request=ClusterBody, responses={200: ClusterSerializer})
    def partial_update(self, request: Request, name: str) -> Response:
        """Changes the settings that are named, all or none; where decisions go takes an admin."""
        base.known_only(request)
        cluster = self.get_object()
        require(request, base.OPERATOR, cluster)
        body: dict[str, Any] = base.body_of(request, ClusterBody)
        reason = body.pop("reason", "")
        if ADMINS.intersection(body):
            require(request, base.ADMIN, cluster)
        try:
            bounds.set_cluster(
                cluster, body, actor=accounts.actor(principal(request)), reason=reason, now=timezone.now()
            )
        except bounds.Refused as error:
            raise exceptions.ValidationError({error.field: [str(error)]}) from error
        return Response(ClusterSerializer(cluster).data)


class Nodes(base.Reads[Node]):
    """Nodes, in the order in which they became known."""

    queryset = Node.objects.all()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    pagination_class = paging.Oldest

    def get_queryset(self) -> QuerySet[Node]:
        """With the counts that a node's state depends on, in the same query."""
        here = {"node": OuterRef("pk")}
        under_way = Rescue.objects.filter(**here, state__in=lifecycle.OPEN_RESCUE).values("pk")[:1]
        faults = Incident.objects.filter(**here, state=Incident.State.OPEN, program=False).order_by()
        count = faults.values("node").annotate(count=Count("pk")).values("count")
        rows = super().get_queryset().select_related("cluster", "agent")
        return rows.annotate(faults=Coalesce(Subquery(count), 0), rescue=Subquery(under_way))

    def get_object(self) -> Node:
        """The node by cluster and name."""
        return get_object_or_404(self.get_queryset(), cluster__name=self.kwargs["cluster"], name=self.kwargs["name"])


class Gpus(base.Lists[Gpu]):
    """GPUs as the agents last listed them."""

    queryset = Gpu.objects.select_related("node__cluster", "node__agent")
    serializer_class = GpuSerializer
    filterset_class = GpuFilter
    pagination_class = paging.Oldest
    cluster_field = "node__cluster"


class PlannedStepSerializer(serializers.Serializer[Any]):
    """A step that would be made."""

    name = serializers.CharField()
    args = serializers.DictField()


class PodSerializer(serializers.Serializer[Any]):
    """A pod that a drain would evict."""

    namespace = serializers.CharField()
    name = serializers.CharField()
    owner = serializers.CharField()


class PreviewSerializer(serializers.Serializer[Any]):
    """What an act would do, and what would hold it back."""

    dry_run = serializers.BooleanField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    verb = serializers.CharField()
    steps = PlannedStepSerializer(many=True)
    held_back = serializers.ListField(child=serializers.CharField())
    pods = PodSerializer(many=True, allow_null=True)
    plan_hash = serializers.CharField()


class ReasonBody(base.Strict):
    """Why somebody acts on a node by hand: it is what others read in the ledger later. A dry run needs none."""

    reason = serializers.CharField(
        max_length=base.REASON,
        error_messages={
            "required": "Say why: a reason is kept with every act by hand.",
            "blank": "Say why: a reason is kept with every act by hand.",
            "null": "Say why: a reason is kept with every act by hand.",
        },
    )


class NodeActBody(ReasonBody):
    """``override``: guards to pass over, by name; it takes the role approver and is on record."""

    override = serializers.ListField(
        child=serializers.ChoiceField(list(guards.GUARDS)), required=False, default=list, max_length=len(guards.GUARDS)
    )


class NodeAct(base.Acts):
    """Acts on one node: each opens a rescue, under the same guards as a policy's."""

    decision_systems = True

    @extend_schema(
        operation_id="nodes_act",
        parameters=[
            OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=VERBS),
            OpenApiParameter("dry_run", bool, description="answer with the plan and do nothing"),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=NodeActBody,
        responses={200: PreviewSerializer, 201: RescueSerializer},
    )
    def post(self, request: Request, cluster: str, name: str, verb: str) -> Response:
        """Opens the rescue (201), or with ``dry_run`` says what it would be (200)."""
        base.known_only(request, ("dry_run",))
        if verb not in VERBS:
            raise exceptions.NotFound(f"There is no act {verb}: use one of {', '.join(VERBS)}.")
        visible = accounts.clusters_of(principal(request))
        rows = Node.objects.select_related("cluster").filter(cluster__in=visible)
        node = get_object_or_404(rows, cluster__name=cluster, name=name)
        if base.flag(request, "dry_run"):
            base.body_of(request, base.Act)
            return self._preview(node, verb, by_person=isinstance(principal(request), User))
        require(request, base.OPERATOR, node.cluster)
        body = base.body_of(request, NodeActBody)
        if body["override"]:
            _require_override(request, node.cluster)
        return self._open(request, node, verb, reason=body["reason"], override=body["override"])

    def _preview(self, node: Node, verb: str, *, by_person: bool) -> Response:
        found = rescue.preview(node, verb, now=timezone.now(), by_person=by_person)
        return Response(
            {
                "dry_run": True,
                "cluster": node.cluster.name,
                "node": node.name,
                "verb": verb,
                "steps": found.steps,
                "held_back": found.held_back,
                "pods": found.pods,
                "plan_hash": found.plan_hash,
            }
        )

    @idempotency.once
    def _open(self, request: Request, node: Node, verb: str, *, reason: str, override: list[str]) -> Response:
        who = principal(request)
        opened = rescue.request(
            node,
            verb,
            actor=accounts.actor(who),
            reason=reason,
            now=timezone.now(),
            origin=Rescue.Origin.API.value if decides(request) else Rescue.Origin.MANUAL.value,
            override=override,
            by_person=isinstance(who, User),
        )
        where = reverse("api:rescue", kwargs={"pk": opened.pk}, request=request)
        return Response(RescueSerializer(detailed().get(pk=opened.pk)).data, status=201, headers={"Location": where})


def _require_override(request: Request, cluster: Cluster) -> None:
    """A person who approves, or a token that was made with the scope: nobody else passes over a guard."""
    who = principal(request)
    if isinstance(who, ApiToken) and "override" in who.scopes:
        return
    require(request, base.APPROVER, cluster)


class PauseBody(base.Strict):
    """Why, and where: no cluster means everything."""

    reason = serializers.CharField(max_length=base.REASON)
    cluster = serializers.CharField(required=False, allow_null=True, default=None)


class ResumeBody(PauseBody):
    """``mode``: how far automation may go from now on; without it, as far as before the pause."""

    mode = serializers.ChoiceField(Mode.choices, required=False, allow_null=True, default=None)

    def validate_mode(self, mode: str | None) -> str | None:
        """Going on in the mode ``paused`` would be none; raises ValidationError."""
        if mode == Mode.PAUSED:
            raise serializers.ValidationError("Write shadow, approve or enforce.")
        return mode


class ModeSerializer(serializers.Serializer[Any]):
    """The mode that holds now: the strictest of environment, installation and cluster."""

    cluster = serializers.CharField(allow_null=True)
    mode = serializers.ChoiceField(Mode.choices)
    reason = serializers.CharField()


KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


class Pause(base.Acts):
    """Stops every act before its next cluster call."""

    decision_systems = True  # nothing is let loose by it

    @extend_schema(operation_id="pause", parameters=[KEY], request=PauseBody, responses={200: ModeSerializer})
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Pauses one cluster, or everything."""
        body, cluster = _where(request, PauseBody)
        actor = accounts.actor(principal(request))
        services.pause(cluster=cluster, reason=body["reason"], actor=actor, now=timezone.now())
        return _mode(cluster)


class Resume(base.Acts):
    """Lets acts go on."""

    @extend_schema(operation_id="resume", parameters=[KEY], request=ResumeBody, responses={200: ModeSerializer})
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Resumes one cluster, or everything."""
        body, cluster = _where(request, ResumeBody)
        actor = accounts.actor(principal(request))
        services.resume(cluster=cluster, reason=body["reason"], actor=actor, now=timezone.now(), mode=body["mode"])
        return _mode(cluster)


def _where(request: Request, serializer: type[base.Strict]) -> tuple[dict[str, Any], Cluster | None]:
    """The body and its cluster, for a caller who may act there."""
    base.known_only(request)
    body = base.body_of(request, serializer)
    cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
    if cluster is None and not accounts.may(principal(request), base.OPERATOR, None):
        _point_to_clusters(request)
    require(request, base.OPERATOR, cluster)
    return body, cluster


def _point_to_clusters(request: Request) -> None:
    """Raises PermissionDenied that says how to do the same to the clusters where the caller may."""
    names = accounts.clusters_of(principal(request), base.OPERATOR).values_list("name", flat=True)
    if names:
        raise exceptions.PermissionDenied(
            f"Without a cluster this is about all of them and needs the role {base.OPERATOR} for all clusters; you may"
            f' name one in the body: {{"cluster": "{names[0]}", "reason": "..."}}.'
        )


def _mode(cluster: Cluster | None) -> Response:
    if cluster is None:
        whole = queries.installation()
        return Response({"cluster": None, "mode": whole.mode, "reason": whole.reason})
    cluster.refresh_from_db()
    mode, reason = queries.mode_of(cluster)
    return Response({"cluster": cluster.name, "mode": mode, "reason": reason})
