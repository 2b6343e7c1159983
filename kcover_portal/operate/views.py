"""/healthz, /readyz and /metrics."""

import hmac

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from kcover_portal.accounts.services import proxies
from kcover_portal.operate import health, metrics as exposition


@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Returns 200 while the process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Returns 200 if every needed check passes, else 503. The findings are for monitoring systems only."""
    found = health.findings(now=timezone.now())
    if not _is_monitor(request):
        return JsonResponse({}, status=200 if health.ready(found) else 503)
    body = {finding.name: {"well": finding.well, "needed": finding.needed, "fact": finding.fact} for finding in found}
    return JsonResponse(body, status=200 if health.ready(found) else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Returns the metrics, 403 for clients other than monitoring systems."""
    if not _is_monitor(request):
        text = "Not allowed from this address. See KCOVER_METRICS_NETWORKS and KCOVER_METRICS_TOKEN.\n"
        return HttpResponse(text, status=403, content_type="text/plain")
    return HttpResponse(exposition.render(), content_type=CONTENT_TYPE_LATEST)


def _is_monitor(request: HttpRequest) -> bool:
    """Returns whether the client is in one of the networks, or has the token."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.KCOVER_METRICS_TOKEN
    if wanted and scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), wanted.encode()):
        return True
    return proxies.is_within(proxies.client_address(request), settings.KCOVER_METRICS_NETWORKS, if_unknown=True)
