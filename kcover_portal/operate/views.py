"""/healthz, /readyz and /metrics."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from kcover_portal.operate import health
from kcover_portal.operate import metrics as exposition


@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Returns 200 while the process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """Returns 200 if every needed check is well, else 503; both with all findings."""
    found = health.findings(now=timezone.now())
    body = {finding.name: {"well": finding.well, "needed": finding.needed, "fact": finding.fact} for finding in found}
    return JsonResponse(body, status=200 if health.ready(found) else 503)


@require_safe
def metrics(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(exposition.render(), content_type=CONTENT_TYPE_LATEST)
