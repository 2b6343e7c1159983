"""The parameters that pages besides lists take; what else an address has is said on the page. Lists: ``list_query``."""

from collections.abc import Mapping
from typing import Final

from django.http import HttpRequest, QueryDict

from kcover_portal.console.list_query import ParameterProblem
from kcover_portal.shared_reads import parameters

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("node", "incident", "rescue", "repair", "part", "validation", "preflight-plan"), ()),
    **dict.fromkeys(("safety", "policies", "policy-packs", "sources", "system", "audit-sinks"), ()),
    **dict.fromkeys(("check-run", "preflight-run"), ("page",)),
    **dict.fromkeys(("scope-act", "scope-room"), ("cluster", "by", "which")),
    "access": ("agents",),
    "approvals": ("answered",),
    "jobs": ("q", "cluster", "namespace", "kind", "state", "sort", "page", "view"),
    "policy": ("revision",),
    "policy-diff": ("from", "to"),
    "policy-new": ("kind", "code"),
    "policy-winners": ("kind", "code", "pool", "node"),
    "reports": ("period", "from", "to", "cluster", "by"),
    "search": ("q",),
    "standbys": ("q", "cluster", "state", "view"),
}


def problems(request: HttpRequest) -> list[ParameterProblem]:
    """The parameters of the address that the page does not know; none for a page that is not in ``KNOWN``."""
    page = request.resolver_match.url_name if request.resolver_match else None
    return [] if page is None or page not in KNOWN else unknown_to(page, request.GET)


def unknown_to(page: str, given: QueryDict) -> list[ParameterProblem]:
    """The parameters that a page in ``KNOWN`` does not know."""
    known = KNOWN[page]
    return [
        ParameterProblem(name, ", ".join(given.getlist(name)), parameters.unknown(name, known))
        for name in given
        if name not in known
    ]
