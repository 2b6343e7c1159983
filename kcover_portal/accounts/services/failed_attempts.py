"""Failed password attempts in the audit log and the process log, bounded: a flood is a few entries with a count.

The first failure of a name and address is an entry at once. Later ones are counted in a row and become one entry a
minute. Beyond MAX_ROWS names and addresses, the rest shares one row.

A name without an account is neither stored nor logged: somebody may have typed a password there. It costs the same
statements as one with an account, so that the time of the answer does not tell which names have accounts.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils.crypto import salted_hmac

from kcover import audit
from kcover_portal.accounts.models import FailedAttempts, User
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

RECORD_INTERVAL = timedelta(minutes=1)
MAX_ROWS = 20  # so at most 20 entries a minute, and one for the rest
NO_ACCOUNT = "?"  # names of accounts have none
SALT = "kcover_portal.accounts.failed_attempts"
NOBODY = "nobody"  # the actor: a failed attempt proves nothing about who made it

Kind = type[audit.FailedAttempts]


def note(kind: Kind, name: str, *, address: str, refused: bool, now: datetime, exists: bool | None = None) -> None:
    """Notes a failed attempt on the account ``name``, which need not exist.

    ``exists``: whether it does; None: the name is that of a user.
    """
    if exists is None:
        exists = User.objects.filter(username=name).exists()
    user = name if exists else _hidden(name)
    counted = {"count": F("count") + 1, "refused": F("refused") + int(refused)}
    rows = FailedAttempts.objects.filter(verb=kind.VERB)
    if rows.filter(user=user, address=address, recorded_at__gt=now - RECORD_INTERVAL).update(**counted):
        return
    with transaction.atomic():
        if not rows.filter(user=user, address=address).exists() and FailedAttempts.objects.count() >= MAX_ROWS:
            user = address = ""
        row, _ = FailedAttempts.objects.get_or_create(
            verb=kind.VERB, user=user, address=address, defaults={"recorded_at": now - RECORD_INTERVAL}
        )
        FailedAttempts.objects.filter(pk=row.pk).update(**counted)
        record([row.pk], now=now)


def _hidden(name: str) -> str:
    """Returns a text that no account has as its name, and that is too short to confirm a guess of ``name``."""
    return f"{NO_ACCOUNT}{salted_hmac(SALT, name, algorithm='sha256').hexdigest()[:4]}"


def _shown(user: str) -> str:
    return "" if user.startswith(NO_ACCOUNT) else user


def record(ids: Iterable[int] | None = None, *, now: datetime) -> None:
    """Writes an entry for each row, or each of ``ids``, that has failures and had no entry for RECORD_INTERVAL."""
    with transaction.atomic():
        rows = FailedAttempts.objects.select_for_update().order_by("pk")
        due = rows.filter(recorded_at__lte=now - RECORD_INTERVAL, count__gt=0)
        drafts = []
        for row in due if ids is None else due.filter(pk__in=ids):
            act = KINDS[row.verb](user=_shown(row.user), address=row.address, count=row.count, refused=row.refused)
            log.warning("%s: %s, %s", act.verb, act.subject, act.explanation)
            drafts.append(ledger.Draft(act=act, actor=NOBODY, at=now))
            FailedAttempts.objects.filter(pk=row.pk).update(count=0, refused=0, recorded_at=now)
        ledger.append("", drafts)


def flush(*, now: datetime) -> None:
    """Writes the entries that are due and deletes the rows without failures for RECORD_INTERVAL."""
    record(now=now)
    FailedAttempts.objects.filter(recorded_at__lte=now - RECORD_INTERVAL, count=0).delete()


KINDS: dict[str, Kind] = {
    kind.VERB: kind
    for kind in (
        audit.SignInFailed,
        audit.PasswordChangeFailed,
        audit.FactorFailed,
        audit.SingleSignOnFailed,
        audit.VendorSignatureFailed,
    )
}
