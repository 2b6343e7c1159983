"""run_checks: the node's agent runs health checks now, and their results are part of the verification.

A failed check is a fault of the node and fails the rescue. A check that broke, did not run, or had nothing to check
says nothing about the node, and a person is asked (invariant 42).
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from kcover import audit, reasons
from kcover.actions import run_checks as core
from kcover.nodes.node_stage import Stage
from kcover_portal.fleet.models import Command
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Poll

PERIODIC = ("remapped", "gpupower", "pciebw", "dcgm")  # what agents run each hour unless told otherwise
TIME_LIMIT = timedelta(hours=1)  # includes an agent that starts after a reboot, and DCGM's second level
POLL_SECONDS = 2.0
MAX_NAMES_SHOWN = 5
SHOWN = ("name", "device", "value", "unit", "message")
COUNTED = {"pass": "checks_passed", "warn": "checks_warned", "skipped": "checks_skipped"}

Result = Mapping[str, Any]


def run(context: Context) -> Outcome:
    """Requests the checks once, then waits for the results."""
    node_marks.restate(context, Stage.VERIFYING)
    key = agent.key_of(context.step)
    named = context.step.args_as(core.Args).checks
    if context.step.progress_as(core.Progress).request is None:
        args = {"checks": list(named or PERIODIC)}

        def ask() -> reasons.Reason:
            return agent.offer(context, "run_check", key=key, args=args, within=TIME_LIMIT)

        wanted = audit.CheckRequest(key=key, checks=tuple(args["checks"]))
        context.remember(request=context.write(audit.Call.RUN_CHECKS, ask, wanted=wanted))
        return Poll(POLL_SECONDS, _requested(context))
    command = agent.answer(context, key=key)
    if command is None:
        return Poll(POLL_SECONDS, _requested(context))
    if command.state != Command.State.DONE:
        return Hold(reasons.of("checks_not_run", why=agent.outcome_of(command)))
    return _judge(command.output.get("checks"), named)


def _requested(context: Context) -> reasons.Reason:
    request = context.step.progress_as(core.Progress).request
    assert request is not None  # stored by the first run
    return reasons.of("checks_requested", request=request)


def _judge(results: object, named: Collection[str]) -> Outcome:
    """The outcome that follows from the results."""
    found = [result for result in results if isinstance(result, dict)] if isinstance(results, list) else []
    by_status: dict[str, list[Result]] = {}
    for result in found:
        by_status.setdefault(str(result.get("status")), []).append(result)
    if "fail" in by_status:
        return Failed(reasons.of("checks_failed", checks=_listed(by_status["fail"])))
    if "error" in by_status:
        return Hold(reasons.of("checks_broken", checks=_listed(by_status["error"])))
    missing = sorted(set(named) - {str(result.get("name")) for result in found})
    if missing:
        return Hold(reasons.of("checks_unknown", checks=", ".join(missing)))
    if not by_status.keys() & {"pass", "warn"}:
        why = _listed(by_status["skipped"]) if "skipped" in by_status else reasons.of("no_results")
        return Hold(reasons.of("checks_inconclusive", why=why))
    results = tuple(
        reasons.of(COUNTED.get(status, "checks_other"), count=len(group)) for status, group in sorted(by_status.items())
    )
    return Done(reasons.of("checks_done", results=results))


def _listed(results: Collection[Result]) -> reasons.Value:
    return reasons.named(
        [" ".join(str(result[key]) for key in SHOWN if result.get(key) not in (None, "")) for result in results],
        most=MAX_NAMES_SHOWN,
    )
