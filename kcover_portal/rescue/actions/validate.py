"""validate: the node must pass a validation before it is returned (invariant 38).

The validation is requested once for each attempt, for this machine and this boot. If it loads GPUs, it waits until no
pod uses them. A failed one fails the rescue: the node stays isolated, and the repair desk gets a repair. One that
proves nothing is a question to a person.
"""

from datetime import timedelta

from django.db import transaction

from kcover import actions, audit, reasons
from kcover.actions import repair, validate as core
from kcover.nodes.node_stage import Stage
from kcover.plans import plan
from kcover.validation import fault_classes
from kcover_portal.incidents import queries as incidents, services
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import seen as when_seen
from kcover_portal.kube import port
from kcover_portal.rescue.queries import device_isolations
from kcover_portal.rescue.step import doubtful_reports, matched_rule, validator
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.marks import burn_in, node_marks
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Poll, Wait

POLL_SECONDS = 1.0
VERDICT_SECONDS = 30.0
SHORT = timedelta(minutes=1)  # a validation that may end while its rescue looks
IDLE_SECONDS = 30.0
MAX_NAMES_SHOWN = 8


def run(context: Context) -> Outcome:
    """Requests the validation once, then waits for its verdict."""
    node = burn_in.keep_from_work(context) if _is_burn_in(context) else _keep_isolated(context)
    if context.step.progress_as(core.Progress).validation == 0:
        return _request(context, node)
    progress = context.step.progress_as(core.Progress)
    named = {"validation": str(progress.validation), "profile": progress.profile}
    found = validator.registered().verdict(agent.key_of(context.step))
    if found is None:
        return Hold(reasons.of("validation_deleted", validation=named["validation"]))
    why = reasons.both(*found.because)
    match found.state:
        case "waiting":
            return _looks_again(context, reasons.of("validation_not_begun", **named))
        case "running":
            return _looks_again(context, reasons.of("validation_going_on", **named))
        case "passed":
            return _passed(context, node, named)
        case "failed":
            return Failed(reasons.of("validation_of_node_failed", why=why, **named), outcome=core.FAILED_OUTCOME)
        case "cancelled":
            return Hold(reasons.of("validation_was_cancelled", **named))
    return Hold(reasons.of("validation_not_proven", why=why, **named))


def _looks_again(context: Context, because: reasons.Reason) -> Outcome:
    """The verdict wakes a rescue that waits, but not one that is just looking: then the next look finds it."""
    waited = context.now - (context.step.started_at or context.now)
    return Poll(POLL_SECONDS, because) if waited < SHORT else Wait(VERDICT_SECONDS, because)


def _is_burn_in(context: Context) -> bool:
    return context.step.args_as(core.Args).burn_in


def _keep_isolated(context: Context) -> port.Node:
    node_marks.restate(context, Stage.VALIDATING)
    return node_marks.expect_isolated(context)


def _passed(context: Context, node: port.Node, named: dict[str, str]) -> Outcome:
    """The outcome of a validation that passed: the boot must be the same, without a fault since the step began."""
    if node.boot_id != context.step.progress_as(core.Progress).boot_id:
        return Failed(reasons.of("rebooted_again"))
    services.settle_doubt(node=context.node, now=context.now)
    seen = incidents.faults_since(context.node, context.step.started_at or context.now)
    if seen:
        faults = reasons.named([_named(one) for one in seen], most=MAX_NAMES_SHOWN)
        return Failed(reasons.of("validation_with_faults", faults=faults, **named), outcome=core.FAILED_OUTCOME)
    if not node.ready:
        return Poll(POLL_SECONDS, reasons.of("verify_not_ready"))
    return doubtful_reports.wait(context) or Done(reasons.of("validation_of_node_passed", **named))


def _request(context: Context, node: port.Node) -> Outcome:
    if _is_burn_in(context) and not burn_in.agent_reports(context, node):
        return Wait(IDLE_SECONDS, reasons.of("burn_in_waits_for_agent"))
    others = _faults_of_others(context)
    if others:
        return Hold(reasons.of("validation_of_other_faults", faults=reasons.named(others, most=MAX_NAMES_SHOWN)))
    if not context.step.progress_as(core.Progress).profile:
        choice = _choice(context)
        context.remember(profile=choice.profile, because=choice.because, boot_id=node.boot_id)
    key, profile = agent.key_of(context.step), context.step.progress_as(core.Progress).profile
    users = _gpu_users(context) if validator.registered().needs_idle_gpus(profile) else []
    if users:
        return Wait(
            IDLE_SECONDS, reasons.of("validation_waits_for_gpus", pods=reasons.named(users, most=MAX_NAMES_SHOWN))
        )
    order = validator.Order(rescue=context.rescue, key=key, profile=profile)
    wanted = audit.ValidationRequest(key=key, profile=profile)
    made: list[int] = []

    def ask() -> reasons.Reason:
        with transaction.atomic():
            context.renew()  # one transaction, so that a rescue that has just ended requests nothing
            made[:] = [validator.registered().order(order, now=context.now)]
        return reasons.of("validation_requested", validation=str(made[0]))

    context.write(audit.Call.VALIDATE, ask, wanted=wanted)
    context.remember(validation=made[0])
    return Poll(POLL_SECONDS, reasons.of("validation_not_begun", validation=str(made[0]), profile=profile))


def _faults_of_others(context: Context) -> list[str]:
    """Open faults for which another rule isolates the node, if this rescue has repaired nothing.

    A validation does not answer them, and the node's return would also undo the other rule's isolation.
    """
    done = [step.spec for step in context.steps if step.state == step.State.DONE]
    if any(spec.mends or spec.gives_node_away or spec.name == repair.SPEC.name for spec in done):
        return []
    rows = incidents.open_on(context.node).filter(is_user_fault=False).order_by("pk")
    faults = rows.exclude(when_seen.of_earlier_machine())  # a late report of it is not closed yet
    answered = device_isolations.answered(context.rescue, faults)
    return [_named(fault) for fault in answered if _isolates_by_another_rule(context, fault)]


def _isolates_by_another_rule(context: Context, fault: Incident) -> bool:
    chosen = matched_rule.of(context, fault)
    if chosen is None or chosen.name == context.rescue.rule or chosen.rule.mode not in ("approve", "enforce"):
        return False
    steps = plan.of_rule(chosen.rule, code=fault.code)
    return any(actions.ACTIONS[step.name].isolates for step in steps)


def _named(fault: Incident) -> str:
    return f"{fault.kind} {fault.code} {fault.device}".strip()


def _gpu_users(context: Context) -> list[str]:
    pods = context.kube.list_pods(node=context.node.name)
    return [f"{pod.namespace}/{pod.name}" for pod in pods if pod.gpus and not pod.terminal]


def _choice(context: Context) -> fault_classes.Choice:
    asked = context.step.args_as(core.Args).profile
    if asked != fault_classes.AUTO:
        return fault_classes.Choice(asked)
    rows = context.rescue.incidents.values_list("kind", "code", "is_user_fault")
    seen = [fault_classes.SeenFault(kind=kind, code=code, by_program=user) for kind, code, user in rows]
    return fault_classes.choose(seen, returned=validator.registered().is_back_from_repair(context.node))
