"""Changes to users, their passwords and roles. Every change is in the audit log."""

from datetime import datetime

from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.db import transaction

from kcover import audit, reasons
from kcover.quote import short_repr
from kcover_portal.accounts.models import Role, RoleBinding, User
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger


def make_user(
    name: str, *, password: str, role: str, cluster: Cluster | None = None, created_by: str, now: datetime
) -> User:
    """Creates a user with a role in one cluster, or in all clusters without ``cluster``.

    Raises Refused if the name is taken or malformed, the role is unknown or the password is weak.
    """
    user = User(username=name)
    try:
        password_validation.validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        raise Refused(reasons.of("user_invalid", problem=" ".join(error.messages))) from error
    with transaction.atomic():
        user.save()
        bind(user, role, cluster=cluster, actor=created_by, now=now)
    return user


def bind(user: User, role: str, *, cluster: Cluster | None = None, actor: str, now: datetime) -> RoleBinding:
    """Gives the user this role; it replaces the role they had there. Raises Refused for an unknown role."""
    if role not in Role.values:
        raise Refused(reasons.of("role_unknown", role=short_repr(role), known=", ".join(Role.values)))
    with transaction.atomic():
        binding, _ = RoleBinding.objects.update_or_create(user=user, cluster=cluster, defaults={"role": role})
        entry = audit.RoleGiven(user=user.username, role=role)
        ledger.record(cluster.name if cluster else "", entry, actor=actor, now=now)
    return binding


def unbind(user: User, *, cluster: Cluster | None = None, actor: str, now: datetime) -> None:
    """Removes the user's role in the cluster, or the role in all clusters."""
    with transaction.atomic():
        for binding in RoleBinding.objects.filter(user=user, cluster=cluster):
            binding.delete()
            entry = audit.RoleTaken(user=user.username, role=binding.role)
            ledger.record(cluster.name if cluster else "", entry, actor=actor, now=now)


def set_password(user: User, password: str, *, actor: str, now: datetime) -> None:
    """Changes the password, which ends the user's sessions. Raises Refused for a weak password."""
    try:
        password_validation.validate_password(password, user)
    except ValidationError as error:
        raise Refused(reasons.of("user_invalid", problem=" ".join(error.messages))) from error
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        ledger.record("", audit.PasswordChanged(user=user.username), actor=actor, now=now)
