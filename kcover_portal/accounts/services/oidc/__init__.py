"""Single sign-on with an OpenID Connect provider: the flow, the accounts, and the roles of groups."""

from kcover_portal.accounts.services.oidc.flow import (
    FLOW_LIFETIME,
    CompletedSignOn,
    begin,
    complete,
    end_by_provider,
    sign_out_address,
)
from kcover_portal.accounts.services.oidc.groups import map_group, unmap_group
from kcover_portal.accounts.services.oidc.identities import is_admin_by_hand, link, unlink
from kcover_portal.accounts.services.oidc.problems import Busy, SignOnRefused

__all__ = [
    "FLOW_LIFETIME",
    "Busy",
    "CompletedSignOn",
    "SignOnRefused",
    "begin",
    "complete",
    "end_by_provider",
    "is_admin_by_hand",
    "link",
    "map_group",
    "sign_out_address",
    "unlink",
    "unmap_group",
]
