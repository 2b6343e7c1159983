"""The NCCL tests of a validation: begun when its agents' checks have passed, and read back as results.

The tests are a plan of preflight, which workers run as Jobs. A node that did not pass its checks is not tested: its
GPUs may not be able to, and its verdict is known.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from kcover import reasons
from kcover.validation import nccl
from kcover.validation.profiles import Profile
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.checks.services import node_checks
from kcover_portal.fleet import queries as fleet
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import nccl_plans, pair_plans

UNIT = "GB/s"
PAUSED = "paused"

Results = list[dict[str, Any]]  # as they are stored


def go_on(row: Validation, profile: Profile, passed: Sequence[ValidatedNode], *, now: datetime) -> bool:
    """Begins the tests of the nodes that passed their checks. Returns whether the validation waits for them.

    It also waits while the portal is paused, and while another plan of pair tests has a node.
    """
    if row.nccl_plan is not None:
        return row.nccl_plan.state == PairPlan.State.RUNNING
    if not profile.nccl_limits or why_not(row) is not None:
        return False
    nodes = [one.node for one in passed if _tests_of(one, profile)]
    if not nodes:
        return False
    if fleet.mode_now(row.cluster)[0] == PAUSED:
        return True
    with contextlib.suppress(pair_plans.PlanRefused), transaction.atomic():
        mine = Validation.objects.filter(pk=row.pk, state=Validation.State.RUNNING, nccl_plan=None)
        if mine.select_for_update(no_key=True).exists():
            reason, limits = f"validation {row.pk}", profile.nccl_limits
            plan = nccl_plans.begin(row.cluster, nodes, limits, reason=reason, actor=row.requested_by, now=now)
            mine.update(nccl_plan=plan)
    return True


def why_not(row: Validation) -> reasons.Reason | None:
    """Why the cluster of the validation runs no NCCL tests; None if it does. A pause ends, so it is no reason."""
    cluster = row.cluster
    if not cluster.nccl_image:
        return reasons.of("pair_no_image", cluster=cluster.name)
    mode, _ = fleet.mode_now(cluster)
    if mode in fleet.MODES_WITHOUT_WRITES and mode != PAUSED:
        return reasons.of("pair_mode", cluster=cluster.name, mode=reasons.of(f"mode_{mode}"))
    return None


def results(row: Validation, profile: Profile, nodes: Sequence[ValidatedNode]) -> dict[int, Results]:
    """The results of the NCCL tests of the profile by the key of the ValidatedNode, once they have ended."""
    measured = nccl_plans.results(row.nccl_plan) if row.nccl_plan is not None else {}
    none = why_not(row)
    found: dict[int, Results] = {}
    for one in nodes:
        read = {result.check: result for result in measured.get(one.node.name, ())}
        skipped = none if row.nccl_plan is None and none is not None else reasons.of("nccl_after_failure")
        found[one.pk] = [
            _stored(read[name]) if name in read else node_checks.skipped(name, _cannot(one, name) or skipped)
            for name in profile.nccl_limits
        ]
    return found


def cancel(row: Validation, *, actor: str, reason: str, now: datetime) -> None:
    """Cancels the tests of a validation that ends without a verdict."""
    plan = row.nccl_plan
    if plan is not None:
        with contextlib.suppress(pair_plans.PlanRefused):  # it has ended
            pair_plans.cancel(plan, actor=actor, reason=reason, now=now)


def _tests_of(one: ValidatedNode, profile: Profile) -> list[str]:
    """The NCCL tests of the profile that the node can have."""
    return [name for name in profile.nccl_limits if _cannot(one, name) is None]


def _cannot(one: ValidatedNode, name: str) -> reasons.Reason | None:
    """Why the node cannot have the test."""
    least = 2 if name == nccl.NODE else 1
    return reasons.of("nccl_too_few_gpus", least=least, count=one.node.gpus) if one.node.gpus < least else None


def _stored(result: nccl_plans.Result) -> dict[str, Any]:
    measured = [test for test in result.tests if test.best is not None and test.device]
    best = max(measured, key=lambda test: test.best or 0.0, default=None)
    status, why = (_alone if result.check == nccl.NODE else _in_pairs)(result, measured)
    stored = node_checks.stored(result.check, status, why)
    if best is not None:
        stored |= {"value": best.best, "unit": UNIT, node_checks.BUSBW: best.busbw}
    return stored


def _alone(result: nccl_plans.Result, measured: Sequence[PairTest]) -> tuple[str, reasons.Reason]:
    """The status of the test on the node alone, and why."""
    if not measured or result.state == nccl.ERROR:
        return _error(result)
    test = measured[0]
    given: Mapping[str, reasons.Value] = {"device": test.device, "busbw": f"{test.best:g}"}
    if result.limit is None:
        return "warn", reasons.of("nccl_no_limit", **given)
    status = "fail" if result.state == nccl.FAILED else "pass"
    return status, reasons.of("nccl_measured", limit=f"{result.limit:g}", **given)


def _in_pairs(result: nccl_plans.Result, measured: Sequence[PairTest]) -> tuple[str, reasons.Reason]:
    """The status of the tests with partners, and why."""
    failed = sum(test.state == PairTest.State.FAILED for test in measured)
    if result.state == nccl.ERROR:
        return ("error", reasons.of("nccl_pair_undecided", failed=failed)) if failed else _error(result)
    if result.limit is None:
        fastest = max(measured, key=lambda test: test.best or 0.0)
        return "warn", reasons.of("nccl_no_limit", device=fastest.device, busbw=f"{fastest.best:g}")
    status = "fail" if result.state == nccl.FAILED else "pass"
    return status, reasons.of("nccl_pairs", slow=failed, ran=len(measured), limit=f"{result.limit:g}")


def _error(result: nccl_plans.Result) -> tuple[str, reasons.Reason]:
    """A result without a measurement: why the last test has none."""
    last = next((test for test in reversed(result.tests) if test.because), None)
    if last is not None:
        return "error", reasons.from_json(last.because)
    return "error", reasons.of("nccl_cancelled" if result.tests else "nccl_no_partner")
