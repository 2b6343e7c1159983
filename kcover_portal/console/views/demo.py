"""The demo's button that injects a fault. It exists only if a simulator is configured."""

import logging
import secrets

import requests
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import forms
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.reads import fleet
from kcover_portal.fleet.models import Node

log = logging.getLogger(__name__)
REQUEST_TIMEOUT_SECONDS = 5


@require_POST
@signed_in
def inject(request: Request) -> HttpResponse:
    """Break a GPU of the given node or of a random healthy one, and redirect to its page."""
    if not settings.KCOVER_DEMO_URL:
        raise Http404
    form = forms.Inject(request.POST)
    node = _node(request, form.cleaned_data["node"]) if form.is_valid() else None
    if node is None:
        messages.error(request, _("Unknown node, or no healthy node is left."))
        return lead(request, reverse("console:overview"))
    require(request, Verb.REPAIR, node)
    gpu = form.cleaned_data["gpu"]
    if gpu is None:
        gpu = secrets.randbelow(max(node.gpus, 1))
    fault = {"node": node.name, "kind": "xid", "code": form.cleaned_data["code"], "gpu": gpu}
    try:
        answer = requests.post(f"{settings.KCOVER_DEMO_URL}/sim/faults", json=fault, timeout=REQUEST_TIMEOUT_SECONDS)
        answer.raise_for_status()
    except requests.RequestException as error:
        log.warning("the simulator did not accept the fault: %s", error)
        messages.error(request, _("The simulator rejected the fault: %(error)s") % {"error": error})
    else:
        messages.success(
            request,
            _("Xid %(code)s was written to the kernel log of %(node)s (GPU %(gpu)s). Follow the rescue on this page.")
            % fault,
        )
    return lead(request, reverse("console:node", args=(node.cluster.name, node.name)))


def _node(request: Request, name: str) -> Node | None:
    seen = accounts.scope(request.user, Verb.REPAIR)
    rows = seen.rows(Node.objects.filter(gone_at=None), node="").select_related("cluster")
    if name:
        return rows.filter(name=name).first()
    healthy = [tile.pk for tile in fleet.tiles(seen, now=timezone.now()) if tile.state == "healthy" and tile.gpus]
    return rows.filter(pk=secrets.choice(healthy)).first() if healthy else None
