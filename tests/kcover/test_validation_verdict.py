"""The verdict of a validation, over all combinations of results: nothing but measurements lets a node pass."""

from collections.abc import Iterator
from itertools import product

import pytest

from kcover.faults.fault import CHECK_STATUSES, Check
from kcover.validation import node_verdict, profiles

REQUIRED, OPTIONAL, PROBE = "pciebw", "remapped", "nvlink"
PROFILE = profiles.parse({"checks": [{"check": REQUIRED}, {"check": OPTIONAL, "required": False}], "probes": [PROBE]})
GOOD, ABSENT = ("pass", "warn"), ""
ANSWERS = (*CHECK_STATUSES, ABSENT, "unheard-of")


def results(**statuses: str) -> list[Check]:
    return [Check(name=name, status=status) for name, status in statuses.items() if status != ABSENT]


def every() -> Iterator[tuple[str, str, str, str]]:
    """The status of the required check on two GPUs, of the optional one and of the probe."""
    return product(ANSWERS, ANSWERS, ANSWERS, ANSWERS)


def judge(first: str, second: str, optional: str, probe: str) -> node_verdict.Verdict:
    checks = [*results(**{REQUIRED: first}), *results(**{REQUIRED: second}), *results(**{OPTIONAL: optional})]
    return node_verdict.of_node(PROFILE, checks, results(**{PROBE: probe}))


def test_a_node_passes_only_by_measurements() -> None:
    passed = {statuses for statuses in every() if judge(*statuses).state == node_verdict.PASSED}
    one_or_two = [(a, b) for a, b in product((*GOOD, ABSENT), repeat=2) if a or b]
    optional, probe = (*GOOD, "skipped"), (*GOOD, "skipped", ABSENT)
    assert passed == {(*pair, *rest) for pair in one_or_two for rest in product(optional, probe)}


def test_a_failure_of_any_kind_wins_and_the_rest_is_not_proven() -> None:
    for statuses in every():
        verdict = judge(*statuses)
        if "fail" in statuses:
            assert verdict.state == node_verdict.FAILED, statuses
            assert verdict.because[0].code == "validation_failures"
        elif verdict.state != node_verdict.PASSED:
            assert verdict.state == node_verdict.ERROR, statuses
        assert bool(verdict.because) == (verdict.state != node_verdict.PASSED)


def test_a_measured_check_is_a_proof_of_hardware() -> None:
    for statuses in every():
        measured = {*statuses[:3]} & {*GOOD, "fail"}
        assert judge(*statuses).proof == ("hardware" if measured else "none"), statuses
    assert {status: node_verdict.proof_of(status) for status in CHECK_STATUSES} == {
        "pass": "hardware",
        "warn": "hardware",
        "fail": "hardware",
        "error": "none",
        "skipped": "none",
    }


def test_the_reasons_name_the_results() -> None:
    checks = [
        Check(name=REQUIRED, device="GPU-1", status="fail"),
        Check(name=REQUIRED, device="GPU-2", status="skipped"),
        Check(name="gpu", device="GPU-3", status="fail"),  # reported beside what was asked for
        Check(name=OPTIONAL, status="error"),
    ]
    verdict = node_verdict.of_node(PROFILE, checks, [])
    assert [(why.code, dict(why.params)["checks"]) for why in verdict.because] == [
        ("validation_failures", "pciebw (GPU-1), gpu (GPU-3)"),
        ("validation_errors", "remapped"),
        ("validation_skipped", "pciebw (GPU-2)"),
    ]
    silent = node_verdict.of_node(PROFILE, [])
    assert dict(silent.because[0].params) == {"checks": "pciebw, remapped"}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["passed"], "passed"),
        (["passed", "passed"], "passed"),
        (["passed", "error"], "error"),
        (["passed", "error", "failed"], "failed"),
        (["waiting", "passed"], "error"),
        ([], "error"),
    ],
)
def test_the_verdict_on_all_nodes(states: list[str], state: str) -> None:
    assert node_verdict.of_nodes(states) == state
