"""Changes to users, roles, tokens and agents' credentials. Every change is in the audit log."""

from kcover_portal.accounts.services.enrolment import InUse, enrol, enrol_proven
from kcover_portal.accounts.services.lookup import find_token, find_tokens
from kcover_portal.accounts.services.people import bind, make_user, set_password, unbind
from kcover_portal.accounts.services.renewal import (
    AT_MOST_EVERY,
    Bound,
    RenewedLately,
    begin_to_use,
    prune,
    renew,
    takes_over,
)
from kcover_portal.accounts.services.tokens import SCOPES, SHOWN, Refused, digest, make_token, revoke_token

__all__ = [
    "AT_MOST_EVERY",
    "SCOPES",
    "SHOWN",
    "Bound",
    "InUse",
    "Refused",
    "RenewedLately",
    "begin_to_use",
    "bind",
    "digest",
    "enrol",
    "enrol_proven",
    "find_token",
    "find_tokens",
    "make_token",
    "make_user",
    "prune",
    "renew",
    "revoke_token",
    "set_password",
    "takes_over",
    "unbind",
]
