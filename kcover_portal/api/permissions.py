"""Permissions of REST requests, with the same roles and checks as the pages."""

from typing import Any

from rest_framework import permissions
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, Role
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.fleet.models import Cluster


class RolePermission(permissions.BasePermission):
    """Lets everyone with any role read. Views check the role of an action themselves (``require``).

    A decision system can act only in views that set ``decision_systems``. It must not change or remove its own limits,
    whatever role its token has.
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
        acts = request.method not in permissions.SAFE_METHODS
        if acts and decides(request) and not getattr(view, "decision_systems", False):
            raise http_errors.Forbidden(reasons.of("decision_system_token"))
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """Always True: querysets contain only rows of visible clusters."""
        return True


def decides(request: Request) -> bool:
    """Returns whether the request comes from a decision system."""
    who = principal(request)
    return isinstance(who, ApiToken) and who.kind == ApiToken.Kind.DECISION


def require(request: Request, role: str, cluster: Cluster | None) -> None:
    """Raises Forbidden, with the missing role and its scope, unless the caller has the role."""
    if not queries.may(principal(request), role, cluster):
        where = reasons.of("in_cluster", cluster=cluster.name) if cluster else reasons.of("in_all_clusters")
        raise http_errors.Forbidden(reasons.of("role_required", role=role, where=where))
