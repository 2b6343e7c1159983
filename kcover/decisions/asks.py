"""Whether a person is asked before a plan that nothing holds back."""

from collections.abc import Sequence

from kcover import actions
from kcover.plans import plan
from kcover.policy import document


def answer(
    rule: document.Rule, steps: Sequence[plan.PlannedStep], *, mode: str, isolate_first: bool
) -> tuple[str, str]:
    """The answer, ``rescue`` or ``approve``, and the code of its reason.

    ``isolate_first``: in approve mode, steps that only isolate the node wait for nobody.
    """
    if mode != "approve":
        return ("approve", "approval_required") if rule.approval else ("rescue", "nothing_holds_back")
    first = plan.first_to_approve(steps) if isolate_first else 0
    if first is None and rule.approval is None:
        return "rescue", "approve_isolates_only"
    if not first:  # a rule that wants an approval gets it before a plan of which no step needs one
        return "approve", "approve"
    isolates = any(actions.ACTIONS[step.name].isolates for step in steps[:first])
    return "approve", "approve_after_isolation" if isolates else "approve_after_notice"
