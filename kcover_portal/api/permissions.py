"""Who may do what over REST: the same roles, from the same check, as on the pages."""

from typing import Any

from rest_framework import exceptions, permissions
from rest_framework.request import Request

from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, Role
from kcover_portal.api.authentication import principal
from kcover_portal.fleet.models import Cluster


class RolePermission(permissions.BasePermission):
    """Everyone with a role somewhere may read; a view's acts ask for their role themselves (``require``).

    A decision system acts only where a view says so (``decision_systems``): it does not set, end or vouch away what
    bounds it, whatever role its token has.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Refuses (401) nobody in particular, and (403) people and tokens without a role, and decision systems' acts
        outside their doors."""
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
        """Rows of clusters that one may not see are not found in the first place."""
        return True


def decides(request: Request) -> bool:
    """Whether a decision system is asking."""
    who = principal(request)
    return isinstance(who, ApiToken) and who.kind == ApiToken.Kind.DECISION


def require(request: Request, role: str, cluster: Cluster | None) -> None:
    """Raises PermissionDenied that names the missing role and where it is missing."""
    if not queries.may(principal(request), role, cluster):
        where = f"in cluster {cluster.name}" if cluster else "for all clusters"
        raise exceptions.PermissionDenied(f"Requires the role {role} {where}.", code="role_required")
