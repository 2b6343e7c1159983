"""The verdict of a validation: a pure function of the results of a node's checks and probes.

Only a result from hardware is proof. A node passes if each required check has results and all of them are good. A check
that was skipped, that broke or that nobody answered proves nothing, so the node does not pass, but has not failed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kcover import reasons
from kcover.faults.fault import Check
from kcover.validation import nccl
from kcover.validation.profiles import Profile

PASSED, FAILED, ERROR = "passed", "failed", "error"
HARDWARE, NONE = "hardware", "none"  # kinds of proof
AGENT, JOB, PAIR = "agent", "job", "pair"  # who reports a result: root on the node can forge those of AGENT and JOB
GOOD = ("pass", "warn")
MAX_NAMED = 5  # results in a reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state``: PASSED, FAILED or ERROR. ``proof``: HARDWARE if a check of the profile measured something, else NONE.

    ``because``: why the node did not pass; empty if it did.
    """

    state: str
    proof: str
    because: tuple[reasons.Reason, ...] = ()


def proof_of(status: str) -> str:
    """What a result with this status proves: HARDWARE if something was measured, else NONE."""
    return HARDWARE if status in (*GOOD, "fail") else NONE


def reporter_of(test: str) -> str:
    """The reporter of an NCCL test: JOB (a pod on the node), or PAIR (two nodes that measure together)."""
    return PAIR if test == nccl.PAIR else JOB


def of_node(profile: Profile, checks: Collection[Check], probes: Collection[Check] = ()) -> Verdict:
    """The verdict on one node. ``checks``: the answer of its agent, and its NCCL tests. ``probes``: current results.

    A failure of any kind wins. A probe that was skipped has nothing behind it and does not count.
    """
    answered, required = {one.name for one in checks}, {one.name for one in profile.checks if one.required}
    every = (*checks, *probes)
    broke = [_named(one) for one in every if one.status not in (*GOOD, "fail", "skipped")]
    missing = [name for name in (*profile.names, *profile.nccl_limits) if name not in answered]
    failed = [_named(one) for one in every if one.status == "fail"]
    found = (
        ("validation_failures", failed),
        ("validation_errors", [*broke, *missing]),
        ("validation_skipped", [_named(one) for one in checks if one.status == "skipped" and one.name in required]),
    )
    measured = any(proof_of(one.status) == HARDWARE for one in checks)
    because = tuple(reasons.of(code, checks=reasons.named(names, most=MAX_NAMED)) for code, names in found if names)
    state = FAILED if failed else ERROR if because else PASSED
    return Verdict(state, HARDWARE if measured else NONE, because)


def of_nodes(states: Iterable[str]) -> str:
    """The verdict on all nodes: PASSED only if every node passed, FAILED if one failed, else ERROR."""
    found = set(states)
    if FAILED in found:
        return FAILED
    return PASSED if found == {PASSED} else ERROR


def _named(result: Check) -> str:
    return f"{result.name} ({result.device})" if result.device else result.name
