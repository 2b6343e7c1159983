"""How long a step waits at most, and what happens then; without a limit, what ends the wait."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.actions import drain, power_cycle, reboot, validate, verify
from kcover_portal.checks.models import CheckTarget
from kcover_portal.console.reads import guard_holds, rescues as reads, step_facts
from kcover_portal.console.reads.wait import Wait
from kcover_portal.rescue.actions import verify as verification
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import plan_steps

THEN_A_PERSON = _("then escalates to an operator")
THEN_OF_DRAIN: Final[dict[str, str | Promise]] = {
    "proceed": _("then the plan goes on without the pods that are left"),
    "force": _("then the pods that are left are deleted"),
}

THEN_NOT_PROVEN = _("then the node counts as not proven, and an operator decides")
THEN_CHECKS = _("then the last checks follow")
THEN_AGAIN = _("then the plan starts over")
# By the code of the reason why a verification waits: how long after the repair it does so at most.
LIMITS_OF_VERIFY: Final[Mapping[str, timedelta]] = {
    "verify_waits_for_agent": verification.AGENT_TIME_LIMIT,
    "verify_waits_for_gpus": verification.GPUS_WITHIN,
    "checks_not_passed_yet": verification.CHECK_WITHIN,
}


# By the code of the reason why a validation waits: what ends the wait.
ENDS_OF_VALIDATION: Final[Mapping[str, str | Promise]] = {
    "burn_in_waits_for_agent": _("until the agent reports"),
    "validation_waits_for_gpus": _("until no pod uses the GPUs of the node"),
    "validation_not_begun": _("until there is room for the validation and the GPUs are idle"),
}

Ends = Mapping[int, datetime]  # of validations that run on their node, by the key of the validation


def of(rescue: Rescue, steps: Sequence[Step], validations: Ends) -> Wait | None:
    """The wait of the step under way; None if nothing is known of its end, or its time stands still.

    ``validations``: see ``ends_of_validations``.
    """
    if reads.is_held_back(rescue):
        return guard_holds.of(rescue.why)
    step = _under_way(steps)
    if step is None or step.started_at is None or rescue.hold:
        return None
    match step.name:
        case "drain":
            return _of_drain(step, step.started_at)
        case "reboot":
            asked = step.progress_as(reboot.Progress).requested_at
            later = any(one.name == "power_cycle" and one.index > step.index for one in steps)
            then = _("then its power is cycled") if later else THEN_A_PERSON
            return _within(rescue, asked, then)
        case "ready":
            return _within(rescue, step.started_at, THEN_A_PERSON)
        case "power_cycle":
            progress = step.progress_as(power_cycle.Progress)
            return _within(rescue, progress.off_at or progress.off_asked_at, THEN_A_PERSON)
        case "validate":
            return _of_validation(step, validations)
        case "verify":
            return _of_verify(rescue, step, steps, step.started_at)
        case _:
            ends = step_facts.deadline(step)
            return Wait(ends, THEN_A_PERSON) if ends else None


def ends_of_validations(rescues: Iterable[Sequence[Step]]) -> Ends:
    """When the agents of nodes under validation must have answered, for ``of``. One statement, none without any.

    ``rescues``: the steps of each. A validation whose node waits for its turn, or whose agent has answered, has no end.
    """
    present = [step for steps in rescues if (step := _under_way(steps)) is not None and step.name == "validate"]
    keys = {step.progress_as(validate.Progress).validation for step in present} - {0}
    if not keys:
        return {}
    asked = CheckTarget.objects.filter(
        run__validation__in=keys, state=CheckTarget.State.REQUESTED, command__isnull=False
    )
    return dict(asked.values_list("run__validation", "command__expires_at"))


def _under_way(steps: Sequence[Step]) -> Step | None:
    return next((one for one in steps if one.state in (Step.State.RUNNING, Step.State.WAITING)), None)


def _of_validation(step: Step, validations: Ends) -> Wait | None:
    until = validations.get(step.progress_as(validate.Progress).validation)
    if until is not None:  # the step itself may not have looked since it began
        return Wait(until, THEN_NOT_PROVEN)
    because = reasons.kept(step.because)
    return next((Wait(None, ends) for code, ends in ENDS_OF_VALIDATION.items() if reasons.says(because, code)), None)


def _of_verify(rescue: Rescue, step: Step, steps: Sequence[Step], started: datetime) -> Wait | None:
    """Each thing that a verification waits for has a limit of its own."""
    because = reasons.kept(step.because)
    progress = step.progress_as(verify.Progress)
    repaired = plan_steps.repaired(steps)
    since = repaired[0] if repaired is not None else progress.quiet_since or started
    if reasons.says(because, "hold_down"):
        return Wait(since + timedelta(seconds=rescue.cluster.hold_down), THEN_CHECKS)
    if reasons.says(because, "faults_not_over"):
        return Wait(started + verification.SETTLE_WITHIN, THEN_AGAIN)
    if reasons.says(because, "verify_waits_for_silent_agent") and progress.silent_at is not None:
        return Wait(progress.silent_at + verification.AGENT_TIME_LIMIT, THEN_A_PERSON)
    for code, limit in LIMITS_OF_VERIFY.items():
        if reasons.says(because, code):
            return Wait(since + limit, THEN_A_PERSON)
    return None


def _within(rescue: Rescue, since: datetime | None, then: str | Promise) -> Wait | None:
    """A boot that may take as long as the cluster's setting says."""
    return Wait(since + timedelta(seconds=rescue.cluster.ready_within), then) if since else None


def _of_drain(step: Step, started: datetime) -> Wait | None:
    args, progress = step.args_as(drain.Args), step.progress_as(drain.Progress)
    if progress.held_since is not None:
        return None
    held = timedelta(seconds=progress.held_seconds) + progress.checkpoint_waited + progress.turn_waited
    ends = started + held + timedelta(seconds=args.seconds)
    return Wait(ends, THEN_OF_DRAIN.get(args.on_timeout, THEN_A_PERSON))
