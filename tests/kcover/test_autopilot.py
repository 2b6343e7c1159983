"""Check results in Autopilot's formats, without its bugs."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover.checks import autopilot
from kcover.faults.fault import Check


def check(name: str, status: str, device: str = "", value: float | None = None, message: str = "") -> Check:
    return Check(name=name, status=status, device=device, value=value, message=message)


@pytest.mark.parametrize(
    ("name", "status", "value", "shown"),
    [
        ("pciebw", "pass", 24.5, 24.5),
        ("pciebw", "fail", 3.2, 3.2),
        ("remapped", "pass", 7.0, 0.0),  # the rows are ours, Autopilot's gauge says whether one waits
        ("remapped", "fail", 7.0, 1.0),
        ("gpupower", "warn", 0.0, 0.0),
        ("dcgm", "error", None, None),
        ("dcgm", "skipped", None, None),
        ("pvc", "fail", None, 1.0),
        ("iperf", "pass", 94.2, None),  # as in Autopilot, it has no gauge
        ("xid", "fail", 1.0, None),
    ],
)
def test_the_metric_is_a_measurement_or_zero_or_one(
    name: str, status: str, value: float | None, shown: float | None
) -> None:
    assert autopilot.metric_value(name, status, value) == shown


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([check("pciebw", "pass"), check("dcgm", "skipped")], ["Ok"]),
        ([check("pciebw", "warn")], ["Ok"]),
        (
            [check("pciebw", "fail"), check("pciebw", "pass"), check("gpumem", "fail")],
            ["PCIE Failed", "GPU MEM Test Failed"],
        ),
        ([check("ping", "fail", "10.0.0.2")], ["PING Failed"]),  # Autopilot books it under pciebw
        ([check("dcgm", "error")], ["DCGM Aborted"]),  # what broke is no bad node
        ([check("dcgm", "error"), check("dcgm", "fail")], ["DCGM Failed", "DCGM Aborted"]),
        ([check("dcgm", "skipped")], ["Not checked"]),
        ([], ["Not checked"]),
    ],
)
def test_the_status_names_every_failure(results: list[Check], said: list[str]) -> None:
    assert autopilot.node_status(results) == said


@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [("gpumem", 1, True), ("dcgm", 1, False), ("dcgm", 2, True), ("pciebw", 3, False)],
)
def test_checks_that_need_idle_gpus_are_invasive(name: str, level: int, expected: bool) -> None:
    assert autopilot.is_invasive(name, level=level) is expected


def test_the_time_limit_grows_with_the_level_of_dcgm() -> None:
    assert autopilot.time_limit(["remapped"], level=4) == timedelta(minutes=2)
    assert autopilot.time_limit(["remapped", "dcgm"], level=1) == timedelta(minutes=7)
    assert autopilot.time_limit(["dcgm"], level=4) == timedelta(hours=4)


@pytest.mark.parametrize(
    ("statuses", "label"),
    [({"pass"}, "PASS"), ({"pass", "fail"}, "WARN"), ({"warn", "error"}, "PASS"), ({"error"}, None), (set(), None)],
)
def test_the_label_of_periodic_results(statuses: set[str], label: str | None) -> None:
    assert autopilot.periodic_label(statuses) == label


@pytest.mark.parametrize(
    ("results", "label"),
    [
        ([check("dcgm", "pass")], "PASS"),
        ([check("dcgm", "fail"), check("dcgm", "fail", "gpu3 GPU Memory")], "EVICT"),
        ([check("dcgm", "fail"), check("dcgm", "fail", "gpu3 PCIe")], "EVICT"),
        ([check("dcgm", "fail"), check("dcgm", "fail", "gpu3 Diagnostic")], "WARN"),
        ([check("dcgm", "pass"), check("gpumem", "fail", "GPU-0")], "WARN"),
        ([check("dcgm", "error")], None),
        ([check("dcgm", "skipped")], None),
        ([check("pciebw", "fail", "gpu0 PCIe")], None),  # not an invasive one
    ],
)
def test_the_label_of_an_invasive_run(results: list[Check], label: str | None) -> None:
    assert autopilot.deep_check_label(results) == label


@pytest.mark.parametrize(
    ("test", "fatal", "label"),
    [
        ("memory", autopilot.FATAL_DCGM_TESTS, "EVICT"),  # DCGM 4
        ("GPU Memory", autopilot.FATAL_DCGM_TESTS, "EVICT"),
        ("pcie", autopilot.FATAL_DCGM_TESTS, "EVICT"),
        ("memory_bandwidth", autopilot.FATAL_DCGM_TESTS, "WARN"),
        ("Memory Bandwidth", autopilot.FATAL_DCGM_TESTS, "WARN"),
        ("memtest", autopilot.FATAL_DCGM_TESTS, "WARN"),
        ("targeted_power", autopilot.FATAL_DCGM_TESTS, "WARN"),
        ("targeted_power", ("Targeted Power",), "EVICT"),
        ("GPU Memory", ("memory",), "EVICT"),
        ("Memory Bandwidth", ("memory",), "WARN"),
        ("PCIe", ("Targeted Power",), "WARN"),
        ("PCIe", (), "WARN"),
    ],
)
def test_fatal_tests_are_a_setting_and_match_the_names_of_both_dcgm_versions(
    test: str, fatal: tuple[str, ...], label: str
) -> None:
    results = [check("dcgm", "fail"), check("dcgm", "fail", f"gpu3 {test}")]
    assert autopilot.deep_check_label(results, fatal=fatal) == label


def test_the_label_of_level_3_names_failures_and_time() -> None:
    at = datetime(2026, 11, 21, 8, 5, 9, tzinfo=UTC)
    assert autopilot.level_3_label([check("dcgm", "pass")], at=at) == ("PASS_2026-11-21_08.05.09UTC", "")
    failed = [
        check("dcgm", "fail"),
        check("dcgm", "fail", "gpu0 GPU Memory"),
        check("dcgm", "fail", "gpu3 GPU Memory"),
        check("dcgm", "fail", "gpu3 PCIe"),
        check("dcgm", "warn", "gpu1 PCIe"),
    ]
    assert autopilot.level_3_label(failed, at=at) == ("ERR_2026-11-21_08.05.09UTC", "gpu_memory.0.3 pcie.3")
    assert autopilot.level_3_label([check("dcgm", "error")], at=at) is None
    assert autopilot.level_3_label([], at=at) is None
