"""The validation of a returned machine, as the app of the checks knows it, and what follows from it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from django.db import transaction

from kcover import actors
from kcover.machines import part_serials
from kcover.reasons import Reason
from kcover.repairs import repairs
from kcover.repairs.repairs import Validation
from kcover_portal.fleet.models import Node
from kcover_portal.repairs import queries
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import moves


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineValidation:
    """The state of a node's validation since a time. ``because`` names the validation; None if there is none."""

    validation: Validation
    because: Reason | None = None


# Of a node, since when, of the machine with this number.
FindValidation: TypeAlias = Callable[[Node, datetime, str], MachineValidation]

_finders: list[FindValidation] = []


def find_validations_with(function: FindValidation) -> None:
    """Registers the function that knows validations. The app of the checks, which is above this one, does so."""
    _finders[:] = [function]


def validation_of(repair: Repair) -> MachineValidation:
    """The validation of a repair's machine since it was returned, or since the repair was refused."""
    since = repair.refused_at if repair.state == Repair.State.REFUSED else repair.returned_at
    if repair.node is None or since is None:
        return MachineValidation(validation=Validation.MISSING)
    serial = part_serials.known(repair.machine_serial)
    found = (find(repair.node, since, serial) for find in _finders)
    return next(found, MachineValidation(validation=Validation.MISSING))


def look_at_validations(*, now: datetime) -> int:
    """Moves the repairs whose returned machine is being validated, or has failed. Returns how many moved."""
    return sum(_look(row.pk, now=now) for row in queries.awaiting_validation())


def _look(pk: int, *, now: datetime) -> bool:
    with transaction.atomic():
        row = moves.locked(pk)
        validated = validation_of(row)
        state = repairs.after_validation(row.stage, validated.validation)
        if state is row.stage:
            return False
        moves.enter(row, state, moves.Occasion(actor=actors.SYSTEM, because=validated.because, now=now))
    return True
