"""Recovery codes: each replaces a lost second factor once. They are shown when they are made and never again."""

import base64
import hashlib
import re
import secrets
from datetime import datetime

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from kcover import audit
from kcover_portal.accounts.models import RecoveryCode, User
from kcover_portal.ledger import services as ledger

CODES_PER_SET = 10
SHAPE = re.compile(r"(?:[a-z2-7]{4}-?){3}[a-z2-7]{4}", re.IGNORECASE)  # 80 bits


@sensitive_variables()
def make(user: User, *, actor: str, now: datetime) -> list[str]:
    """Replaces the person's codes by CODES_PER_SET new ones and returns them, on record."""
    codes = [_new() for _ in range(CODES_PER_SET)]
    with transaction.atomic():
        user.recovery_codes.all().delete()
        RecoveryCode.objects.bulk_create([RecoveryCode(user=user, digest=_digest(code)) for code in codes])
        ledger.record("", audit.RecoveryCodesMade(user=user.username, count=CODES_PER_SET), actor=actor, now=now)
    return codes


@sensitive_variables()
def accept(user: User, code: str, *, now: datetime) -> bool:
    """Returns whether the code is an unused one of the person, and counts it as used."""
    unused = RecoveryCode.objects.filter(user=user, digest=_digest(code), used_at=None)
    return unused.update(used_at=now) == 1


def count_left(user: User) -> int:
    """Returns how many of the person's codes are unused."""
    return user.recovery_codes.filter(used_at=None).count()


def _new() -> str:
    text = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def _digest(code: str) -> str:
    return hashlib.sha256(code.replace("-", "").lower().encode()).hexdigest()
