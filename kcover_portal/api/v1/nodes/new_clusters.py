"""Adds a cluster, as the page does: its access is tested first. No answer contains the kubeconfig."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.nodes.cluster_tests import ClusterAccessSerializer
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_access, kubeconfig, registry
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.models import Mode
from kcover_portal.runtime.services import concurrency_limits


class NewClusterBody(base.StrictSerializer):
    """A new cluster: its name, and a kubeconfig or ``in_cluster``."""

    name = serializers.SlugField(max_length=100)
    kubeconfig = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        max_length=kubeconfig.MAX_BYTES,
        help_text="the output of kubectl config view --minify --flatten; stored encrypted and never shown",
    )
    context = serializers.CharField(  # type: ignore[assignment]  # a field, no attribute
        required=False, default="", allow_blank=True, max_length=253, help_text="empty: the current context"
    )
    in_cluster = serializers.BooleanField(
        required=False,
        default=False,
        help_text="the cluster that the portal runs in, by its service account, without a kubeconfig",
    )
    mode = serializers.ChoiceField(Mode.choices, required=False, default=Mode.SHADOW.value)

    def validate_mode(self, mode: str) -> str:
        """Rejects a pause, which needs a reason. Raises FieldError."""
        if mode == Mode.PAUSED:
            raise FieldError("mode", reasons.of("cluster_added_paused"))
        return mode


class AddedAccessMixin(serializers.Serializer[Cluster]):
    """The access of a cluster that was just added."""

    access = serializers.SerializerMethodField(help_text="the result of the test before it was added")

    @extend_schema_field(ClusterAccessSerializer)
    def get_access(self, _row: Cluster) -> Any:
        return ClusterAccessSerializer(self.context["access"]).data


def tested(request: Request) -> tuple[dict[str, Any], cluster_access.Access]:
    """Tests the access of the request's body, and writes the test to the audit log.

    Returns the fields of the new row, and the access. Raises FieldError, and RetryAfter while no place is free.
    """
    body = base.body_of(request, NewClusterBody)
    given: kubeconfig.Kubeconfig | None = None
    if taken := registry.name_taken(body["name"]):
        raise FieldError("name", taken, conflict=True)
    with base.place(request, concurrency_limits.ACCESS_TESTS):  # to parse a kubeconfig costs time, too
        if body["in_cluster"]:
            if objection := registry.inside_objection():
                raise FieldError("in_cluster", objection, conflict=True)
            if body["kubeconfig"]:
                raise FieldError("kubeconfig", reasons.of("cluster_access_twice"))
            access = cluster_access.test_inside()
        else:
            try:
                given = kubeconfig.read_pasted(body["kubeconfig"], context=body["context"])
            except kubeconfig.KubeconfigInvalid as error:
                raise FieldError("kubeconfig", error.reason) from error
            access = cluster_access.test_kubeconfig(given)
    cluster_access.record(
        body["name"],
        access,
        server=given.server if given else "",
        actor=accounts.actor(principal(request)),
        now=timezone.now(),
    )
    row = {
        "name": body["name"],
        "in_cluster": body["in_cluster"],
        "kubeconfig": given.text if given else "",
        "context": given.context if given else "",
        "mode": body["mode"],
    }
    return row, access


def add(request: Request) -> tuple[Cluster, cluster_access.Access]:
    """Tests the access and registers the cluster. Raises FieldError, also if the cluster cannot be reached."""
    row, access = tested(request)
    if access.unreachable is not None:
        raise FieldError("in_cluster" if row["in_cluster"] else "kubeconfig", access.unreachable)
    try:
        made = registry.add(actor=accounts.actor(principal(request)), now=timezone.now(), by_page=True, **row)
    except registry.ClusterRefused as error:
        raise FieldError("", reasons.of("cluster_not_added", why=str(error)), conflict=True) from error
    return made, access
