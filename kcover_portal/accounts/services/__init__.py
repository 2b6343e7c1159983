"""Changes to users, roles, sessions, tokens and agents' credentials. Every change is in the audit log."""

from kcover_portal.accounts.services.enrolment import (
    EnrolledOften as EnrolledOften,
    InUse as InUse,
    enrol as enrol,
    enrol_proven as enrol_proven,
    enrol_together as enrol_together,
)
from kcover_portal.accounts.services.lookup import (
    WrongAddress as WrongAddress,
    find_token as find_token,
    find_tokens as find_tokens,
)
from kcover_portal.accounts.services.parked_names import UnknownNode as UnknownNode
from kcover_portal.accounts.services.password_hasher import TooManyHashes as TooManyHashes
from kcover_portal.accounts.services.people import (
    change_own_password as change_own_password,
    disable as disable,
    enable as enable,
    make_user as make_user,
    set_password as set_password,
)
from kcover_portal.accounts.services.proxies import client_address as client_address
from kcover_portal.accounts.services.renewal import (
    MIN_RENEWAL_INTERVAL as MIN_RENEWAL_INTERVAL,
    NotRenewable as NotRenewable,
    RenewedLately as RenewedLately,
    begin_to_use as begin_to_use,
    prune as prune,
    renew as renew,
    takes_over as takes_over,
)
from kcover_portal.accounts.services.roles import (
    Binding as Binding,
    bind as bind,
    change_role as change_role,
    check_may_change as check_may_change,
    delete_role as delete_role,
    known_roles as known_roles,
    make_role as make_role,
    replace_bindings as replace_bindings,
    unbind as unbind,
)
from kcover_portal.accounts.services.sign_ins import (
    DEVICE_RETENTION as DEVICE_RETENTION,
    PasswordsOff as PasswordsOff,
    check_passkey as check_passkey,
    check_password as check_password,
    device_cookie as device_cookie,
    device_of as device_of,
    sign_in as sign_in,
    sign_out as sign_out,
)
from kcover_portal.accounts.services.throttle import Throttled as Throttled, guesses as guesses
from kcover_portal.accounts.services.token_rotation import (
    DEFAULT_OVERLAP as DEFAULT_OVERLAP,
    MAX_OVERLAP as MAX_OVERLAP,
    may_rotate as may_rotate,
    rotate as rotate,
)
from kcover_portal.accounts.services.tokens import (
    DEFAULT_LIFETIME as DEFAULT_LIFETIME,
    SCOPES as SCOPES,
    SHOWN_CHARACTERS as SHOWN_CHARACTERS,
    OwnerWithoutRole as OwnerWithoutRole,
    Refused as Refused,
    RetryLater as RetryLater,
    check_owner as check_owner,
    default_expiry as default_expiry,
    digest as digest,
    make_token as make_token,
    revoke_token as revoke_token,
)
