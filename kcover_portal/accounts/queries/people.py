"""Identities: names in the audit log, people behind tokens, second factors, sessions."""

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from kcover import actors, audit
from kcover.audit import subjects
from kcover_portal.accounts.models import (
    ApiToken,
    GroupMapping,
    Invitation,
    Passkey,
    RoleBinding,
    Session,
    TotpDevice,
    User,
)
from kcover_portal.ledger import queries as ledger

Principal = User | ApiToken | AnonymousUser

CONTROL_LASTS = timedelta(days=1)
# After these, whoever did them can use the account that they are about.
CONTROL_VERBS = (
    *(audit.PasswordChanged.VERB, audit.FactorsReset.VERB, audit.UserInvited.VERB),
    *(audit.RoleGiven.VERB, audit.RoleTaken.VERB, audit.UserEnabled.VERB),
    *(audit.RoleChanged.VERB, audit.GroupMapped.VERB),
)


def actor(who: Principal) -> str:
    """Returns the name of the user or token in the audit log: ``user:anna``, ``token:decision kcd_Ab12``."""
    if isinstance(who, ApiToken):
        return actors.token(f"{who.kind} {who.prefix}")
    return actors.user(who.get_username()) if who.is_authenticated else "nobody"


def person(who: Principal) -> str:
    """Returns the name of the person behind a principal; a token without an owner stands for itself."""
    return actor(owner_of(who) or who)


def counted_as(who: Principal, *, at: datetime) -> list[str]:
    """Returns the people who count as the one who acts: the person behind the principal, and ``controllers``."""
    name = person(who)
    return [name, *controllers(name, at=at)]


def controllers(name: str, *, at: datetime) -> list[str]:
    """Returns the people who could have used the account of an actor at that time, besides its owner.

    Within the day before, they set the password or the role of the account, changed its custom role or the role of its
    group, reset its second factors, invited its owner or enabled it, or did so with the account of such a person. Who
    made an invitation counts for a day after its use, too, as they could have used it. The shell is left out: whoever
    has it needs no account.
    """
    found, pending = {name}, [(name, at)]
    while pending:
        account, until = pending.pop()
        if not actors.is_user(account):
            continue
        about = _subjects(actors.username(account))
        changes = ledger.about(about, verbs=CONTROL_VERBS, since=until - CONTROL_LASTS, until=until)
        by_people = changes.filter(actor__startswith=actors.USER).exclude(actor__in=found)
        inviters = _inviters(actors.username(account), since=until - CONTROL_LASTS, until=until)
        news = [*by_people.values_list("actor", "at"), *(one for one in inviters if one[0] not in found)]
        found.update(by for by, _ in news)
        pending += news
    return sorted(found - {name})


def _inviters(username: str, *, since: datetime, until: datetime) -> list[tuple[str, datetime]]:
    """Returns the people whose invitations of the account were used or replaced in this time, and when."""
    used = Invitation.objects.filter(user__username=username, ended_at__gt=since, ended_at__lte=until)
    rows = used.filter(created_by__startswith=actors.USER).values_list("created_by", "ended_at")
    return [(by, at) for by, at in rows if at is not None]


def _subjects(username: str) -> list[str]:
    """Returns the subjects of the audit log that decide what an account may do."""
    roles = RoleBinding.objects.filter(user__username=username, custom__isnull=False).values_list("role", flat=True)
    groups = GroupMapping.objects.filter(members__username=username).values_list("group", flat=True)
    return [subjects.user(username), *map(subjects.role, roles), *map(subjects.group, groups)]


def place_key(who: Principal) -> str:
    """Returns who a request counts for where people have few places: ``user:3``, or ``token:7`` without an owner."""
    if isinstance(who, ApiToken):
        return f"user:{who.owner_id}" if who.owner_id is not None else f"token:{who.pk}"
    return f"user:{who.pk}"


def find_user(name: str) -> User | None:
    return User.objects.filter(username=name).first()


def has_second_factor(user: User) -> bool:
    """Returns whether the user has an authenticator app or a passkey."""
    return TotpDevice.objects.filter(user=user).exists() or user.passkeys.exists()


def users_with_second_factor() -> frozenset[int]:
    """Returns the ids of the users who have a second factor."""
    held = TotpDevice.objects.values_list("user").union(Passkey.objects.order_by().values_list("user"))
    return frozenset(pk for (pk,) in held)


def invited_users() -> frozenset[int]:
    """Returns the ids of the users who were invited and have not chosen a password yet."""
    return frozenset(Invitation.objects.filter(ended_at=None).values_list("user", flat=True))


def live_sessions(now: datetime) -> QuerySet[Session]:
    """Returns the sessions of signed-in people that have not ended, the last used first."""
    live = Session.objects.filter(user__isnull=False, expire_date__gt=now, seen_at__gt=now - idle_limit())
    return live.order_by("-seen_at")


def idle_limit() -> timedelta:
    """Returns how long a session lasts without a request of the person."""
    return timedelta(minutes=settings.KCOVER_SESSION_IDLE_MINUTES)


def owner_of(who: Principal) -> User | None:
    """Returns the person who counts as the requester: the user, or the owner of the token; None without one."""
    if isinstance(who, ApiToken):
        return who.owner
    return who if isinstance(who, User) else None


def revoked_since(moment: datetime) -> list[str]:
    """Returns the digests of the tokens that were revoked at or after ``moment``."""
    return list(ApiToken.objects.filter(revoked_at__gte=moment).order_by().values_list("digest", flat=True))
