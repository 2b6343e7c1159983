"""The scope of an act: how requests name nodes, and what a scope contains now."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.nodes import scopes
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_scopes
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import scope_previews

MAX_NAME = 253  # characters


class ScopeBody(base.StrictSerializer):
    """Nodes of a cluster: one of ``nodes``, ``labels``, ``pools`` and ``domains``; the whole cluster without them."""

    nodes = serializers.ListField(
        child=serializers.CharField(max_length=MAX_NAME), required=False, max_length=scopes.MAX_NODES
    )
    labels = serializers.JSONField(
        required=False,
        help_text='a map, or selectors: {"zone": "z1"} or ["zone=z1", "gpu"]; a node matches all of them',
    )
    pools = serializers.ListField(
        child=serializers.CharField(max_length=MAX_NAME), required=False, max_length=scopes.MAX_VALUES
    )
    domains = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=MAX_NAME), max_length=scopes.MAX_VALUES),
        required=False,
        help_text='one of rack, leaf and nvlink with its values: {"rack": ["A-14"]}',
    )


class ScopePreviewBody(ScopeBody):
    """A scope of a cluster."""

    cluster = serializers.CharField(max_length=100)


class ScopePreviewSerializer(serializers.Serializer[scope_previews.ScopePreview]):
    """What a scope contains. ``jobs``: null if the cluster does not answer; ``unavailable`` says why.

    ``budgets``: how many disruption budgets allow no eviction from these nodes now; null if they cannot be read.
    ``headroom``: how many more nodes each guard allows now; a guard that limits nothing here is absent.
    """

    nodes = serializers.IntegerField()
    gpus = serializers.IntegerField()
    jobs = serializers.IntegerField(allow_null=True)
    budgets = serializers.IntegerField(allow_null=True)
    headroom = serializers.DictField(child=serializers.IntegerField())
    unknown = serializers.ListField(child=serializers.CharField())
    unavailable = serializers.SerializerMethodField()

    def get_unavailable(self, found: scope_previews.ScopePreview) -> str:
        return str(found.unavailable) if found.unavailable else ""


class ScopePreview(base.ActionView):
    """What a scope contains."""

    @extend_schema(operation_id="scopes_preview", request=ScopePreviewBody, responses={200: ScopePreviewSerializer})
    def post(self, request: Request) -> Response:
        """Counts the nodes, GPUs and jobs of a scope, and what the guards allow there. Changes nothing."""
        base.known_only(request)
        body = base.body_of(request, ScopePreviewBody)
        cluster, seen = visible_cluster(request, body["cluster"])
        scope = node_scopes.read(body)
        with base.place(request, concurrency_limits.CLUSTER_READS):
            found = scope_previews.preview(cluster, scope, seen, now=timezone.now())
        return Response(ScopePreviewSerializer(found).data)


def visible_cluster(request: Request, name: str) -> tuple[Cluster, accounts.Scope]:
    """Returns a cluster of which the caller sees at least a pool, and what the caller sees. Raises FieldError."""
    seen = accounts.scope(principal(request))
    cluster = seen.clusters().filter(name=name).first()
    if cluster is None:
        raise FieldError("cluster", reasons.of("unknown_cluster", cluster=short_text(name)))
    return cluster, seen


def given(body: dict[str, Any]) -> dict[str, Any]:
    """The keys of a request's body that name its scope."""
    return {kind: body[kind] for kind in scopes.KINDS if kind in body}


def selection(body: dict[str, Any]) -> scopes.Scope:
    """The scope of a request's body, which must not be the whole cluster. Raises FieldError."""
    scope = node_scopes.read(given(body))
    if not scope.kind:
        raise FieldError("nodes", reasons.of("scope_required", known=", ".join(scopes.KINDS)))
    return scope
