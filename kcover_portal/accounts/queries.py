"""Permission checks, shared by pages, REST and sockets.

A user has the strongest role of the bindings that cover a cluster. A binding without a cluster covers all clusters.
Only such a binding covers the installation itself (policies, users, a pause of everything).
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.management import get_system_username
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet, prefetch_related_objects

from kcover import audit
from kcover_portal.accounts.models import ApiToken, Role, Session, TotpDevice, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import queries as ledger

Principal = User | ApiToken | AnonymousUser

USER = "user:"  # names of people begin with it
CONTROL_LASTS = timedelta(days=1)
# After these, whoever did them can use the account that they are about.
CONTROL_VERBS = (audit.PasswordChanged.VERB, audit.RoleGiven.VERB, audit.RoleTaken.VERB, audit.UserEnabled.VERB)

ROLES: tuple[str, ...] = tuple(Role.values)  # weakest first

# The roles of programs' tokens. Agent tokens have no role, because they are accepted only by the agent endpoints.
TOKEN_ROLES = {
    ApiToken.Kind.VIEWER.value: Role.VIEWER.value,
    ApiToken.Kind.OPERATOR.value: Role.OPERATOR.value,
    ApiToken.Kind.DECISION.value: Role.OPERATOR.value,
}


def may(who: Principal, role: str, cluster: Cluster | None) -> bool:
    """Returns whether the user or token has at least this role in the cluster; None means the whole installation."""
    return _reaches(role, [held for held, where in _grants(who) if where is None or _is_cluster(where, cluster)])


def may_somewhere(who: Principal, role: str) -> bool:
    """Returns whether the user or token has at least this role in the installation or in any cluster."""
    return _reaches(role, [held for held, _ in _grants(who)])


def clusters_of(who: Principal, role: str = Role.VIEWER.value) -> QuerySet[Cluster]:
    """Returns the clusters in which the user or token has at least this role."""
    wide, named = _covered(who, role)
    return Cluster.objects.all() if wide else Cluster.objects.filter(pk__in=named)


def sees_all(who: Principal, role: str = Role.VIEWER.value) -> bool:
    """Returns whether the user or token has the role in every cluster, so that rows need no filter."""
    return _covered(who, role)[0]


def actor(who: Principal) -> str:
    """Returns the name of the user or token in the audit log: ``user:anna``, ``token:decision kcd_Ab12``."""
    if isinstance(who, ApiToken):
        return f"token:{who.kind} {who.prefix}"
    return f"{USER}{who.get_username()}" if who.is_authenticated else "nobody"


def person(who: Principal) -> str:
    """Returns the name of the person behind a principal; a token without an owner stands for itself."""
    return actor(owner_of(who) or who)


def controllers(name: str, *, at: datetime) -> list[str]:
    """Returns the people who could have used the account of an actor at that time, besides its owner.

    They set the password or the role of the account, or enabled it, within the day before, or did so with the account
    of such a person. The shell is left out: whoever has it needs no account.
    """
    found, pending = {name}, [(name, at)]
    while pending:
        account, until = pending.pop()
        if not account.startswith(USER):
            continue
        subject = f"user {account.removeprefix(USER)}"
        changes = ledger.about(subject, verbs=CONTROL_VERBS, since=until - CONTROL_LASTS, until=until)
        by_people = changes.filter(actor__startswith=USER).exclude(actor__in=found)
        news = list(by_people.values_list("actor", "at"))
        found.update(by for by, _ in news)
        pending += news
    return sorted(found - {name})


def place_key(who: Principal) -> str:
    """Returns who a request counts for where people have few places: ``user:3``, or ``token:7`` without an owner."""
    if isinstance(who, ApiToken):
        return f"user:{who.owner_id}" if who.owner_id is not None else f"token:{who.pk}"
    return f"user:{who.pk}"


def shell_actor() -> str:
    """Returns the name of the operating system's user in the audit log, for management commands."""
    return f"command:{get_system_username() or 'unknown'}"


def find_user(name: str) -> User | None:
    return User.objects.filter(username=name).first()


def has_second_factor(user: User) -> bool:
    """Returns whether the user has an authenticator app or a passkey."""
    return TotpDevice.objects.filter(user=user).exists() or user.passkeys.exists()


def second_factor_required(user: User) -> bool:
    """Returns whether KCOVER_SECOND_FACTOR asks this user for a second factor."""
    required = settings.KCOVER_SECOND_FACTOR
    return required == "all" or (required == "approvers" and may_somewhere(user, Role.APPROVER))


def live_sessions(now: datetime) -> QuerySet[Session]:
    """Returns the sessions of signed-in people that have not ended, the last used first."""
    live = Session.objects.filter(user__isnull=False, expire_date__gt=now, seen_at__gt=now - idle_limit())
    return live.order_by("-seen_at")


def idle_limit() -> timedelta:
    """How long a session lasts without a request of the person."""
    return timedelta(minutes=settings.KCOVER_SESSION_IDLE_MINUTES)


def owner_of(who: Principal) -> User | None:
    """Returns the person who counts as the requester: the user, or the owner of the token; None without one."""
    if isinstance(who, ApiToken):
        return who.owner
    return who if isinstance(who, User) else None


def _grants(who: Principal) -> list[tuple[str, int | None]]:
    """Returns (role, cluster id) for each grant; cluster id None means everywhere.

    Costs one query per user object and none for a token.
    """
    if isinstance(who, ApiToken):
        role = TOKEN_ROLES.get(who.kind)
        return [(role, who.cluster_id)] if role else []
    if isinstance(who, AnonymousUser) or not who.is_active:
        return []
    if who.is_superuser:
        return [(Role.ADMIN.value, None)]
    prefetch_related_objects([who], "bindings")
    return [(binding.role, binding.cluster_id) for binding in who.bindings.all()]


def _covered(who: Principal, role: str) -> tuple[bool, list[int]]:
    held = [where for held, where in _grants(who) if _reaches(role, [held])]
    return None in held, [where for where in held if where is not None]


def _reaches(role: str, held: list[str]) -> bool:
    needed = ROLES.index(role)
    return any(ROLES.index(held_role) >= needed for held_role in held)


def _is_cluster(where: int, cluster: Cluster | None) -> bool:
    return cluster is not None and cluster.pk == where


def revoked_since(moment: datetime) -> list[str]:
    """Returns the digests of the tokens that were revoked at or after ``moment``."""
    return list(ApiToken.objects.filter(revoked_at__gte=moment).order_by().values_list("digest", flat=True))
