"""Changes to users and their passwords. Every change is in the audit log."""

import logging
from datetime import datetime

from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import account_names, failed_attempts, roles, sessions, throttle, user_errors
from kcover_portal.accounts.services.password_hasher import TooManyHashes
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib.errors import FieldError

log = logging.getLogger(__name__)


def make_user(
    name: str,
    *,
    password: str,
    role: str,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    created_by: str,
    now: datetime,
) -> User:
    """Creates a user with a role in one pool of a cluster, in one cluster, or in all clusters without ``cluster``.

    Raises Refused if the name is taken, malformed or like another one, if the password is weak, or if ``roles.bind``
    refuses the role.
    """
    user = User(username=name)
    if refused := account_names.refusal(name):
        raise Refused(refused)
    try:
        password_validation.validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        raise Refused(user_errors.reason_of(error, name)) from error
    with transaction.atomic():
        user.save()
        roles.bind(user, role, cluster=cluster, pool=pool, giver=giver, actor=created_by, now=now)
    return user


def set_password(user: User, password: str, *, actor: str, now: datetime, keep_session: str = "") -> None:
    """Changes the password, which ends the user's sessions.

    The session with the key ``keep_session`` stays, if the caller stores the new hash in it
    (``update_session_auth_hash``). Raises Refused for a weak password.
    """
    try:
        password_validation.validate_password(password, user)
    except ValidationError as error:
        raise Refused(user_errors.reason_of(error, user.username)) from error
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        sessions.forget(user, keep=keep_session)
        ledger.record("", audit.PasswordChanged(user=user.username), actor=actor, now=now)
    log.info("%s: user %s, by %s", audit.PasswordChanged.VERB, user.username, actor)


@sensitive_variables("old", "new")
def change_own_password(user: User, *, old: str, new: str, address: str, now: datetime, keep_session: str = "") -> None:
    """Changes the password of a signed-in person, who gives the old one. See ``set_password``.

    Raises FieldError for ``old_password`` or ``new_password``, Refused for a weak password, Throttled and
    TooManyHashes.
    """
    check_own_password(user, old, field="old_password", address=address, now=now)
    if new == old:
        raise FieldError("new_password", reasons.of("password_unchanged"))
    set_password(user, new, actor=queries.actor(user), now=now, keep_session=keep_session)


@sensitive_variables("password")
def check_own_password(user: User, password: str, *, field: str, address: str, now: datetime) -> None:
    """Checks the password that a signed-in person gives again.

    Raises FieldError for ``field`` if it is wrong, Throttled and TooManyHashes.
    """
    attempt = throttle.of_password_change(user)
    try:
        throttle.charge(attempt, now=now)
    except throttle.Throttled:
        failed_attempts.note(audit.PasswordChangeFailed, user.username, address=address, refused=True, now=now)
        raise
    try:
        correct = user.check_password(password)
    except TooManyHashes:
        throttle.refund(attempt, now=now)
        raise
    if not correct:
        failed_attempts.note(audit.PasswordChangeFailed, user.username, address=address, refused=False, now=now)
        raise FieldError(field, reasons.of("old_password_wrong" if field == "old_password" else "password_wrong"))
    throttle.forgive(attempt, now=now)


def disable(user: User, *, actor: str, now: datetime, reason: str = "") -> None:
    """Disables the account: ends its sessions; nobody can sign in to it; its tokens are refused.

    Credentials of nodes stay valid: they belong to the cluster. Disabling it again changes nothing.
    """
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            return
        sessions.forget(user)
        ledger.record("", audit.UserDisabled(user=user.username, reason=reason), actor=actor, now=now)
    user.is_active = False
    log.info("%s: user %s, by %s", audit.UserDisabled.VERB, user.username, actor)


def enable(user: User, *, actor: str, now: datetime, reason: str = "") -> None:
    """Enables a disabled account. Its tokens are valid again; its sessions are not."""
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            return
        ledger.record("", audit.UserEnabled(user=user.username, reason=reason), actor=actor, now=now)
    user.is_active = True
    log.info("%s: user %s, by %s", audit.UserEnabled.VERB, user.username, actor)
