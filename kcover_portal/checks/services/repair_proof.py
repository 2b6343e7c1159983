"""The proof that a repaired machine is sound: the validations of its node since it was returned."""

from datetime import datetime

from kcover import reasons, repairs
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.fleet.models import Node
from kcover_portal.repairs.services import Proof

State = Validation.State


def of_node(node: Node, since: datetime) -> Proof:
    """The proof by validations that were requested since then, of the machine that has the node's name now.

    A failure counts more than a later validation that passed: that one may have tested something else.
    """
    rows = ValidatedNode.objects.filter(node=node, machine=node.uid, validation__requested_at__gte=since)
    found = dict(rows.order_by("pk").values_list("state", "validation"))
    for state, validation, code in (
        (State.FAILED, repairs.Validation.FAILED, "repair_failed_validation"),
        (State.WAITING, repairs.Validation.RUNNING, "repair_validation_begun"),
        (State.PASSED, repairs.Validation.PASSED, "repair_validation_passed"),
    ):
        if state in found:
            return Proof(validation=validation, because=reasons.of(code, validation=str(found[state])))
    return Proof(validation=repairs.Validation.MISSING)
