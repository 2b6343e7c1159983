"""The performance of jobs: what opens a drop, which node it accuses, what ends it, and what never opens one."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from kcover.jobs import performance
from kcover.jobs.performance import Limits, Past, Reading

START = datetime(2026, 11, 30, 8, tzinfo=UTC)
LIMITS = Limits()
NODES = ("a", "b", "c", "d")
STEP = timedelta(seconds=30)


class Job:
    """A job that is read every 30 s."""

    def __init__(self, *, limits: Limits = LIMITS) -> None:
        self.past, self.at, self.limits = Past(), START, limits
        self.attempt, self.nodes, self.shape = 0, NODES, "4"

    def restart(self, *nodes: str) -> None:
        self.attempt, self.nodes = self.attempt + 1, nodes

    def read(self, cost: float, by_node: Mapping[str, float] | None = None, *, others_slow: bool = False) -> Past:
        reading = Reading(
            at=self.at,
            attempt=str(self.attempt),
            shape=self.shape,
            nodes=frozenset(self.nodes),
            cost=cost,
            by_node=by_node or {},
        )
        self.past = performance.judge(self.past, reading, self.limits, others_slow=others_slow)
        self.at += STEP
        return self.past

    def run(
        self,
        minutes: float,
        cost: float = 1.0,
        by_node: Mapping[str, float] | None = None,
        *,
        others_slow: bool = False,
    ) -> str | None:
        """The node that the drop accuses, "" if none; None without a drop."""
        self.past = Past.from_json(json.loads(json.dumps(self.past.to_json())))
        for _ in range(int(minutes * 2)):
            self.read(cost, by_node, others_slow=others_slow)
        return self.past.drop.node if self.past.drop else None


def even(cost: float = 1.0, **others: float) -> dict[str, float]:
    return {**dict.fromkeys(NODES, cost), **others}


def moved(*, slow: float = 2.0, minutes: float = 25, others_slow: bool = False) -> Job:
    """A job that was normal on a, b, c, d, and runs on x in place of d."""
    job = Job()
    assert job.run(30) is None
    job.restart("a", "b", "c", "x")
    job.run(minutes, slow, others_slow=others_slow)
    return job


def found(job: Job) -> str | None:
    return job.past.drop.node if job.past.drop else None


def test_a_drop_that_follows_a_new_node_accuses_it() -> None:
    assert found(moved()) == "x"
    assert found(moved(slow=1.2)) is None
    assert found(moved(minutes=19)) is None  # warm-up, and then not long enough
    assert found(moved(others_slow=True)) == ""


def test_the_drop_ends_when_the_job_is_normal_again() -> None:
    job = moved()
    assert job.run(8, 1.0) == "x"
    assert job.run(3, 1.0) is None
    gone = moved()
    gone.restart(*NODES)
    assert gone.run(19, 1.0) == "x"
    assert gone.run(2, 1.0) is None
    assert performance.ended(moved().past).drop is None


def test_a_job_that_stays_slow_without_the_node_clears_it() -> None:
    job = moved()
    job.restart(*NODES)
    assert job.run(25, 2.0) == ""


@pytest.mark.parametrize("nodes", [("a", "b", "y", "x"), NODES])
def test_two_new_nodes_or_none_are_not_accused(nodes: tuple[str, ...]) -> None:
    job = Job()
    job.run(30)
    job.restart(*nodes)
    assert job.run(25, 2.0) == ""


def test_a_node_with_which_the_job_was_normal_is_not_accused() -> None:
    job = Job()
    job.run(30)
    job.restart("a", "b", "c", "x")
    job.run(15)
    job.restart(*NODES)
    job.run(30)
    job.restart("a", "b", "c", "x")
    assert job.run(25, 2.0) == ""
    late = Job()
    late.run(30)
    late.restart("a", "b", "c", "x")
    late.run(12)
    assert late.run(25, 2.0) == ""  # it was normal in this attempt


def test_a_job_that_was_slow_before_accuses_no_new_node() -> None:
    job = Job()
    job.run(30)
    job.run(15, 2.0)
    job.restart("a", "b", "c", "x")
    assert job.run(25, 2.0) == ""


def test_another_shape_is_another_past() -> None:
    job = Job()
    job.run(30)
    job.shape = "4 batch=2"
    job.restart("a", "b", "c", "x")
    assert job.run(40, 2.0) is None
    assert found(moved()) == "x"
    ends = moved()
    ends.shape = "5"
    assert ends.run(0.5, 2.0) is None


def test_one_node_that_is_slower_than_its_peers_is_accused() -> None:
    job = Job()
    job.run(30, 1.0, even())
    assert job.run(9, 1.0, even(c=2.0)) is None
    assert job.run(2, 1.0, even(c=2.0)) == "c"
    assert job.run(8, 1.0, even()) == "c"
    assert job.run(3, 1.0, even()) is None


@pytest.mark.parametrize("by_node", [even(c=2.0, d=2.0), {"a": 1.0, "b": 1.0, "c": 2.0}])
def test_two_slow_nodes_and_few_peers_accuse_none(by_node: dict[str, float]) -> None:
    job = Job()
    job.run(30, 1.0, even())
    assert job.run(30, 1.0, by_node) is None


def test_a_job_whose_nodes_always_differ_accuses_none() -> None:
    job = Job()
    assert job.run(60, 1.0, even(a=2.0)) is None


def test_a_slow_phase_a_gap_and_a_clock_set_back_open_nothing() -> None:
    job = Job()
    job.run(30)
    for _ in range(10):
        assert job.run(9, 3.0) is None  # an evaluation
        assert job.run(2) is None
    for _ in range(10):
        assert job.run(6, 3.0) is None
        job.at += timedelta(minutes=5)
    back = Job()
    back.run(30)
    for _ in range(10):
        assert back.run(9, 3.0) is None
        back.at -= timedelta(minutes=9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0, 1e300])
def test_a_value_that_is_no_cost_changes_nothing(bad: float) -> None:
    job = Job()
    job.run(30)
    before = job.past
    assert job.read(bad) == before
    assert job.read(1.0, even(a=bad)) == before


def test_too_short_a_past_opens_nothing() -> None:
    job = Job()
    job.run(14)
    assert job.run(60, 2.0) is None


def test_what_is_kept_is_bounded() -> None:
    job = Job(limits=Limits(warm_up=timedelta(0)))
    for _ in range(performance.MAX_ATTEMPTS + 1):
        job.restart(*NODES)
        job.run(31, 1.0, even())
    assert len(job.past.attempts) == performance.MAX_ATTEMPTS
    assert {len(one.costs) for one in job.past.attempts} == {performance.MAX_COSTS}
    assert len(json.dumps(job.past.to_json())) < 20_000


COSTS = st.lists(st.sampled_from([0.5, 1.0, 1.25, 1.5, 2.0, 4.0]), min_size=1, max_size=12)
_PHASES = st.lists(st.tuples(st.integers(2, 30), st.lists(st.sampled_from([1.0, 1.25, 2.0]), min_size=5, max_size=5)))
PHASES = _PHASES.map(lambda phases: [(40, [1.0] * 5), *phases][:6])


def replay(phases: Iterable[tuple[int, list[float]]], *, scale: float = 1.0, names: str = "abcde") -> list[str | None]:
    """The drop after each phase of a job on five nodes, every second one in an attempt without the first of them."""
    job, seen = Job(limits=Limits(warm_up=timedelta(minutes=1))), []
    for number, (minutes, costs) in enumerate(phases):
        job.restart(*(names[1:] if number % 2 else names[:4]))
        by_node = {name: cost * scale for name, cost in zip(names, costs, strict=True) if name in job.nodes}
        seen.append(job.run(minutes, max(by_node.values()), by_node))
    return seen


@settings(max_examples=15, deadline=None)
@given(PHASES, st.sampled_from([2.0**-20, 0.25, 8.0, 2.0**20]))
def test_the_unit_of_a_cost_changes_nothing(phases: list[tuple[int, list[float]]], scale: float) -> None:
    assert replay(phases, scale=scale) == replay(phases)


@settings(max_examples=15, deadline=None)
@given(PHASES, st.permutations("abcde"))
def test_the_names_of_nodes_change_nothing(phases: list[tuple[int, list[float]]], names: list[str]) -> None:
    renamed = dict(zip("abcde", names, strict=True))
    expected = [renamed.get(node, node) if node else node for node in replay(phases)]
    assert replay(phases, names="".join(names)) == expected


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-9, 1e9), st.lists(st.integers(1, 25), max_size=5))
def test_a_constant_job_never_opens(cost: float, restarts: list[int]) -> None:
    job = Job()
    for number, minutes in enumerate([30, *restarts]):
        job.restart(*NODES[:3], f"n{number}")
        assert job.run(minutes, cost, dict.fromkeys(job.nodes, cost)) is None


@settings(max_examples=20, deadline=None)
@given(COSTS)
def test_a_drop_on_all_nodes_accuses_none(costs: list[float]) -> None:
    job = Job()
    job.run(30, 1.0, even())
    for cost in costs:
        assert not job.run(12, cost, even(cost))
