"""Changes to users, roles, sessions, tokens and agents' credentials. Every change is in the audit log."""

from kcover_portal.accounts.services.enrolment import EnrolledOften, InUse, enrol, enrol_proven
from kcover_portal.accounts.services.lookup import WrongAddress, find_token, find_tokens
from kcover_portal.accounts.services.parked_names import UnknownNode
from kcover_portal.accounts.services.password_hasher import TooManyHashes
from kcover_portal.accounts.services.people import (
    change_own_password,
    disable,
    enable,
    make_user,
    set_password,
)
from kcover_portal.accounts.services.proxies import client_address
from kcover_portal.accounts.services.renewal import (
    AT_MOST_EVERY,
    Bound,
    RenewedLately,
    begin_to_use,
    prune,
    renew,
    takes_over,
)
from kcover_portal.accounts.services.roles import (
    Binding,
    bind,
    change_role,
    check_may_change,
    delete_role,
    known_roles,
    make_role,
    replace_bindings,
    unbind,
)
from kcover_portal.accounts.services.rotation import DEFAULT_OVERLAP, LONGEST_OVERLAP, may_rotate, rotate
from kcover_portal.accounts.services.sign_ins import (
    DEVICE_KEPT,
    PasswordsOff,
    check_passkey,
    check_password,
    device_cookie,
    device_of,
    sign_in,
    sign_out,
)
from kcover_portal.accounts.services.throttle import Throttled
from kcover_portal.accounts.services.tokens import (
    DEFAULT_LIFETIME,
    SCOPES,
    SHOWN,
    Later,
    Refused,
    default_expiry,
    digest,
    make_token,
    revoke_token,
)

__all__ = [
    "AT_MOST_EVERY",
    "DEFAULT_LIFETIME",
    "DEFAULT_OVERLAP",
    "DEVICE_KEPT",
    "LONGEST_OVERLAP",
    "SCOPES",
    "SHOWN",
    "Binding",
    "Bound",
    "EnrolledOften",
    "InUse",
    "Later",
    "PasswordsOff",
    "Refused",
    "RenewedLately",
    "Throttled",
    "TooManyHashes",
    "UnknownNode",
    "WrongAddress",
    "begin_to_use",
    "bind",
    "change_own_password",
    "change_role",
    "check_may_change",
    "check_passkey",
    "check_password",
    "client_address",
    "default_expiry",
    "delete_role",
    "device_cookie",
    "device_of",
    "digest",
    "disable",
    "enable",
    "enrol",
    "enrol_proven",
    "find_token",
    "find_tokens",
    "known_roles",
    "make_role",
    "make_token",
    "make_user",
    "may_rotate",
    "prune",
    "renew",
    "replace_bindings",
    "revoke_token",
    "rotate",
    "set_password",
    "sign_in",
    "sign_out",
    "takes_over",
    "unbind",
]
