"""Validations of nodes, and the profiles that name their checks."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.validation import profiles
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import http_errors, idempotency, query_params
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base, scopes
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.checks import queries
from kcover_portal.checks.filtersets import ValidationFilter
from kcover_portal.checks.models import CheckRun, ValidatedNode, Validation
from kcover_portal.checks.services import validation_profiles, validations
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import scope_checks
from kcover_portal.lib.errors import FieldError


class ProfileSerializer(serializers.Serializer[Any]):
    """A validation profile. ``built_in``: no admin has changed it. ``time_limit``: seconds for a node's answer."""

    name = serializers.ChoiceField(list(profiles.DEFAULTS))
    built_in = serializers.BooleanField()
    checks = serializers.ListField(child=serializers.DictField(), help_text="check, its arguments, and required")
    probes = serializers.ListField(child=serializers.CharField())
    time_limit = serializers.IntegerField()


class Profiles(base.ActionView):
    """The validation profiles."""

    @extend_schema(operation_id="profiles_list", responses={200: ProfileSerializer(many=True)})
    def get(self, request: Request) -> Response:
        """Lists the profiles, the shortest first."""
        base.known_only(request)
        return Response([_shown(name, profile) for name, profile in validation_profiles.in_force().items()])


class Profile(base.ActionView):
    """One validation profile."""

    @extend_schema(operation_id="profiles_read", responses={200: ProfileSerializer})
    def get(self, request: Request, name: str) -> Response:
        """Returns the profile."""
        base.known_only(request)
        return Response(_shown(name, _profile(name)))

    @extend_schema(operation_id="profiles_replace", request=OpenApiTypes.OBJECT, responses={200: ProfileSerializer})
    def put(self, request: Request, name: str) -> Response:
        """Replaces the checks and probes. ``reason`` goes to the audit log. Requires an admin of all clusters."""
        base.known_only(request)
        _profile(name)
        require(request, Verb.CONFIGURE, None)
        if not isinstance(request.data, dict):
            raise FieldError("", reasons.of("not_an_object"))
        document = {key: value for key, value in request.data.items() if key != "reason"}
        reason = base.body_of_data({"reason": request.data.get("reason", "")}, base.ActSerializer)["reason"]
        step_up(request)
        return _changed(request, name, document, reason)

    @extend_schema(operation_id="profiles_reset", request=None, responses={200: ProfileSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """Goes back to the built-in profile. Requires an admin of all clusters."""
        base.known_only(request)
        _profile(name)
        require(request, Verb.CONFIGURE, None)
        step_up(request)
        return _changed(request, name, None, "")


class NodeVerdictSerializer(serializers.ModelSerializer[ValidatedNode]):
    """The verdict on a node. ``proof``: hardware, or none if nothing was measured.

    ``because`` has the English sentences of why it did not pass, ``reasons`` the codes with parameters.
    """

    node = serializers.CharField(source="node.name", read_only=True)
    because = serializers.ListField(child=serializers.CharField(), source="reasons", read_only=True)
    reasons = ReasonSerializer(many=True, read_only=True)

    class Meta:
        model = ValidatedNode
        fields = ("node", "state", "proof", "because", "reasons")


class ResultSerializer(serializers.Serializer[Any]):
    """One result. ``proof`` is none for a check that was skipped, that broke or that nobody answered.

    ``reported_by``: the node's agent, a job on the node, or a pair of nodes that measured together.
    ``busbw``: of an NCCL test, GB/s of bus bandwidth by message size in bytes; ``value`` is the highest.
    """

    node = serializers.CharField()
    check = serializers.CharField()
    device = serializers.CharField()
    status = serializers.ChoiceField(["pass", "warn", "fail", "error", "skipped"])
    value = serializers.FloatField(allow_null=True)
    unit = serializers.CharField()
    message = serializers.CharField()
    proof = serializers.ChoiceField(["hardware", "none"])
    reported_by = serializers.ChoiceField(["agent", "job", "pair"])
    busbw = serializers.DictField(child=serializers.FloatField(), required=False)


class ValidationSerializer(serializers.ModelSerializer[Validation]):
    """A validation. ``check_run``: the run of its checks, once it has begun. ``preflight_plan``: its NCCL tests."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    check_run = serializers.IntegerField(source="run_id", read_only=True, allow_null=True)
    preflight_plan = serializers.IntegerField(source="nccl_plan_id", read_only=True, allow_null=True)

    class Meta:
        model = Validation
        fields = (
            *("id", "cluster", "profile", "state", "reason", "check_run", "preflight_plan"),
            *("requested_by", "requested_at", "finished_at"),
        )


class ValidationDetailSerializer(ValidationSerializer):
    """A validation with the verdict on each node and all results."""

    nodes = NodeVerdictSerializer(many=True, read_only=True)
    results = serializers.SerializerMethodField()

    class Meta(ValidationSerializer.Meta):
        fields = (*ValidationSerializer.Meta.fields, "nodes", "results")  # type: ignore[assignment]

    def get_results(self, row: Validation) -> list[dict[str, Any]]:
        """Returns the results of all nodes, by node."""
        found = queries.validation_results(row)
        shown = [
            {"node": one.node.name, "check": result["name"], **result}
            for one in row.nodes.all()
            for result in found[one.pk]
        ]
        return list(ResultSerializer(shown, many=True).data)


class ValidationBody(scopes.ScopeBody):
    """A new validation of the nodes of a scope."""

    cluster = serializers.CharField(max_length=100)
    profile = serializers.CharField(max_length=16)
    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS, default="")


class AcceptedSerializer(serializers.Serializer[Any]):
    """The validation that was requested."""

    id = serializers.IntegerField()


class Validations(base.ReadViewSet[Validation]):
    """Validations, newest first."""

    queryset = Validation.objects.select_related("cluster")
    node_field = None
    serializer_class = ValidationSerializer
    filterset_class = ValidationFilter

    @extend_schema(responses={200: ValidationDetailSerializer})
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Returns a validation with its results so far."""
        query_params.refuse_unknown(request, ())
        rows = self.get_queryset().prefetch_related("nodes__node")
        return Response(ValidationDetailSerializer(get_object_or_404(rows, pk=kwargs["pk"])).data)

    @extend_schema(request=ValidationBody, responses={202: AcceptedSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Requests a validation. 409 if too many are open in the cluster."""
        base.known_only(request)
        body, who = base.body_of(request, ValidationBody), principal(request)
        cluster = base.cluster_named(request, body["cluster"])
        require(request, Verb.CHECK, cluster)
        nodes = list(scope_checks.select(cluster, scopes.selection(body)))
        row = validations.begin(
            cluster,
            nodes,
            profile=body["profile"],
            reason=body["reason"],
            actor=accounts.actor(who),
            requester=CheckRun.Requester.PERSON if isinstance(who, User) else CheckRun.Requester.TOKEN,
            now=timezone.now(),
        )
        return Response({"id": row.pk}, status=202)


class Cancel(base.ActionView):
    """Cancels a validation."""

    @extend_schema(operation_id="validations_cancel", request=base.ActSerializer, responses={200: ValidationSerializer})
    @idempotency.once
    def post(self, request: Request, pk: int) -> Response:
        """Withdraws the checks that have not begun. 409 if the validation has ended."""
        base.known_only(request)
        who = principal(request)
        visible = accounts.visible(who, Validation.objects.select_related("cluster"), node=None)
        row = get_object_or_404(visible, pk=pk)
        require(request, Verb.CHECK, row.cluster)
        reason = base.body_of(request, base.ActSerializer)["reason"]
        validations.cancel(row, actor=accounts.actor(who), reason=reason, now=timezone.now())
        return Response(ValidationSerializer(visible.get(pk=pk)).data)


def _profile(name: str) -> profiles.Profile:
    """Returns the profile. Raises NotFound for an unknown name."""
    try:
        return validation_profiles.named(name)
    except FieldError as error:
        raise http_errors.NotFound(error.reason) from error


def _changed(request: Request, name: str, document: dict[str, Any] | None, reason: str) -> Response:
    actor = accounts.actor(principal(request))
    validation_profiles.change(name, document, actor=actor, reason=reason, now=timezone.now())
    return Response(_shown(name, validation_profiles.named(name)))


def _shown(name: str, profile: profiles.Profile) -> dict[str, Any]:
    limit = int(profile.time_limit.total_seconds())
    built_in = profile == profiles.DEFAULTS[name]
    return {"name": name, "built_in": built_in, **profile.to_json(), "time_limit": limit}
