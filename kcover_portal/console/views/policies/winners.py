"""Which rule wins: faults against groups of nodes, over all active policies."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from kcover.faults import fault
from kcover_portal.console import fault_names
from kcover_portal.console.access import Request, place, signed_in
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import policy_tries, policy_winners

FIELDS = ("kind", "code", "pool", "node")


@require_GET
@signed_in
def winners(request: Request) -> HttpResponse:
    """The table of winning rules, filtered by the query. A filter that names nothing says so."""
    asked = {name: request.GET.get(name, "").replace("\0", "").strip() for name in FIELDS}
    context = {
        "asked": asked,
        "kinds": [(kind, str(fault_names.KINDS.get(kind, kind))) for kind in fault.INCIDENT_KINDS],
        "days": policy_winners.SEEN_WITHIN.days,
    }
    try:
        node = policy_tries.find_node(request.user, asked["node"]) if asked["node"] else None
    except FieldError as error:
        context |= {"wrong": "node", "refused": localization.say(error.reason)}
        return render(request, "console/pages/policy_winners.html", context)
    is_known = asked["kind"] in ("", *fault.INCIDENT_KINDS)
    if is_known and policy_winners.is_code(asked["kind"], asked["code"]):
        with place(request, concurrency_limits.VALIDATIONS):
            context["found"] = policy_winners.winners(
                request.user,
                now=timezone.now(),
                kind=asked["kind"],
                code=asked["code"],
                pool=asked["pool"],
                node=node,
            )
    else:
        context["wrong"] = "code" if is_known else "kind"
    return render(request, "console/pages/policy_winners.html", context)
