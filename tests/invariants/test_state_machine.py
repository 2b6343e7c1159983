"""Acts at random on a bed: Hypothesis chooses, shrinks and prints what breaks an invariant; a seeded walk adds length.

A run walks an eighth of 10,000 steps, chosen by its commit; `make verify` walks all. The seed is always the same, so
that a failure is caused by the change. ``make soak`` searches for unknown failures with new seeds, for any length. Any
of its episodes can be repeated here.
"""

import os
import random
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.pool import Pool
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from bench import soak
from kcover.decisions import match
from kcover.faults import device
from kcover.faults.device import Device, Known
from kcover.faults.fault import Fault
from kcover.nodes.marks import Marks
from kcover_portal.checks.models import Validation
from kcover_portal.checks.services.rescue_validations import RescueValidations
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.services import late_reports, source_ingestion
from kcover_portal.incidents.services.timed_fault import TimedFault
from kcover_portal.kube import port
from kcover_portal.machines.services.replacements import Replacer
from kcover_portal.repairs.services.rescue_repairs import RescueRepairs
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import drain, verify
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import device_isolations
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.validator import Verdict
from tests.invariants import episode_end, people_events, walk
from tests.invariants.conftest import DATABASES
from tests.invariants.events import ACTS
from tests.invariants.testbed import Bed
from tests.share import in_share

STEPS = 10_000
TAKE_BACK = node_marks.take_back
REFUSAL = match.fault_refusal
SHARES = 8
EPISODES = [number for number in range(STEPS // soak.STEPS) if in_share(number, shares=SHARES)]
NAMES = [name for name, (weight, _) in ACTS.items() for _ in range(weight)]
SEED = os.environ.get("TEST_SEED", "kcover")

pytestmark = pytest.mark.django_db


class Machine(RuleBasedStateMachine):
    """Each step is one act with a seed of its own, so that Hypothesis can leave any of them out."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = transaction.atomic()
        self.rows.__enter__()
        self.bed = Bed()

    @rule(name=st.sampled_from(NAMES), seed=st.integers(0, 2**31))
    def act(self, name: str, seed: int) -> None:
        walk.take(self.bed, (name, seed))

    def teardown(self) -> None:
        """What was begun ends well, or waits for a person."""
        try:
            episode_end.settle(self.bed, random.Random(1))
        finally:
            self.bed.uninstall()
            connection.run_on_commit.clear()
            transaction.set_rollback(True)
            self.rows.__exit__(None, None, None)


def run_machine() -> str:
    """Returns the error and the shortest way to it that Hypothesis found; "" if all held."""
    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=10,
                stateful_step_count=50,
                database=None,
                derandomize="TEST_SEED" not in os.environ,
                deadline=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception:
        return traceback.format_exc()
    return ""


def test_random_walks_hold_the_invariants(soak_process: Pool) -> None:
    assert soak_process.apply(run_machine) == ""


@pytest.mark.parametrize("number", [number for number in EPISODES if number % DATABASES == 0])
def test_a_long_walk_holds_the_invariants(number: int) -> None:
    """TEST_SEED: another walk."""
    print(f"seed {SEED}, episode {number}")
    must_hold(walk.episode(SEED, number, soak.STEPS))


@pytest.mark.parametrize("number", [number for number in EPISODES if number % DATABASES])
def test_a_long_walk_in_memory_holds_the_invariants(soak_process: Pool, number: int) -> None:
    """The rest of the walk. It takes half the time that it takes on PostgreSQL."""
    print(f"seed {SEED}, episode {number}")
    must_hold(soak_process.apply(soak.play, ((SEED, number),)))


def must_hold(failed: soak.Failure) -> None:
    assert failed is None, f"TEST_SEED={SEED}: {failed[0]}\n{failed[1]}"


def evict_all(pods: Sequence[port.Pod]) -> list[port.Pod]:
    return list(pods)


def no_guards(_context: Context, *, destructive: bool) -> None:
    return None


def always_ours(marks: Marks, *, was_unschedulable: bool) -> Marks:
    return replace(marks, cordon=True, foreign_cordon=False)


def another_key(step: Step) -> str:
    return f"{step.spec.request_key}-{step.rescue_id}-{step.index}-{step.attempts}"


def always_granted(*_args: object, **_more: object) -> bool:
    return True


def nobody_failed(*_args: object, **_more: object) -> list[object]:
    return []


def always_passed(_self: RescueValidations, order_key: str) -> Verdict:
    return Verdict(validation=Validation.objects.get(key=order_key).pk, state="passed")


def frees_always(*args: Any, **more: Any) -> Any:
    return TAKE_BACK(*args, **{**more, "first_work": True})


def no_rule_of_others(*_args: object) -> dict[str, int]:
    return {}


def closed_at_once(_self: RescueRepairs, _repair: int) -> str:
    return "closed"


def first_object(replacer: Replacer, _node: port.Node) -> port.CustomObject:
    return replacer.cluster.custom_objects(replacer.kind)[0]


def ever_granted(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    yes = rescue.approvals.filter(approved=True, step=step.index)
    return rescue.gate != step.index or yes.count() >= rescue.approvers


def at_arrival(node: Node, seen: Sequence[TimedFault], *, now: datetime) -> dict[str, list[TimedFault]]:
    return {node.boot_id: [replace(one, earliest=now) for one in seen]}


def of_any_device(*_args: object) -> bool:
    return True


def whatever_its_weight(*args: Any, **more: Any) -> Any:
    return REFUSAL(*args, **{**more, "application": False, "harmless": False})


def first_gpu(seen: Device, inventory: Iterable[Known]) -> Device:
    gpu = next(iter(inventory), None)
    return replace(seen, slot=gpu.slot, uuid=gpu.uuid) if seen.unit and gpu is not None else seen


# Each row replaces one function by a broken one. It names the invariants that must find it, the acts
# to walk with, and the first episode: one that found it soon.
BROKEN: tuple[tuple[object, str, object, str, str, int], ...] = (
    (drain, "in_the_way", evict_all, "24", "fault watch_and_work", 3),
    (Context, "check_guards", no_guards, "37|48", "fault watch_and_work mode exclude", 0),
    (Marks, "with_cordon", always_ours, "18", "fault quiet kubectl", 3),
    (approvals, "granted", always_granted, "43", "fault watch_and_work", 1),
    (verify, "_agent_is_fresh", always_granted, "38", "fault watch_and_work", 24),
    (incidents, "faults_since", nobody_failed, "38", "fault watch_and_work heartbeat", 8),
    (RescueValidations, "verdict", always_passed, "38", "fault watch_and_work quiet", 14),
    (RescueValidations, "verdict", always_passed, "51", "burn_in watch_and_work sweep quiet", 6),
    (Replacer, "object_of", first_object, "53", "fault watch_and_work quiet", 11),
    (device_isolations, "of_others", no_rule_of_others, "54", "isolated_gpu watch_and_work quiet", 0),
    (RescueRepairs, "state", closed_at_once, "52", "handed_away_fault watch_and_work quiet", 2),
    (late_reports, "by_boot", at_arrival, "55", "fault machine watch tell", 3),
    (node_marks, "take_back", frees_always, "51", "burn_in fault watch_and_work quiet", 9),
    (source_ingestion, "_covers", of_any_device, "04", "tell heartbeat", 1),
    (device, "joined", first_gpu, "06", "tell heartbeat", 0),
    (match, "fault_refusal", whatever_its_weight, "42", "tell watch_and_work", 0),
)


def walk_broken(number: int) -> str:
    """Walks with an engine of ``BROKEN``; returns the first violation that is found, "" if there is none."""
    where, name, broken, _, acts, first = BROKEN[number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, broken)
        for episode in range(first, first + 30):
            try:
                walk.play(walk.steps_of(f"broken {episode}", 40, names=acts.split()))
            except walk.Violation as violation:
                return str(violation)
            except Exception as error:  # one that cannot be unpickled would leave the caller waiting
                return f"unexpected: {error!r}"
    return ""


@pytest.mark.parametrize("number", range(len(BROKEN)), ids=[name for _, name, *_ in BROKEN])
def test_a_broken_engine_is_found(soak_process: Pool, number: int) -> None:
    """A walk that finds nothing proves something only if it finds what is there."""
    assert re.search(f"invariant ({BROKEN[number][3]})", soak_process.apply(walk_broken, (number,)))


def test_a_second_reboot_request_for_one_boot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets under which key it asked, and an answer that was lost."""
    monkeypatch.setattr(agent, "key_of", another_key)
    with walk.fresh_bed() as bed:
        bed.kube.fail("ensure_job", port.Unavailable("timed out", ambiguous=True), after=True)
        bed.kube.finish_job = lambda *_job, **_more: None  # the machine is slow: its boot id stays as it is
        bed.restart = lambda _node: None
        bed.agent("gpu-1", Fault(kind="xid", code=62, pci="0000:4e:00", source="kmsg"))
        with pytest.raises(walk.Violation, match="invariant 16"):
            take_all(bed, [("watch_and_work", number) for number in range(10)])


def test_an_expired_approval_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that counts the votes and not their age, and people who were long gone when it went on."""
    monkeypatch.setattr(approvals, "granted", ever_granted)
    with walk.fresh_bed() as bed:
        bed.agent("gpu-1", Fault(kind="xid", code=95, pci="0000:4e:00", source="kmsg"))
        take_all(bed, [("watch_and_work", 1)])
        rescue = Rescue.objects.get(hold="approval")
        for who in people_events.PEOPLE[: rescue.approvers]:
            services.approve(rescue, actor=who, reason="so", now=bed.now)
        bed.now += timedelta(seconds=rescue.approval_seconds)
        with pytest.raises(walk.Violation, match="invariant 43"):
            take_all(bed, [("watch_and_work", 2)])


def take_all(bed: Bed, steps: Sequence[walk.Step]) -> None:
    for step in steps:
        walk.take(bed, step)
