"""The door of decision systems: KCE's "create rescue action", with KCE's answers."""

from http import HTTPStatus

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import kce_actions
from kcover.decisions import guards
from kcover_portal import outgoing
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api import idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue


class AnswerSerializer(serializers.Serializer[None]):
    """KCE's answer: ``Success``, or ``Error`` with a message of one of three families."""

    code = serializers.ChoiceField(["Success", "Error"])
    message = serializers.CharField()
    rescueId = serializers.IntegerField(required=False)


class RescueActions(base.Acts):
    """Plans that a decision system asks for; the same guards as a policy's, one plan a node."""

    decision_systems = True

    @extend_schema(
        operation_id="rescue_actions_create",
        parameters=[
            OpenApiParameter("cluster", str, description="where the token is not bound to one"),
            OpenApiParameter("override", str, description="guards to pass over, with commas; needs the token's scope"),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=OpenApiTypes.OBJECT,
        responses={200: AnswerSerializer, 201: AnswerSerializer},
    )
    @idempotency.once
    def post(self, request: Request) -> Response:
        """201 with a new plan, 200 with the one that the very same request opened before; else KCE's error."""
        base.known_only(request, ("cluster", "override"))
        try:
            cluster = _cluster(request)
            require(request, base.OPERATOR, cluster)
            override = _override(request)
            asked = kce_actions.parse(request.data, now=timezone.now())
            node = (
                Node.objects.select_related("cluster").filter(cluster=cluster, name=asked.node, in_cluster=True).first()
            )
            if node is None:
                raise kce_actions.ParameterError(f"no such node {asked.node} in cluster {cluster.name}")
            made, new = services.request_plan(
                node,
                asked,
                actor=accounts.actor(principal(request)),
                payload=dict(request.data),
                now=timezone.now(),
                override=override,
            )
        except exceptions.ParseError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"Parameter error:the body is not JSON: {error.detail}")
        except kce_actions.ParameterError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"Parameter error:{error}")
        except (kce_actions.PreconditionError, services.Unmet) as error:
            return _error(HTTPStatus.CONFLICT, f"Failures to meet preconditions {error}")
        except services.LimitReached as error:
            return _error(HTTPStatus.TOO_MANY_REQUESTS, str(error))
        answer = {"code": "Success", "message": "Success", "rescueId": made.pk}
        return Response(answer, status=HTTPStatus.CREATED if new else HTTPStatus.OK)


class CallbackBody(base.Strict):
    """What became of the node that was handed over."""

    outcome = serializers.ChoiceField(["done", "failed"])
    message = serializers.CharField(required=False, allow_blank=True, max_length=500, default="")
    delivery = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=100,
        default="",
        help_text="as the call that gave the node away named it; needed once there was more than one",
    )


class Callback(base.Acts):
    """The word of a system that a node was handed to, signed with the cluster's secret.

    The signature is over the rescue's id, a newline and the body: a word about one rescue is none about another.
    """

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="rescues_callback",
        parameters=[OpenApiParameter(outgoing.SIGNATURE, str, OpenApiParameter.HEADER, required=True)],
        request=CallbackBody,
        responses={200: AnswerSerializer},
        auth=[],
    )
    def post(self, request: Request, pk: int) -> Response:
        """200 when the outcome is stored, also when repeated; 409 when the node is not with that system."""
        base.known_only(request)
        header, body = request.headers.get(outgoing.SIGNATURE, ""), request.body
        rescue = Rescue.objects.select_related("cluster", "node").filter(pk=pk).first()
        # One answer for an unknown rescue and for a wrong signature: whoever cannot sign learns nothing.
        if rescue is None or not outgoing.signed(rescue.cluster.decision_secret, f"{pk}\n".encode() + body, header):
            raise exceptions.PermissionDenied(
                f"{outgoing.SIGNATURE} must sign the rescue id, a newline and the body with the cluster's secret.",
                code="signature_invalid",
            )
        callback = base.body_of(request, CallbackBody)
        services.callback(
            rescue,
            callback["outcome"],
            now=timezone.now(),
            actor="external:callback",
            message=callback["message"],
            delivery=callback["delivery"],
        )
        return Response({"code": "Success", "message": "Success", "rescueId": rescue.pk})


def _cluster(request: Request) -> Cluster:
    """The token's cluster, or the one that the query names."""
    who = principal(request)
    named = request.query_params.getlist("cluster")
    bound = who.cluster if isinstance(who, ApiToken) else None
    if len(set(named)) > 1:
        raise kce_actions.ParameterError("cluster must be named once")
    if bound is not None:
        if named and named[0] != bound.name:
            raise kce_actions.ParameterError(f"cluster: this token is bound to {bound.name}")
        return bound
    if not named:
        raise kce_actions.ParameterError(
            "cluster must be named: add ?cluster=NAME, or use a token that is bound to one"
        )
    known = accounts.clusters_of(who)
    found = next(
        (cluster for cluster in known if cluster.name == named[0]), None
    )  # PostgreSQL takes no NUL in a question
    if found is None:
        raise kce_actions.ParameterError(f"no such cluster {named[0][:100]}")
    return found


def _override(request: Request) -> list[str]:
    """The guards to pass over. Raises ParameterError for what is none, or without the token's scope."""
    names = [name for name in request.query_params.get("override", "").split(",") if name]
    unknown = [name for name in names if name not in guards.GUARDS]
    if unknown:
        raise kce_actions.ParameterError(
            f"override: {unknown[0][:60]} is not a guard; use one of {', '.join(guards.GUARDS)}"
        )
    who = principal(request)
    if names and not (isinstance(who, ApiToken) and "override" in who.scopes):
        raise kce_actions.ParameterError("override: the token has no override scope")
    return names


def _error(status: HTTPStatus, message: str) -> Response:
    headers = {"Retry-After": "30"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return Response({"code": "Error", "message": message}, status=status, headers=headers)
