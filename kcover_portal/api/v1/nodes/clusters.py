"""Clusters and their settings."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import django_filters as filters
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.policy import modes
from kcover.validation import profiles
from kcover.values.quote import short_repr
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import pagination
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base, deadlines
from kcover_portal.api.v1.masked_fields import MaskedTextField
from kcover_portal.api.v1.nodes import new_clusters
from kcover_portal.api.v1.nodes.cluster_tests import ClusterAccessSerializer
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.api.v1.rescues import changes
from kcover_portal.fleet.models import MAX_NCCL_EVERY, OBJECT_NAME, Cluster
from kcover_portal.fleet.services import pending_changes
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.models import Mode

NAMESPACE = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster; its credentials are never shown, and what may be a key in its ``decision_url`` is masked."""

    decision_url = MaskedTextField()
    watch_error = SentenceField()
    watch_error_reason = ReasonSerializer(source="watch_failure", read_only=True, allow_null=True)

    class Meta:
        model = Cluster
        fields = (
            "id",
            "name",
            "mode",
            "pause_reason",
            "acted_on_by",
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
            "preflight_namespaces",
            "preflight_labels",
            "nccl_image",
            "nccl_namespace",
            "nccl_resources",
            "nccl_every",
            "standby_tested",
            "storage_class",
            "topology",
            "hand_approval",
            "isolate_before_approval",
            "on_drain_timeout",
            "second_admin",
            "second_factor",
            "job_recovery",
            "action_lease",
            "acts_until",
            "lease_holder",
            "ledger_lease",
            "burn_in",
            "burn_in_profile",
            "gpu_hour_price",
            "lemon_repairs",
            "in_cluster",
            "version",
            "watched_at",
            "watch_error",
            "watch_error_reason",
            "created_at",
        )

    def to_representation(self, instance: Cluster) -> dict[str, Any]:
        """Leaves the error of the watch, which may name nodes, to people who see the whole cluster."""
        seen: accounts.Scope | None = self.context.get("scope")
        shown = super().to_representation(instance)
        return shown if seen is None or instance in seen else {**shown, "watch_error": "", "watch_error_reason": None}


class NewClusterSerializer(ClusterSerializer, new_clusters.AddedAccessMixin):
    """A cluster that was just added, and what its access allows."""

    class Meta:
        model = Cluster
        fields = (*ClusterSerializer.Meta.fields, "access")


class ClusterFilter(filters.FilterSet):
    """Clusters by mode."""

    mode = filters.MultipleChoiceFilter(choices=Mode.choices, label=_("Mode"))
    q = filters.CharFilter(field_name="name", lookup_expr="icontains", label=_("Search"))

    class Meta:
        model = Cluster
        fields: tuple[str, ...] = ()


class ClusterBody(base.StrictSerializer):
    """Settings to change; omitted settings stay unchanged."""

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
    preflight_within = deadlines.DeadlineField(required=False)
    preflight_namespaces = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=2000,
        help_text="namespaces whose PreflightReport objects count, separated by commas; *: all",
    )
    preflight_labels = serializers.BooleanField(required=False)
    nccl_image = serializers.CharField(required=False, allow_blank=True, max_length=300)
    nccl_namespace = serializers.RegexField(NAMESPACE, required=False, max_length=63)
    nccl_resources = serializers.CharField(
        required=False, allow_blank=True, max_length=500, help_text="of the Jobs of pair tests, such as rdma/hca=1"
    )
    nccl_every = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_NCCL_EVERY,
        help_text="hours between pair tests of the idle nodes; 0: none",
    )
    standby_tested = serializers.BooleanField(
        required=False, help_text="a standby is free only while its preflight gate is passed"
    )
    storage_class = serializers.CharField(required=False, allow_blank=True, max_length=253)
    topology = serializers.DictField(
        child=serializers.CharField(allow_blank=True, max_length=317),
        required=False,
        help_text="label keys by domain: rack, leaf, nvlink, pool",
    )
    hand_approval = serializers.ChoiceField(Cluster.HandApproval.choices, required=False)
    isolate_before_approval = serializers.BooleanField(
        required=False, help_text="in approve mode, nodes are isolated before a person is asked"
    )
    on_drain_timeout = serializers.ChoiceField(
        Cluster.OnDrainTimeout.choices,
        required=False,
        help_text="what follows when a drain has run out of time, for rules that do not say",
    )
    second_admin = serializers.BooleanField(required=False)
    second_factor = serializers.ChoiceField(Cluster.SecondFactor.choices, required=False)
    acted_on_by = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=120,
        help_text="another system that acts there; empty: none",
    )
    action_lease = serializers.BooleanField(
        required=False, help_text="act only while this portal holds the Lease kcover-lease/kcover-portal there"
    )
    ledger_lease = serializers.BooleanField(required=False)
    job_recovery = serializers.ChoiceField(Cluster.JobRecovery.choices, required=False)
    burn_in = serializers.ChoiceField(Cluster.BurnIn.choices, required=False)
    burn_in_profile = serializers.ChoiceField(tuple(profiles.DEFAULTS), required=False)
    lemon_repairs = serializers.BooleanField(
        required=False, help_text="the portal reports a repair of a node with four episodes of faults in 56 days"
    )
    gpu_hour_price = serializers.DecimalField(
        10, 4, required=False, allow_null=True, min_value=Decimal(0), help_text="null: not known"
    )
    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS)

    def validate_storage_class(self, name: str) -> str:
        """Rejects what is not the name of an object. Raises FieldError."""
        if name and not re.match(OBJECT_NAME, name):
            raise FieldError("storage_class", reasons.of("storage_class_invalid", value=short_repr(name)))
        return name


# Settings that require an admin: who decides, who reports, programs with full rights on a node, who sees which nodes,
# who approves.
ADMINS = frozenset(
    {
        *("decision_url", "decision_secret", "decision_timeout", "decision_fallback", "reboot", "job_image"),
        *("nccl_image", "nccl_namespace", "nccl_resources", "nccl_every", "standby_tested"),
        *(
            "job_namespace",
            "event_namespace",
            "preflight_namespaces",
            "topology",
            "hand_approval",
            "isolate_before_approval",
            "on_drain_timeout",
            "second_admin",
            "job_recovery",
        ),
        *("action_lease", "ledger_lease", "second_factor", "burn_in", "burn_in_profile"),
    }
)


class Clusters(base.ReadViewSet[Cluster]):
    """The clusters that the portal manages."""

    queryset = Cluster.objects.all()
    serializer_class = ClusterSerializer
    filterset_class = ClusterFilter
    pagination_class = pagination.ByName
    lookup_field = "name"
    cluster_field = "pk"
    node_field = None

    def get_queryset(self) -> QuerySet[Cluster]:
        """Returns the clusters of which the caller may see at least a pool."""
        if getattr(self, "swagger_fake_view", False):
            return Cluster.objects.none()
        return accounts.scope(principal(self.request)).clusters()

    def get_serializer_context(self) -> dict[str, Any]:
        """Adds what the caller sees."""
        return {**super().get_serializer_context(), "scope": accounts.scope(principal(self.request))}

    @extend_schema(
        parameters=[OpenApiParameter("dry_run", bool, description="test the access without adding the cluster")],
        request=new_clusters.NewClusterBody,
        responses={200: ClusterAccessSerializer, 201: NewClusterSerializer},
    )
    def create(self, request: Request) -> Response:
        """Tests the access and adds the cluster (201), or with ``dry_run`` only tests it (200).

        A cluster that cannot be reached is not added; missing rights are no obstacle. Requires an admin of all
        clusters. The audit log records each test. 429 while a test of the same caller is running.
        """
        base.known_only(request, ("dry_run",))
        require(request, Verb.CONFIGURE, None)
        step_up(request)
        if base.flag(request, "dry_run"):
            _row, access = new_clusters.tested(request)
            return Response(ClusterAccessSerializer(access).data)
        made, access = new_clusters.add(request)
        context = {**self.get_serializer_context(), "access": access}
        return Response(NewClusterSerializer(made, context=context).data, status=201)

    @extend_schema(request=ClusterBody, responses={200: ClusterSerializer, 202: changes.PendingChangeSerializer})
    def partial_update(self, request: Request, name: str) -> Response:
        """Changes the given settings, all or none. Decision and reboot settings require an admin.

        So does a less strict mode. Where the cluster asks for a second admin, such a change waits (202).
        """
        base.known_only(request)
        cluster = self.get_object()
        require(request, Verb.GUARD, cluster)
        body: dict[str, Any] = base.body_of(request, ClusterBody)
        reason = body.pop("reason", "")
        loosens = pending_changes.loosens_settings(cluster, body)
        if loosens or ADMINS.intersection(body):
            require(request, Verb.CONFIGURE, cluster)
        resumes = _resumes(cluster, body)
        if resumes:
            require(request, Verb.RESUME, cluster)
        if loosens or not _tightens(cluster, body):
            step_up(request)
        if loosens and pending_changes.needs_second(cluster):
            for name in set(body).difference(pending_changes.JUDGED):
                raise FieldError(name, reasons.of("change_apart", names=", ".join(pending_changes.JUDGED)))
            return changes.ask(request, cluster, "settings", body, reason=reason)
        pending_changes.change(
            cluster,
            pending_changes.SETTINGS,
            body,
            may_loosen=loosens,
            may_resume=resumes,
            actor=accounts.actor(principal(request)),
            reason=reason,
            now=timezone.now(),
        )
        return Response(ClusterSerializer(cluster).data)


def _resumes(cluster: Cluster, body: Mapping[str, Any]) -> bool:
    """Returns whether the change ends a pause."""
    return cluster.mode == Mode.PAUSED and body.get("mode", cluster.mode) != Mode.PAUSED


def _tightens(cluster: Cluster, body: Mapping[str, Any]) -> bool:
    """Returns whether the change only keeps the mode or makes it stricter. Such a change needs no confirmation."""
    wanted = body.get("mode", cluster.mode)
    return not body.keys() - {"mode"} and modes.MODES.index(wanted) <= modes.MODES.index(cluster.mode)
