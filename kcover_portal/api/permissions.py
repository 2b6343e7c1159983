"""Permissions of REST requests, with the same roles and checks as the pages."""

from typing import Any

from rest_framework import exceptions, permissions
from rest_framework.request import Request

from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, Role
from kcover_portal.api.authentication import principal
from kcover_portal.fleet.models import Cluster


class RolePermission(permissions.BasePermission):
    """Lets everyone with any role read. Views check the role of an action themselves (``require``).

    A decision system can act only in views that set ``decision_systems``. It must not change or remove its own limits,
    whatever role its token has.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Returns False (401) for anonymous requests.

        Raises PermissionDenied for users and tokens without a role, and for decision systems in other views.
        """
        who = principal(request)
        if not isinstance(who, ApiToken) and not who.is_authenticated:
            return False
        if not queries.may_somewhere(who, Role.VIEWER):
            raise exceptions.PermissionDenied(
                "Your account has no role. Ask an administrator to assign one.", code="no_role"
            )
        acts = request.method not in permissions.SAFE_METHODS
        if acts and decides(request) and not getattr(view, "decision_systems", False):
            raise exceptions.PermissionDenied(
                "Decision system tokens cannot change safety limits. Use an operator token.",
                code="decision_system_token",
            )
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """Always True: querysets contain only rows of visible clusters."""
        return True


def decides(request: Request) -> bool:
    """Returns whether the request comes from a decision system."""
    who = principal(request)
    return isinstance(who, ApiToken) and who.kind == ApiToken.Kind.DECISION


def require(request: Request, role: str, cluster: Cluster | None) -> None:
    """Raises PermissionDenied, with the missing role and its scope, unless the caller has the role."""
    if not queries.may(principal(request), role, cluster):
        where = f"in cluster {cluster.name}" if cluster else "for all clusters"
        raise exceptions.PermissionDenied(f"Requires the role {role} {where}.", code="role_required")
