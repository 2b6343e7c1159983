"""The proof that a repaired machine is sound: the check runs of its node since it was returned."""

from datetime import datetime

from kcover import reasons
from kcover.repairs import Validation
from kcover_portal.checks.models import CheckTarget
from kcover_portal.fleet.models import Node
from kcover_portal.repairs.services import Proof

PASS, FAIL = "pass", "fail"


def of_node(node: Node, since: datetime) -> Proof:
    """The proof by check runs that were requested since then.

    A failed check counts more than a later run that passed: that run may have tested something else. A run passed if
    each of its results is a pass.
    """
    targets = CheckTarget.objects.filter(node=node, run__requested_at__gte=since).exclude(
        state__in=(CheckTarget.State.STOPPED, CheckTarget.State.SILENT)
    )
    found: dict[Validation, int] = {}
    for target in targets.order_by("-run"):
        found[_validation(target)] = target.run_id  # of equal runs, the first one is named
    for validation, code in (
        (Validation.FAILED, "repair_checks_failed"),
        (Validation.RUNNING, "repair_validation_begun"),
        (Validation.PASSED, "repair_validation_passed"),
    ):
        if validation in found:
            return Proof(validation=validation, because=reasons.of(code, run=str(found[validation])))
    return Proof(validation=Validation.MISSING)


def _validation(target: CheckTarget) -> Validation:
    if target.finished_at is None:
        return Validation.RUNNING
    statuses = {result["status"] for result in target.results}
    if FAIL in statuses:
        return Validation.FAILED
    return Validation.PASSED if statuses == {PASS} else Validation.MISSING
