"""The view of ``/status``."""

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, renderers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.status import params, responses
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun


class Text(renderers.BaseRenderer):
    """Autopilot's layout; a refusal is a problem document all the same."""

    media_type = "text/plain"
    format = "txt"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """A problem document."""
        return json.dumps(data).encode()


class Busy(exceptions.APIException):
    """So many listen already."""

    status_code = HTTPStatus.TOO_MANY_REQUESTS
    default_detail = (
        f"{responses.LISTENERS} callers wait for runs of checks here already, and nothing was asked of any node:"
        " try again in a moment, or add wait=0 and read the run later."
    )
    default_code = "busy"
    wait = 5  # DRF makes it the header Retry-After


class Status(base.Acts):
    """Autopilot's on-demand checks."""

    renderer_classes = (Text, renderers.JSONRenderer)

    @extend_schema(
        operation_id="status",
        parameters=[
            OpenApiParameter("cluster", str, description="where the token is not bound to one"),
            OpenApiParameter("check", str, description=f"with commas: all, {', '.join(params.OFFERED)}"),
            OpenApiParameter(
                "host", str, description="nodes, with commas; without host, job, nodelabel: all GPU nodes"
            ),
            OpenApiParameter("batch", int, description="nodes at a time; 0: all at once"),
            OpenApiParameter("job", str, description="namespace:key=value, the nodes on which such pods are"),
            OpenApiParameter("nodelabel", str, description="key=value"),
            OpenApiParameter("r", int, description="level of dcgm, 1 to 4"),
            OpenApiParameter(
                "pingnodes", str, description="nodes to ping, with commas; without: each node's neighbours"
            ),
            OpenApiParameter("workload", str, enum=["ring"], description="of iperf"),
            OpenApiParameter(
                "pclients", int, description="of iperf: clients of a node at a time, each to a port of its own"
            ),
            OpenApiParameter("startport", int, description="of iperf: the first of these ports"),
            OpenApiParameter("cleanup", str, description="of iperf: nothing is left to clean up, it changes nothing"),
            OpenApiParameter("storageclass", str, description="of pvc; without: the cluster's storage_class"),
            OpenApiParameter("wait", int, description=f"seconds to listen, at most {params.LONGEST_WAIT}; 0: just ask"),
        ],
        responses={(200, "text/plain"): OpenApiTypes.STR, (200, "application/json"): OpenApiTypes.OBJECT},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Runs checks on the nodes and says what came of it, node by node; the run goes on if nobody listens.

        Takes a token of the role operator: what a GET does here a link must not do in the name of a signed-in person.
        """
        if not isinstance(request.auth, ApiToken):
            raise exceptions.PermissionDenied(
                "Requires a token. In the browser, use the Checks page.", code="token_required"
            )
        question = params.read(request)
        try:
            place = responses.Place() if question.wait else None
        except responses.Full as error:
            raise Busy from error
        try:
            run = self._begin(request, question)
        except BaseException:
            if place is not None:
                place.give_back()
            raise
        here = reverse("api:status", request=request)
        alike = {"cluster": question.cluster.name, "check": ",".join(question.checks), "r": question.level}
        as_json = request.accepted_renderer.format == "json"
        answer = responses.Answer(
            run=run,
            wait=question.wait,
            place=place,
            as_json=as_json,
            url_of=lambda node: f"{here}?{urlencode({'host': node, **alike}, safe=',')}",
            page=reverse("api:check-run", kwargs={"pk": run.pk}, request=request),
        )
        kind = "application/json" if as_json else "text/plain; charset=utf-8"
        return StreamingHttpResponse(
            answer, content_type=kind, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )

    def _begin(self, request: Request, question: params.Question) -> CheckRun:
        return check_runs.begin(
            question.cluster,
            question.nodes,
            checks=question.checks,
            level=question.level,
            batch=question.batch,
            peers=question.peers,
            traffic=question.traffic,
            storage_class=question.storage_class,
            actor=accounts.actor(principal(request)),
            now=timezone.now(),
        )
