"""The validation of a repaired machine: what its validations since its return say together."""

from datetime import datetime

from kcover import reasons
from kcover.repairs import repairs
from kcover.validation import nccl, node_verdict
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.fleet.models import Node
from kcover_portal.repairs.services import MachineValidation

State = Validation.State


def of_node(node: Node, since: datetime, serial: str) -> MachineValidation:
    """The state of the machine's validations that were requested since then, under the name that it has now.

    ``serial``: the machine's serial number, "" if unknown. A validation of a machine with another number proves
    nothing. Where one of the two numbers is unknown, the node's name counts, and the reason says so. A failure counts
    more than a later validation that passed: that one may have tested something else. A pass without a pair test is
    what the machine says of itself, and the reason asks for one.
    """
    rows = ValidatedNode.objects.filter(node=node, machine=node.uid, validation__requested_at__gte=since)
    verdicts = list(rows.order_by("pk").values_list("state", "validation", "serial"))
    same = [one for one in verdicts if not (serial and one[2]) or one[2] == serial]
    found = {state: (validation, reported) for state, validation, reported in same}
    passed = "repair_validation_passed" if serial and found.get(State.PASSED, (0, ""))[1] else "repair_passed_by_name"
    for state, validation, code in (
        (State.FAILED, repairs.Validation.FAILED, "repair_failed_validation"),
        (State.WAITING, repairs.Validation.RUNNING, "repair_validation_begun"),
        (State.PASSED, repairs.Validation.PASSED, passed),
    ):
        if state in found:
            number = found[state][0]
            alone = state == State.PASSED and not any(map(_measured_with_others, rows.filter(state=state)))
            advice = reasons.of("repair_without_pair_test") if alone else None
            return MachineValidation(
                validation=validation, because=reasons.both(reasons.of(code, validation=str(number)), advice)
            )
    other = any(state == State.PASSED for state, _validation, _serial in verdicts)
    return MachineValidation(validation=repairs.Validation.OTHER_MACHINE if other else repairs.Validation.MISSING)


def _measured_with_others(row: ValidatedNode) -> bool:
    return any(one["name"] == nccl.PAIR and one["status"] in node_verdict.GOOD for one in row.nccl)
