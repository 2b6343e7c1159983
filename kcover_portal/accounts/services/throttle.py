"""Throttling of password attempts: each failure makes the next attempt wait longer. The counters are rows.

An attempt is counted as a failure before its password is checked, so that concurrent attempts see each other. A correct
password takes its count back. Refused attempts cost no hash and get the same answer whether the account exists or not.

================  ==========================================  =====================================================
counter           counts failures of                          effect
================  ==========================================  =====================================================
pair              one account from one address                from the sixth attempt on, 1 s, 2 s, 4 s, up to 15 min
address           one address, all accounts                   from the 21st attempt on, up to 1 min
subnet, site      one /56 or /48 of IPv6, all accounts        from the 41st and the 101st attempt on, up to 1 min
account           one account, all addresses                  an address that is new to the account waits up to 30 s;
                                                              from the 301st attempt on, an hour
device            one browser that signed in before           like pair; the others do not apply to it
own               a person who gives the password or a second  like pair
                  factor
================  ==========================================  =====================================================

So a stranger cannot lock an account. A browser that signed in before waits only for its own failures. Another address
waits at most 30 s for the failures of others, once: its first attempt is refused and the attempt after the wait counts.
After MAX_OF_ACCOUNT failures only known browsers, passkeys and single sign-on get through, until nobody has guessed for
an hour.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import salted_hmac

from kcover import reasons
from kcover_portal.accounts.models import AttemptCounter, User
from kcover_portal.accounts.services import client_networks
from kcover_portal.accounts.services.tokens import RetryLater
from kcover_portal.runtime.services import retention

FORGET_AFTER = retention.time(AttemptCounter)
MAX_OF_ACCOUNT = 300  # of guesses at one account, whatever their addresses
MAX_ROWS = 100_000
BATCH_ROWS = 1000  # rows deleted at a time
ZERO = timedelta()
SALT = "kcover_portal.accounts.throttle"


class Throttled(RetryLater):
    """The attempt comes too soon after failures; its password was not checked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The delay after failures: none for the first ``free`` ones, then 1 s, doubled with each failure."""

    free: int
    longest: timedelta

    def delay(self, failures: int) -> timedelta:
        if failures < self.free:
            return ZERO
        return min(self.longest, timedelta(seconds=2 ** min(failures - self.free, 20)))


LIMITS: Mapping[str, Limit] = {
    "pair": Limit(free=5, longest=timedelta(minutes=15)),
    "address": Limit(free=20, longest=timedelta(minutes=1)),
    "subnet": Limit(free=40, longest=timedelta(minutes=1)),
    "site": Limit(free=100, longest=timedelta(minutes=1)),
    "account": Limit(free=20, longest=timedelta(seconds=30)),
    "device": Limit(free=5, longest=timedelta(minutes=15)),
    "own": Limit(free=5, longest=timedelta(minutes=15)),
}
SHARED = ("address", "subnet", "site", "account")  # counters that one correct password does not clear

Attempt = Mapping[str, str]  # the kinds of counters that apply, each with the counter's key


def of_sign_in(name: str, *, address: str, device: str) -> Attempt:
    """``device``: the browser's id if it signed in to this account before (``sign_ins.device_of``), else ""."""
    if device:
        return {"device": _key("device", device)}
    network = client_networks.network(address)
    return {
        "pair": _key("pair", name, network),
        "account": _key("account", name),
        **_of_network(address),
    }


def _of_network(address: str) -> dict[str, str]:
    networks = {"address": client_networks.network(address), **client_networks.wider_networks(address)}
    return {kind: _key(kind, found) for kind, found in networks.items()}


def of_password_change(user: User) -> Attempt:
    return {"own": _key("own", str(user.pk))}


def of_second_factor(user: User, *, device: str) -> Attempt:
    """The second factor of a sign-in. ``device``: as in ``of_sign_in``.

    The counter of all other browsers is one an account, whatever their addresses: six digits can be guessed from many
    addresses. Only somebody who knows the password can use it up.
    """
    return {"device": _key("factor device", device)} if device else {"own": _key("factor", str(user.pk))}


def of_step_up(user: User) -> Attempt:
    """The second factor of a signed-in person."""
    return {"own": _key("step-up", str(user.pk))}


def of_passkey(*, address: str) -> Attempt:
    """A sign-in with a passkey alone: nothing can be guessed, but the address is counted."""
    return _of_network(address)


def of_vendor(sink: str, *, address: str) -> Attempt:
    """An event of a vendor with a wrong signature. Its counters are not those of sign-ins."""
    network = client_networks.network(address)
    return {"pair": _key("vendor", sink, network), "address": _key("vendor address", network)}


def charge(attempt: Attempt, *, now: datetime) -> None:
    """Counts the attempt as a failure until ``forgive`` or ``refund``. Raises Throttled; then nothing is counted."""
    seen = AttemptCounter.objects.filter(key__in=attempt.values(), last_at__gt=now - FORGET_AFTER)
    known = {row.kind: row for row in seen}
    _refuse(_wait(known.values(), now=now), known.values())  # most of a flood ends here, without a lock or a new row
    toll = _toll(known.get("account"))
    with transaction.atomic():
        AttemptCounter.objects.bulk_create(_counters(attempt, toll=toll, now=now), ignore_conflicts=True)
        rows = _locked(attempt)
        for row in rows:
            if row.last_at <= now - FORGET_AFTER:
                row.failures, row.last_at, row.retry_at = 0, now, _first_try(row.kind, toll=toll, now=now)
        wait = _wait(rows, now=now)
        if not wait:
            _count(rows, toll=toll, now=now)
        AttemptCounter.objects.bulk_update(rows, ["failures", "last_at", "retry_at"])
    if any(key.endswith("00") for key in attempt.values()):  # one key in 256, so that few attempts pay for the look
        _drop_excess()
    _refuse(wait, rows)


def guesses(name: str, *, now: datetime) -> int:
    """The wrong passwords for the account, if the last one came within an hour; those of known browsers not counted."""
    rows = AttemptCounter.objects.filter(key=_key("account", name), last_at__gt=now - FORGET_AFTER)
    return rows.values_list("failures", flat=True).first() or 0


def forgive(attempt: Attempt, *, now: datetime) -> None:
    """Takes the attempt back because the password was correct, and clears the counters of this person alone."""
    with transaction.atomic():
        rows = _locked(attempt)
        AttemptCounter.objects.filter(key__in=[row.key for row in rows if row.kind not in SHARED]).delete()
        _take_back([row for row in rows if row.kind in SHARED], now=now)


def refund(attempt: Attempt, *, now: datetime) -> None:
    """Takes the attempt back because its password could not be checked."""
    with transaction.atomic():
        _take_back(_locked(attempt), now=now)


def prune(*, now: datetime) -> None:
    """Deletes counters without an attempt for FORGET_AFTER."""
    _delete(before=now - FORGET_AFTER)


def _locked(attempt: Attempt) -> list[AttemptCounter]:
    """The counters of the attempt, locked in the one order in which all writers lock them."""
    return list(AttemptCounter.objects.select_for_update().filter(key__in=attempt.values()).order_by("key"))


def _count(rows: Iterable[AttemptCounter], *, toll: timedelta, now: datetime) -> None:
    for row in rows:
        row.failures += 1
        row.last_at = now
        row.retry_at = now + max(LIMITS[row.kind].delay(row.failures), toll if row.kind == "pair" else ZERO)


def _take_back(rows: Iterable[AttemptCounter], *, now: datetime) -> None:
    counted = [row for row in rows if row.failures]
    for row in counted:
        row.failures -= 1
        row.retry_at = now  # the time of this attempt, which had been admitted
    AttemptCounter.objects.bulk_update(counted, ["failures", "retry_at"])


def _counters(attempt: Attempt, *, toll: timedelta, now: datetime) -> list[AttemptCounter]:
    """New counters for the attempt, in the order of their keys."""
    return [
        AttemptCounter(key=key, kind=kind, retry_at=_first_try(kind, toll=toll, now=now), last_at=now)
        for kind, key in sorted(attempt.items(), key=lambda item: item[1])
    ]


def _first_try(kind: str, *, toll: timedelta, now: datetime) -> datetime:
    return now + toll if kind == "pair" else now


def _drop_excess() -> None:
    """Deletes the oldest counters above MAX_ROWS."""
    for oldest in AttemptCounter.objects.order_by("-last_at").values_list("last_at", flat=True)[MAX_ROWS:][:1]:
        _delete(before=oldest)


def _delete(*, before: datetime) -> None:
    deleted = BATCH_ROWS
    while deleted == BATCH_ROWS:
        with transaction.atomic():
            old = AttemptCounter.objects.select_for_update().filter(last_at__lte=before).order_by("key")
            keys = list(old.values_list("key", flat=True)[:BATCH_ROWS])
            deleted, _ = AttemptCounter.objects.filter(key__in=keys).delete()


def _key(kind: str, *parts: str) -> str:
    """A keyed hash: people type passwords into the field of the user name, and those must not be stored."""
    return salted_hmac(SALT, "\0".join((kind, *parts)), algorithm="sha256").hexdigest()


def _toll(account: AttemptCounter | None) -> timedelta:
    """Returns the delay of an address that is new to the account, caused by failures from other addresses."""
    return LIMITS["account"].delay(account.failures) if account is not None else ZERO


def _wait(rows: Iterable[AttemptCounter], *, now: datetime) -> timedelta:
    """Returns how long the attempt has to wait, zero if it may be checked.

    The account's failures act through the pair, but for a flood of them.
    """
    return max((wait for row in rows if (wait := _wait_of(row, now=now)) > ZERO), default=ZERO)


def _wait_of(row: AttemptCounter, *, now: datetime) -> timedelta:
    if row.kind != "account":
        return row.retry_at - now
    return row.last_at + FORGET_AFTER - now if _is_flooded(row) else ZERO


def _is_flooded(row: AttemptCounter) -> bool:
    return row.kind == "account" and row.failures >= MAX_OF_ACCOUNT


def _refuse(wait: timedelta, rows: Iterable[AttemptCounter]) -> None:
    if not wait:
        return
    seconds = math.ceil(wait.total_seconds())
    if any(map(_is_flooded, rows)):
        minutes = reasons.span(timedelta(minutes=math.ceil(seconds / 60)))
        raise Throttled(reasons.of("account_flooded", wait=minutes), retry_after=seconds)
    raise Throttled(
        reasons.of("attempts_throttled", wait=reasons.span(timedelta(seconds=seconds))), retry_after=seconds
    )
