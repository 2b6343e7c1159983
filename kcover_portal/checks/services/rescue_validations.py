"""The validations that rescues ask for: of their own node only, one for each attempt of their step."""

from datetime import datetime

from kcover.reasons import Reason
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.checks.services import validation_profiles, validations
from kcover_portal.fleet.models import Node
from kcover_portal.repairs import queries as repairs
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import validator


class RescueValidations(validator.Validator):
    """See ``validator.Validator``."""

    def order(self, order: validator.Order, *, now: datetime) -> int:
        """Begins the validation unless there is one with the key."""
        found = Validation.objects.filter(key=order.key).first()
        if found is not None:
            return found.pk
        row = validations.begin(
            order.rescue.cluster,
            [order.rescue.node],
            profile=order.profile,
            actor=f"rescue {order.rescue.pk}",
            requester=CheckRun.Requester.RESCUE,
            rescue=order.rescue,
            key=order.key,
            now=now,
        )
        return row.pk

    def verdict(self, order_key: str) -> validator.Verdict | None:
        """The state of the validation, with the reasons of its only node."""
        row = Validation.objects.filter(key=order_key).first()
        if row is None:
            return None
        because = tuple(reason for one in row.nodes.all() for reason in one.reasons)
        return validator.Verdict(validation=row.pk, state=row.state, because=because)

    def withdraw(self, rescue: Rescue, *, because: Reason, now: datetime) -> None:
        """Cancels the open validations of the rescue, with their check runs."""
        validations.withdraw(rescue, because=because, now=now)

    def needs_idle_gpus(self, profile: str) -> bool:
        """True if the profile in force has an invasive check."""
        return validations.is_invasive(validation_profiles.named(profile))

    def is_back_from_repair(self, node: Node) -> bool:
        """True while the desk waits for the proof of a returned machine."""
        return repairs.awaiting_validation().filter(node=node).exists()
