"""The test of the stored access to a cluster."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.fleet.services import cluster_access
from kcover_portal.kube import port, rights
from kcover_portal.runtime.services import concurrency_limits


class NoFieldsBody(base.StrictSerializer):
    """An empty body."""


class RightSerializer(serializers.Serializer[port.Right]):
    """A right in the terms of RBAC. ``namespace``: "" for all namespaces, or a resource without one."""

    verb = serializers.CharField()
    group = serializers.CharField()
    resource = serializers.CharField()
    namespace = serializers.CharField()


class FeatureAccessSerializer(serializers.Serializer[cluster_access.FeatureAccess]):
    """A feature and its rights there. ``manifest``: the file of the repository that grants them.

    ``missing``: the rights that the account lacks; ``unknown``: those about which no answer came in time.
    """

    name = serializers.CharField(source="feature.name")
    title = serializers.CharField()
    need = serializers.ChoiceField([need.value for need in rights.Need], source="feature.need")
    state = serializers.ChoiceField([state.value for state in cluster_access.State])
    missing = RightSerializer(many=True)
    unknown = RightSerializer(many=True)
    manifest = serializers.CharField(source="feature.manifest")


class ClusterAccessSerializer(serializers.Serializer[cluster_access.Access]):
    """The access. ``unreachable``: why the cluster cannot be used, null if it answered; the rest is then empty.

    ``usable``: it answered, and all required rights are there. ``nodes``: null if the account may not list them.
    """

    unreachable = serializers.SerializerMethodField()
    unreachable_reason = ReasonSerializer(source="unreachable", allow_null=True)
    usable = serializers.BooleanField()
    version = serializers.CharField()
    nodes = serializers.IntegerField(allow_null=True)
    features = FeatureAccessSerializer(many=True)

    def get_unreachable(self, access: cluster_access.Access) -> str | None:
        """The English sentence."""
        return str(access.unreachable) if access.unreachable else None


class ClusterTest(base.ActionView):
    """The test of a registered cluster's access."""

    @extend_schema(operation_id="clusters_test", request=NoFieldsBody, responses={200: ClusterAccessSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Tests the stored access and its rights. Requires an admin of the cluster.

        The audit log records each test. Where the portal has an account for each process, only the rights of ``web``
        are tested. 429 while a test of the same caller is running.
        """
        base.known_only(request)
        base.body_of(request, NoFieldsBody)
        who = principal(request)
        cluster = get_object_or_404(accounts.clusters_of(who), name=name)
        require(request, Verb.CONFIGURE, cluster)
        with base.place(request, concurrency_limits.ACCESS_TESTS):
            access = cluster_access.test_and_record(cluster, actor=accounts.actor(who), now=timezone.now())
        return Response(ClusterAccessSerializer(access).data)
