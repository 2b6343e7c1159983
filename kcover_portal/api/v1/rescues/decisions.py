"""The endpoints for decision systems: KCE's "create rescue action", with KCE's responses."""

from http import HTTPStatus

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.decisions import guards
from kcover.plans import kce_actions
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib import outgoing
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue


class AnswerSerializer(serializers.Serializer[None]):
    """KCE's response: ``Success``, or ``Error`` with a message."""

    code = serializers.ChoiceField(["Success", "Error"])
    message = serializers.CharField()
    rescueId = serializers.IntegerField(required=False)


class RescueActions(base.ActionView):
    """Plans of decision systems. The guards are those of policies; a node has at most one plan."""

    decision_systems = True

    def handle_exception(self, exc: Exception) -> Response:
        """Returns KCE's response also to a request that is not read, such as one without a token."""
        found = super().handle_exception(exc)
        found.data = {"code": "Error", "message": found.data["detail"]}
        found.content_type = "application/json"
        return found

    @extend_schema(
        operation_id="rescue_actions_create",
        parameters=[
            OpenApiParameter("cluster", str, description="required unless the token is bound to a cluster"),
            OpenApiParameter(
                "override", str, description="comma-separated guards to override; requires the scope override"
            ),
            OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER),
        ],
        request=OpenApiTypes.OBJECT,
        responses={200: AnswerSerializer, 201: AnswerSerializer},
    )
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Creates a plan (201). Repeating the same request returns the existing plan (200)."""
        base.known_only(request, ("cluster", "override"))
        try:
            cluster = _cluster(request)
            require(request, Verb.REPAIR, cluster)
            override = _override(request, cluster)
            plan = kce_actions.parse(request.data, now=timezone.now(), on_drain_timeout=cluster.on_drain_timeout)
            node = (
                Node.objects.select_related("cluster").filter(cluster=cluster, name=plan.node, in_cluster=True).first()
            )
            if node is None:
                raise kce_actions.ParameterError(reasons.of("request_no_node", node=plan.node, cluster=cluster.name))
            opened, new = services.request_plan(
                node,
                plan,
                actor=accounts.actor(principal(request)),
                person=accounts.person(principal(request)),
                payload=dict(request.data),
                now=timezone.now(),
                override=override,
            )
        except http_errors.BadRequest as error:
            return _error(HTTPStatus.BAD_REQUEST, f"Parameter error:the body is not JSON: {error.reason}")
        except kce_actions.ParameterError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"Parameter error:{error}")
        except (kce_actions.PreconditionError, services.PreconditionFailed) as error:
            return _error(HTTPStatus.CONFLICT, f"Failures to meet preconditions {error}")
        except services.LimitReached as error:
            return _error(HTTPStatus.TOO_MANY_REQUESTS, str(error))
        answer = {"code": "Success", "message": "Success", "rescueId": opened.pk}
        return Response(answer, status=HTTPStatus.CREATED if new else HTTPStatus.OK)


class CallbackBody(base.StrictSerializer):
    """The result for a node that was handed over to another system."""

    outcome = serializers.ChoiceField(["done", "failed"])
    message = serializers.CharField(required=False, allow_blank=True, max_length=500, default="")
    delivery = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=100,
        default="",
        help_text="id from the call that handed the node over; required after more than one call",
    )


class Callback(base.ActionView):
    """The callback of a system that took over a node, signed with the cluster's secret.

    The signature covers the rescue's id, a newline and the body, so it is valid for one rescue only.
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
        """Stores the outcome (200, also if repeated). 409 if the node was not handed over."""
        base.known_only(request)
        header, body = request.headers.get(outgoing.SIGNATURE, ""), request.body
        rescue = Rescue.objects.select_related("cluster", "node").filter(pk=pk).first()
        # An unknown rescue and a wrong signature get the same response, so that others learn nothing.
        secrets = fleet.callback_secrets(rescue.cluster, now=timezone.now()) if rescue is not None else []
        signed = any(outgoing.signed(secret, f"{pk}\n".encode() + body, header) for secret in secrets)
        if rescue is None or not signed:
            raise http_errors.Forbidden(reasons.of("signature_invalid", header=outgoing.SIGNATURE))
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
    """Returns the token's cluster, or the one in the query."""
    who = principal(request)
    named = request.query_params.getlist("cluster")
    bound = who.cluster if isinstance(who, ApiToken) else None
    if len(set(named)) > 1:
        raise kce_actions.ParameterError(reasons.of("request_clusters"))
    if bound is not None:
        if named and named[0] != bound.name:
            raise kce_actions.ParameterError(reasons.of("request_other_cluster", cluster=bound.name))
        return bound
    if not named:
        raise kce_actions.ParameterError(reasons.of("request_cluster_missing"))
    known = accounts.clusters_of(who)
    found = next(
        (cluster for cluster in known if cluster.name == named[0]), None
    )  # compared here, because PostgreSQL rejects NUL in queries
    if found is None:
        raise kce_actions.ParameterError(reasons.of("request_no_cluster", cluster=named[0][:100]))
    return found


def _override(request: Request, cluster: Cluster) -> list[str]:
    """Returns the guards to pass over. Raises ParameterError for an unknown guard or a missing scope."""
    names = [name for name in request.query_params.get("override", "").split(",") if name]
    unknown = [name for name in names if name not in guards.GUARDS]
    if unknown:
        raise kce_actions.ParameterError(
            reasons.of("override_unknown", name=unknown[0][:60], names=", ".join(guards.GUARDS))
        )
    who = principal(request)
    if names and not (isinstance(who, ApiToken) and accounts.may_override(who, cluster)):
        raise kce_actions.ParameterError(reasons.of("override_scope"))
    return names


def _error(status: HTTPStatus, message: str) -> Response:
    headers = {"Retry-After": "30"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return Response({"code": "Error", "message": message}, status=status, headers=headers)
