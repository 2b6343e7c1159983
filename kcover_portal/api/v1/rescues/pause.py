"""Pause and resume automation in one cluster or all."""

import json
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.rescues import changes
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import pauses, pending_changes
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Mode


class PauseBody(base.StrictSerializer):
    """The cluster; null means all clusters. The reason may follow later, with a second call."""

    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS, required=False, allow_blank=True, default="")
    cluster = serializers.CharField(required=False, allow_null=True, default=None)


class ResumeBody(PauseBody):
    """``mode``: the new mode; by default the mode before the pause. ``pause``: as in the answer to a pause; another
    pause is not ended (409).
    """

    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)
    mode = serializers.ChoiceField(Mode.choices, required=False, allow_null=True, default=None)
    pause = serializers.CharField(max_length=40, required=False, allow_blank=True, default="")

    def validate_mode(self, mode: str | None) -> str | None:
        """Rejects ``paused``. Raises FieldError."""
        if mode == Mode.PAUSED:
            raise FieldError("mode", reasons.of("resume_mode"))
        return mode


class ModeSerializer(serializers.Serializer[Any]):
    """The effective mode: the strictest of environment, installation and cluster."""

    cluster = serializers.CharField(allow_null=True)
    mode = serializers.ChoiceField(Mode.choices)
    reason = serializers.CharField()
    pause = serializers.CharField(help_text="names this mode and pause; give it to resume, so that no other one ends")


KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


class Pause(base.ActionView):
    """Pauses automation; no action makes another cluster call."""

    decision_systems = True  # a pause is always safe

    @extend_schema(operation_id="pause", parameters=[KEY], request=PauseBody, responses={200: ModeSerializer})
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Pauses one cluster or all."""
        body, cluster = _where(request, PauseBody, Verb.PAUSE)
        actor = accounts.actor(principal(request))
        services.pause(cluster=cluster, reason=body["reason"], actor=actor, now=timezone.now())
        return _mode(cluster)


class Resume(base.ActionView):
    """Resumes automation."""

    @extend_schema(
        operation_id="resume",
        parameters=[KEY],
        request=ResumeBody,
        responses={200: ModeSerializer, 202: changes.PendingChangeSerializer},
    )
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Resumes one cluster or all. A mode that is less strict than before the pause requires an admin.

        Where a cluster asks for a second admin, such a mode waits for one (202).
        """
        body, cluster = _where(request, ResumeBody, Verb.RESUME)
        step_up(request)
        loosens = pending_changes.loosens_mode(cluster or runtime.installation(), body["mode"])
        if loosens:
            require(request, Verb.CONFIGURE, cluster)
            if pending_changes.needs_second(cluster):
                return changes.ask(request, cluster, "resume", {"mode": body["mode"]}, reason=body["reason"])
        mode, reason, actor = body["mode"], body["reason"], accounts.actor(principal(request))
        told = {"actor": actor, "reason": reason, "seen": body["pause"]}
        pending_changes.resume(cluster, mode, may_loosen=loosens, now=timezone.now(), **told)
        return _mode(cluster)


def _where(
    request: Request, serializer: type[base.StrictSerializer], needed: str
) -> tuple[dict[str, Any], Cluster | None]:
    """Returns the body and its cluster. Raises Forbidden unless the caller holds the verb there."""
    base.known_only(request)
    body = base.body_of(request, serializer)
    cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
    if cluster is None and not accounts.may(principal(request), needed, None):
        _point_to_clusters(request, needed)
    require(request, needed, cluster)
    return body, cluster


def _point_to_clusters(request: Request, needed: str) -> None:
    """Raises Forbidden with a hint, if the caller holds the verb in some clusters."""
    names = accounts.clusters_of(principal(request), needed).values_list("name", flat=True)
    if names:
        example = json.dumps({"cluster": names[0], "reason": "..."})
        raise http_errors.Forbidden(
            reasons.of("role_for_all_clusters", role=accounts.role_with(needed), example=example)
        )


def _mode(cluster: Cluster | None) -> Response:
    if cluster is None:
        whole = runtime.installation()
        pause = pauses.seen(whole)
        return Response({"cluster": None, "mode": whole.mode, "reason": whole.reason, "pause": pause})
    cluster.refresh_from_db()
    mode, reason = queries.mode_of(cluster)
    pause = pauses.seen(cluster)
    return Response({"cluster": cluster.name, "mode": mode, "reason": reason, "pause": pause})
