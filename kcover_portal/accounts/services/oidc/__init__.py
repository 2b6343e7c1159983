"""Single sign-on with an OpenID Connect provider: the flow, the accounts, and the roles of groups."""

from kcover_portal.accounts.services.oidc.flow import (
    FLOW_LIFETIME as FLOW_LIFETIME,
    CompletedSignOn as CompletedSignOn,
    begin as begin,
    complete as complete,
    end_by_provider as end_by_provider,
    sign_out_address as sign_out_address,
)
from kcover_portal.accounts.services.oidc.groups import map_group as map_group, unmap_group as unmap_group
from kcover_portal.accounts.services.oidc.identities import (
    is_admin_by_hand as is_admin_by_hand,
    link as link,
    unlink as unlink,
)
from kcover_portal.accounts.services.oidc.problems import Busy as Busy, SignOnRefused as SignOnRefused
