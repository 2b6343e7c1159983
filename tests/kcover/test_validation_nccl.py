"""NCCL tests of a validation: where the default limits hold, who meets whom, and what the tests prove."""

from collections.abc import Collection

import pytest

from kcover.validation import nccl
from kcover.validation.nccl import Meeting

H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("wanted", "gpus", "device", "found"),
    [
        (None, 8, H100, 400.0),
        (120.0, 8, H100, 120.0),
        (120.0, 2, "NVIDIA A100-SXM4-80GB", 120.0),
        (None, 4, H100, None),
        (None, 8, "NVIDIA H100 PCIe", None),
        (None, 8, "NVIDIA H200 NVL", None),
        (None, 8, "NVIDIA A100-SXM4-80GB", None),
    ],
)
def test_the_default_limit_holds_only_where_sound_nodes_reach_it(
    wanted: float | None, gpus: int, device: str, found: float | None
) -> None:
    assert nccl.limit(nccl.NODE, wanted, gpus=gpus, device=device) == found


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ("", "error"),
        ("e", "error"),
        ("p", "passed"),
        ("ep", "passed"),
        ("f", "error"),
        ("ff", "failed"),
        ("fp", "error"),
        ("fpp", "passed"),
        ("fpf", "failed"),
        ("fef", "failed"),
    ],
)
def test_a_first_failure_is_decided_by_two_of_three(states: str, found: str) -> None:
    names = {"p": nccl.PASSED, "f": nccl.FAILED, "e": nccl.ERROR}
    meetings = [Meeting(("a", f"x{place}"), names[state]) for place, state in enumerate(states)]
    assert nccl.outcome("a", [*meetings, Meeting(("b", "c"), nccl.FAILED)]) == found


def settle(
    nodes: Collection[str], *, slow: Collection[str] = (), busy: Collection[str] = (), spares: Collection[str] = ()
) -> tuple[dict[str, str], int]:
    """The outcome by node, and the number of tests, if slow nodes fail with everybody and busy partners cannot test."""
    meetings: list[Meeting] = []
    while pairs := nccl.next_pairs(sorted(nodes), meetings, spares=sorted(spares)):
        taken = [name for pair in pairs for name in pair]
        assert len(taken) == len(set(taken))
        for pair in pairs:
            bad = not set(slow).isdisjoint(pair)
            state = nccl.ERROR if not set(busy).isdisjoint(pair) else nccl.FAILED if bad else nccl.PASSED
            meetings.append(Meeting(pair, state))
    return {node: nccl.outcome(node, meetings) for node in nodes}, len(meetings)


def test_sound_nodes_are_tested_once_and_slow_nodes_are_separated_from_their_partners() -> None:
    assert settle("abcd") == (dict.fromkeys("abcd", "passed"), 2)
    assert settle("abc") == (dict.fromkeys("abc", "passed"), 2)
    found, _ = settle("abcdef", slow="c")
    assert found == {**dict.fromkeys("abdef", "passed"), "c": "failed"}
    found, _ = settle("ab", slow="ab", spares="xyz")
    assert found == {"a": "failed", "b": "failed"}
    assert settle("a", slow="x", spares="xyz") == ({"a": "passed"}, 3)


def test_without_a_second_partner_nothing_is_decided() -> None:
    assert settle("a") == ({"a": "error"}, 0)
    assert settle("ab", slow="b") == ({"a": "error", "b": "error"}, 1)
    assert settle("a", busy="xyz", spares="xyz") == ({"a": "error"}, 3)
    assert settle("a", busy="stuvwxy", spares="stuvwxyz") == ({"a": "error"}, nccl.MAX_TRIES)


def test_partners_behind_the_same_leaf_switch_come_first() -> None:
    places = {"a": "leaf-1", "x": "leaf-2", "y": "leaf-1"}
    assert nccl.next_pairs(["a"], [], spares=["x", "y"], domains=places) == [("a", "y")]
