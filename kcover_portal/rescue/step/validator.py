"""Validations of a rescue's own node. The app of the checks runs them; it is above this one, so it registers here."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kcover.reasons import Reason
from kcover_portal.fleet.models import Node
from kcover_portal.rescue.models import Rescue


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A validation of the node of a rescue. ``key``: of the step's attempt, one validation each."""

    rescue: Rescue
    key: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state of a validation: waiting, running, passed, failed, error or cancelled. ``because``: why not passed."""

    validation: int
    state: str
    because: tuple[Reason, ...] = ()


class Validator(Protocol):
    """What a step asks of the app of the checks."""

    def order(self, order: Order, *, now: datetime) -> int:
        """Requests the validation, once for each key, and returns its id. Part of the caller's transaction."""

    def verdict(self, order_key: str) -> Verdict | None:
        """The state of the validation with this key; None if it does not exist."""

    def withdraw(self, rescue: Rescue, *, because: Reason, now: datetime) -> None:
        """Cancels the open validations of the rescue. Part of the caller's transaction."""

    def needs_idle_gpus(self, profile: str) -> bool:
        """Returns whether a check of the profile is skipped while a pod or another check uses the GPUs."""

    def is_back_from_repair(self, node: Node) -> bool:
        """Returns whether the machine came back from a repair and is not proved to be sound."""


_validators: list[Validator] = []


def validate_with(validator: Validator) -> None:
    """Registers the validator."""
    _validators[:] = [validator]


def registered() -> Validator:
    """The validator. Every process of the portal registers one when it starts."""
    return _validators[0]
