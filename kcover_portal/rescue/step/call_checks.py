"""Checks, right before calls that were begun with the decision, that they may still be made: lease and mode."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.rescue.step.errors import LeaseLost

VALID_FOR = timedelta(milliseconds=500)  # a call that starts later is checked again

Claim = tuple[int, int]  # the key of a rescue, and the token of its lease


@dataclass(frozen=True, slots=True)
class CallCheck:
    """The result of a check. ``error``: why the call must not be made; None if it may."""

    at: datetime
    error: LeaseLost | recheck_guards.HeldBack | None


def check(claims: Collection[Claim], *, now: datetime) -> dict[Claim, CallCheck]:
    """Checks in one statement that the leases are still ours and that writes are allowed."""
    running = Rescue.objects.filter(pk__in=[rescue for rescue, _ in claims], state=Rescue.State.RUNNING)
    modes = dict(fleet.modes_in(running.order_by(), "cluster", "pk", "token"))
    return {claim: CallCheck(now, _error(claim, modes.get(claim))) for claim in claims}


def _error(claim: Claim, mode: tuple[str, str] | None) -> LeaseLost | recheck_guards.HeldBack | None:
    if mode is None:
        return lost(claim)
    return recheck_guards.HeldBack(recheck_guards.silent(*mode)) if mode[0] in fleet.MODES_WITHOUT_WRITES else None


def lost(claim: Claim) -> LeaseLost:
    """The error of a worker whose lease another worker has taken."""
    rescue, token = claim
    return LeaseLost(reasons.of("lease_lost", rescue=str(rescue), token=str(token)))
