"""Permissions of REST requests, with the same roles and checks as the pages."""

from collections.abc import Iterable
from typing import Any, cast

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from rest_framework import permissions
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, Role, User, Verb
from kcover_portal.accounts.services import step_up as freshness
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.fleet.models import Node

ANYWHERE = "anywhere"
CHECKED = "rights_checked"  # attribute of a request
Right = list[Any]  # [verb, cluster id | None (all clusters) | ANYWHERE, node id if it is about one]; kept as JSON


class RolePermission(permissions.BasePermission):
    """Lets everyone with any role read. Views check the role of an action themselves (``require``).

    A decision system can act only in views that set ``decision_systems``. It must not change or remove its own limits,
    whatever role its token has. A view whose GET acts sets ``acts_on_get``.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Returns False (401) for anonymous requests.

        Raises Forbidden for users and tokens without a role, and for decision systems in other views.
        """
        who = principal(request)
        if not isinstance(who, ApiToken) and not who.is_authenticated:
            return False
        if not queries.may_somewhere(who, Role.VIEWER):
            raise http_errors.Forbidden(reasons.of("no_role"))
        acts = request.method not in permissions.SAFE_METHODS or getattr(view, "acts_on_get", False)
        if acts and decides(request) and not getattr(view, "decision_systems", False):
            raise http_errors.Forbidden(reasons.of("decision_system_token"))
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """Always True: querysets contain only rows of visible clusters."""
        return True


class DocsPermission(permissions.BasePermission):
    """Lets read the API documentation as ``KCOVER_API_DOCS`` says."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Returns False (401) for anonymous requests. Raises NotFound if the documentation is off."""
        if settings.KCOVER_API_DOCS == "off":
            raise http_errors.NotFound(reasons.of("not_found"))
        who = principal(request)
        return settings.KCOVER_API_DOCS == "public" or isinstance(who, ApiToken) or who.is_authenticated


def decides(request: Request) -> bool:
    """Returns whether the request comes from a decision system."""
    who = principal(request)
    return isinstance(who, ApiToken) and who.kind == ApiToken.Kind.DECISION


def require(request: Request, needed: str, place: queries.Place) -> None:
    """Raises Forbidden, naming a role and its scope, unless the caller holds the verb or role in the place."""
    if not queries.may(principal(request), needed, place):
        cluster = place.cluster if isinstance(place, Node) else place
        where = reasons.of("in_cluster", cluster=cluster.name) if cluster else reasons.of("in_all_clusters")
        raise http_errors.Forbidden(reasons.of("role_required", role=queries.role_with(needed), where=where))
    if isinstance(place, Node):
        _note(request, needed, place.cluster_id, place.pk)
    else:
        _note(request, needed, place.pk if place else None)


def require_somewhere(request: Request, needed: str) -> None:
    """Raises Forbidden unless the caller holds the verb or role in any place."""
    if not queries.may_somewhere(principal(request), needed):
        where = reasons.of("in_any_cluster")
        raise http_errors.Forbidden(reasons.of("role_required", role=queries.role_with(needed), where=where))
    _note(request, needed, ANYWHERE)


def require_override(request: Request, place: queries.Place) -> None:
    """Raises Forbidden unless the caller is an approver of the place or a token with the scope ``override``."""
    who = principal(request)
    if not (isinstance(who, ApiToken) and queries.may_override(who, place)):
        require(request, Verb.OVERRIDE, place)


def step_up(request: Request) -> None:
    """Raises Forbidden unless the person has just given a second factor, if they have or need one. Tokens pass."""
    who = principal(request)
    if not isinstance(who, User):
        return
    match freshness.due(who, request.session, now=timezone.now()):
        case freshness.RequiredConfirmation.FACTOR:
            path, span = reverse("api:account-step-up"), reasons.span(freshness.STEP_UP_LIFETIME)
            raise http_errors.Forbidden(reasons.of("step_up_required", path=path, span=span))
        case freshness.RequiredConfirmation.ENROLMENT:
            raise http_errors.Forbidden(reasons.of("second_factor_missing", page=reverse("console:factor-new")))


def rights_of(request: Request) -> list[Right]:
    """Returns the rights that this request was checked for so far."""
    return cast("list[Right]", vars(request).get(CHECKED, []))


def require_again(request: Request, rights: Iterable[Right]) -> None:
    """Checks the rights of an earlier request of the same caller by today's roles.

    Raises NotFound for a cluster or node that the caller cannot see any more, Forbidden for a missing verb.
    """
    for needed, where, *node in rights:
        if where == ANYWHERE:
            require_somewhere(request, needed)
            continue
        place: queries.Place = None
        if node:
            place = (
                queries.visible(principal(request), Node.objects.select_related("cluster"), node="")
                .filter(pk=node[0])
                .first()
            )
        elif where is not None:
            place = queries.clusters_of(principal(request)).filter(pk=where).first()
        if place is None and where is not None:
            raise http_errors.NotFound(reasons.of("not_found"))
        require(request, needed, place)


def _note(request: Request, *right: int | str | None) -> None:
    vars(request).setdefault(CHECKED, []).append(list(right))
