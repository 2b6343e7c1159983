"""The view of ``/status``."""

import json
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import renderers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from kcover import reasons
from kcover.checks import autopilot
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.status import params, responses
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun

ADDRESS = re.compile(r"https?://[A-Za-z0-9.\-:\[\]]{1,300}/status")
RETRY_AFTER = 5  # seconds, if too many callers wait already


class Text(renderers.BaseRenderer):
    """Text in Autopilot's layout. Errors are problem documents nevertheless."""

    media_type = "text/plain"
    format = "txt"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Renders a problem document."""
        return json.dumps(data).encode()


class Status(base.ActionView):
    """Autopilot's on-demand checks."""

    acts_on_get = True
    renderer_classes = (Text, renderers.JSONRenderer)

    @extend_schema(
        operation_id="status",
        parameters=[
            OpenApiParameter("cluster", str, description="required unless the token is bound to a cluster"),
            OpenApiParameter("check", str, description=f"comma-separated: all, {', '.join(params.OFFERED)}"),
            OpenApiParameter(
                "host", str, description="comma-separated nodes; without host, job and nodelabel: all GPU nodes"
            ),
            OpenApiParameter("batch", int, description="nodes at a time; 0: all at once"),
            OpenApiParameter("job", str, description="namespace:key=value; selects the nodes of these pods"),
            OpenApiParameter("nodelabel", str, description="key=value"),
            OpenApiParameter("r", int, description="level of dcgm, 1 to 4"),
            OpenApiParameter(
                "pingnodes", str, description="comma-separated nodes to ping; default: each node's neighbours"
            ),
            OpenApiParameter("workload", str, enum=["ring"], description="iperf: the traffic pattern"),
            OpenApiParameter("pclients", int, description="iperf: concurrent clients per node, each with its own port"),
            OpenApiParameter("startport", int, description="iperf: the first of these ports"),
            OpenApiParameter(
                "plane",
                str,
                enum=list(check_runs.PLANES),
                description="iperf: data: the nodes' other interfaces; mgmt: InternalIP, one client; "
                "default: InternalIP, pclients clients",
            ),
            OpenApiParameter("serverspernode", int, description="iperf, plane=data: servers of a node; default: 8"),
            OpenApiParameter("clientsperiface", int, description="iperf, plane=data: streams to each server"),
            OpenApiParameter("cleanup", str, description="iperf: accepted without effect"),
            OpenApiParameter("storageclass", str, description="pvc: default: the cluster's storage_class"),
            OpenApiParameter(
                "wait",
                int,
                description=f"seconds to wait, at most {params.MAX_WAIT_SECONDS}; 0: only start",
            ),
        ],
        responses={(200, "text/plain"): OpenApiTypes.STR, (200, "application/json"): OpenApiTypes.OBJECT},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Runs checks on the nodes and streams the results. The run continues if the client disconnects.

        Requires a token with the role operator. Sessions are not accepted, because a link could otherwise start checks
        in the name of a signed-in person.
        """
        if not isinstance(request.auth, ApiToken):
            raise http_errors.Forbidden(reasons.of("token_required"))
        question = params.read(request)
        try:
            place = responses.ListenerSlot() if question.wait else None
        except responses.ListenersFull as error:
            busy = reasons.of("busy", count=responses.MAX_LISTENERS)
            raise http_errors.RetryAfter(busy, status=HTTPStatus.TOO_MANY_REQUESTS, retry_after=RETRY_AFTER) from error
        try:
            run = self._begin(request, question)
        except BaseException:
            if place is not None:
                place.give_back()
            raise
        status_url, same_checks = _same_checks(request, question)
        as_json = request.accepted_renderer.format == "json"
        answer = responses.StatusResponse(
            run=run,
            wait=question.wait,
            place=place,
            as_json=as_json,
            url_of=lambda node: f"{status_url}?{urlencode({'host': node, **same_checks}, safe=',')}",
            heading=question.heading,
            page=reverse("api:check-run", kwargs={"pk": run.pk}, request=request),
        )
        kind = "application/json" if as_json else "text/plain; charset=utf-8"
        return StreamingHttpResponse(
            answer, content_type=kind, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )

    def _begin(self, request: Request, question: params.StatusQuery) -> CheckRun:
        who = principal(request)
        return check_runs.begin(
            question.cluster,
            question.nodes,
            checks=question.checks,
            level=question.level,
            batch=question.batch,
            peers=question.peers,
            traffic=question.traffic,
            storage_class=question.storage_class,
            actor=accounts.actor(who),
            requester=CheckRun.Requester.PERSON if isinstance(who, User) else CheckRun.Requester.TOKEN,
            now=timezone.now(),
        )


def _same_checks(request: Request, question: params.StatusQuery) -> tuple[str, dict[str, Any]]:
    """The address that asks for the same checks, and the parameters beside the node.

    The port without a token tells its own address, which serves one cluster: scripts follow the ``url(s)``. A caller
    changes only the text of its own answer.
    """
    checks: dict[str, Any] = {"check": ",".join(question.checks)}
    if question.level != 1:
        checks["r"] = question.level
    told = request.headers.get(autopilot.ASKED_AT, "")
    if ADDRESS.fullmatch(told):
        return told, checks
    return reverse("api:status", request=request), {"cluster": question.cluster.name, **checks}
