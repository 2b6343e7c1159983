"""Plans of pair tests, which preflight runs itself."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.nodes.scopes import Scope
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import idempotency, query_params
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base, scopes
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_scopes, scope_checks
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight.filtersets import PairPlanFilter
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_plans

OLDER_FIELDS = {"labels": "selector"}  # the field of an error, where ``selector`` names the labels


class PairTestSerializer(serializers.ModelSerializer[PairTest]):
    """A test of two nodes, or of one node alone in a validation. ``busbw``: GB/s by message size in bytes.

    ``confirms``: a suspect, after the rounds.

    ``proof``: hardware, or none if no GPU was measured; then ``because`` says why.
    """

    nodes = serializers.SerializerMethodField()
    proof = serializers.SerializerMethodField()
    because = serializers.SerializerMethodField()
    reasons = serializers.SerializerMethodField()

    class Meta:
        model = PairTest
        fields = (
            *("round", "nodes", "confirms", "state", "busbw", "best", "device", "proof"),
            *("because", "reasons", "begun_at", "finished_at"),
        )

    def get_nodes(self, row: PairTest) -> list[str]:
        """The names of both nodes, or of the only one."""
        return [node.name for node in row.nodes]

    def get_proof(self, row: PairTest) -> str:
        """Whether a GPU was measured."""
        return "hardware" if row.device else "none"

    def get_because(self, row: PairTest) -> list[str]:
        """The English sentence of why nothing was measured."""
        return [reasons.text(row.because)] if row.because else []

    def get_reasons(self, row: PairTest) -> list[dict[str, Any]]:
        """The same with codes and parameters."""
        return [dict(ReasonSerializer(reasons.from_json(row.because)).data)] if row.because else []


class PairVerdictSerializer(serializers.ModelSerializer[PairPlan]):
    """The verdict by ``rule``: nodes that are ``slow``, and those that are ``inconclusive``.

    ``fabric``: leaf switches behind which most nodes are slow. ``storm``: so many nodes are suspect at once that no
    fault is opened on any.
    """

    slow = serializers.ListField(child=serializers.CharField())
    fabric = serializers.ListField(child=serializers.CharField())
    inconclusive = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = PairPlan
        fields = ("rule", "slow", "fabric", "inconclusive", "storm")


class PairPlanSerializer(serializers.ModelSerializer[PairPlan]):
    """A plan. ``verdict``: null until it is finished, and if it was cancelled. ``rule``: validation, if one began it.

    ``limits``: of a validation, GB/s by NCCL test; null: the default. ``gpus`` 0: as many as the nodes of a test have.
    """

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    verdict = serializers.SerializerMethodField()

    class Meta:
        model = PairPlan
        fields = (
            *(
                "id",
                "cluster",
                "state",
                "rule",
                "rounds",
                "threshold",
                "limits",
                "gpus",
                "image",
                "busy_nodes",
                "reason",
            ),
            *("verdict", "requested_by", "requested_at", "finished_at"),
        )

    @extend_schema_field(PairVerdictSerializer(allow_null=True))
    def get_verdict(self, row: PairPlan) -> dict[str, Any] | None:
        """The verdict of a finished plan."""
        return dict(PairVerdictSerializer(row).data) if row.state == PairPlan.State.FINISHED else None


class PairPlanDetailSerializer(PairPlanSerializer):
    """A plan with the matrix of its tests, in the order in which they run."""

    matrix = PairTestSerializer(source="tests", many=True, read_only=True)

    class Meta(PairPlanSerializer.Meta):
        fields = (*PairPlanSerializer.Meta.fields, "matrix")  # type: ignore[assignment]


class PairPlanBody(scopes.ScopeBody):
    """A new plan for the nodes of a scope; without a selection, for all nodes with GPUs. At most 512 nodes.

    ``selector``: an older way to name one label, such as ``pool=a100``.
    """

    cluster = serializers.CharField(max_length=100)
    selector = serializers.CharField(max_length=400, required=False, allow_blank=True, default="")
    rounds = serializers.IntegerField(required=False, default=pair_plans.Wish().rounds)
    rule = serializers.CharField(max_length=20, required=False, default=pair_plans.Wish().rule)
    threshold = serializers.FloatField(required=False, default=pair_plans.THRESHOLD_GBPS, help_text="GB/s")
    busy_nodes = serializers.BooleanField(
        required=False, default=False, help_text="test nodes with other work too, as far as they have GPUs left"
    )
    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS, default="")


class PairPlannedSerializer(serializers.Serializer[Any]):
    """The plan that was requested. ``rounds``: the pairs of each round."""

    id = serializers.IntegerField()
    rounds = serializers.ListField(
        child=serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    )


class PairPlans(base.ReadViewSet[PairPlan]):
    """Plans of pair tests, newest first."""

    queryset = PairPlan.objects.select_related("cluster")
    node_field = None
    serializer_class = PairPlanSerializer
    filterset_class = PairPlanFilter

    @extend_schema(responses={200: PairPlanDetailSerializer})
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Returns a plan with its tests and, once it is finished, its verdict."""
        query_params.refuse_unknown(request, ())
        rows = self.get_queryset().prefetch_related("tests__first", "tests__second")
        return Response(PairPlanDetailSerializer(get_object_or_404(rows, pk=kwargs["pk"])).data)

    @extend_schema(request=PairPlanBody, responses={202: PairPlannedSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Requests pair tests. 409 if the mode forbids Jobs, there is no image, or too many plans are running."""
        base.known_only(request)
        body, who = base.body_of(request, PairPlanBody), principal(request)
        cluster = base.cluster_named(request, body["cluster"])
        require(request, Verb.CHECK, cluster)
        fields = OLDER_FIELDS if body["selector"] else scope_checks.SAME
        nodes = scope_checks.select_for_gpus(cluster, _scope(body), fields=fields)
        wish = pair_plans.Wish(**{name: body[name] for name in ("rounds", "rule", "threshold", "busy_nodes", "reason")})
        plan = pair_plans.begin(cluster, nodes, wish, actor=accounts.actor(who), now=timezone.now())
        pairs: dict[int, list[list[str]]] = {}
        for test in plan.tests.select_related("first", "second"):
            pairs.setdefault(test.round, []).append([test.first.name, test.second.name])
        return Response({"id": plan.pk, "rounds": list(pairs.values())}, status=202)


def _scope(body: dict[str, Any]) -> Scope:
    """The scope in the body, or that of its older field. Raises FieldError."""
    given = scopes.given(body)
    if not body["selector"]:
        return node_scopes.read(given)
    if given:
        raise FieldError("selector", reasons.of("pair_selection"))
    try:
        return node_scopes.read({"labels": body["selector"]})
    except FieldError as error:
        raise FieldError(OLDER_FIELDS[error.field], error.reason) from error


class Cancel(base.ActionView):
    """Cancels a plan of pair tests."""

    @extend_schema(
        operation_id="preflight_plans_cancel", request=base.ActSerializer, responses={200: PairPlanSerializer}
    )
    @idempotency.once
    def post(self, request: Request, pk: int) -> Response:
        """Ends the plan without a verdict, and its Jobs. 409 if it has ended."""
        base.known_only(request)
        who = principal(request)
        visible = accounts.visible(who, PairPlan.objects.select_related("cluster"), node=None)
        row = get_object_or_404(visible, pk=pk)
        require(request, Verb.CHECK, row.cluster)
        reason = base.body_of(request, base.ActSerializer)["reason"]
        pair_plans.cancel(row, actor=accounts.actor(who), reason=reason, now=timezone.now())
        return Response(PairPlanSerializer(visible.get(pk=pk)).data)
