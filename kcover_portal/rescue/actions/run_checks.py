"""run_checks: the node's agent runs health checks now, and their results are part of the proof.

A failed check is a fault of the node and fails the proof. A check that broke, that nobody ran, or that had nothing to
look at says nothing about the node, and a person is asked (invariant 42).
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from kcover_portal.fleet.models import Command
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.drivers import agent
from kcover_portal.rescue.actions.outcome import Done, Failed, Hold, Outcome, Wait

PERIODIC = ("remapped", "gpupower", "pciebw", "dcgm")  # what agents run each hour unless told otherwise
WITHIN = timedelta(hours=1)  # an agent that comes up after a reboot, and DCGM's second level
POLL_SECONDS = 2.0
NAMED = 5
TOLD = ("name", "device", "value", "unit", "message")

Result = Mapping[str, Any]


def run(context: Context) -> Outcome:
    """Asks once, then waits for the results."""
    marking.restate(context, "verifying")
    key = agent.key_of(context, "checks")
    named: list[str] = context.step.args.get("checks", [])
    if "asked" not in context.step.progress:
        args = {"checks": named or list(PERIODIC)}

        def ask() -> str:
            return agent.offer(context, "run_check", key=key, args=args, within=WITHIN)

        context.remember(asked=context.write("run_checks", ask, data={"key": key, **args}))
        return Wait(POLL_SECONDS, f"asked for by {context.step.progress['asked']}")
    command = agent.answer(context, key=key)
    if command is None:
        return Wait(POLL_SECONDS, f"asked for by {context.step.progress['asked']}; no results yet")
    if command.state != Command.State.DONE:
        return Hold(f"the checks were not run: {command.state}: {command.message or 'no reason given'}")
    return _judge(command.output.get("checks"), named)


def _judge(results: object, named: Collection[str]) -> Outcome:
    """What the results prove."""
    found = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    by_status: dict[str, list[Result]] = {}
    for one in found:
        by_status.setdefault(str(one.get("status")), []).append(one)
    if "fail" in by_status:
        return Failed(f"checks failed: {_say(by_status['fail'])}")
    if "error" in by_status:
        return Hold(f"checks broke, which says nothing about the node: {_say(by_status['error'])}")
    missing = sorted(set(named) - {str(one.get("name")) for one in found})
    if missing:
        return Hold(f"the agent has no check {', '.join(missing)}")
    if not by_status.keys() & {"pass", "warn"}:
        why = _say(by_status["skipped"]) if "skipped" in by_status else "no result came back"
        return Hold(f"nothing was proved: {why}")
    return Done("; ".join(f"{len(ones)} {status}" for status, ones in sorted(by_status.items())))


def _say(results: Collection[Result]) -> str:
    words = [
        " ".join(
            str(one[key]) for key in ("name", "device", "value", "unit", "message") if one.get(key) not in (None, "")
        )
        for one in results
    ]
    return "; ".join(words[:NAMED]) + (f"; and {len(words) - NAMED} more" if len(words) > NAMED else "")
