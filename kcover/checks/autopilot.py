"""Check results as IBM's Autopilot judges them: its metric, its node status, its node labels.

They are for dashboards, scripts and schedulers that support Autopilot. Its bugs are not copied: a check that broke is
``Aborted`` and not ``Failed``, a failure keeps its own name, and a periodic run never replaces EVICT or TESTING.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kcover.faults import dcgm_device
from kcover.faults.fault import Check

# The port without a token tells the portal by this header which address was asked; the answer then names that one.
ASKED_AT = "X-Status-Address"
PERIODIC_CHECKS = ("pciebw", "remapped", "dcgm", "ping", "gpupower")  # the meaning of ``check=all``
PORTAL_CHECKS = ("pvc",)  # it tests the cluster's storage, so no agent runs it
DCGM_LEVELS = (1, 2, 3, 4)  # of dcgm; from level 2 on it loads the GPUs
IPERF_CLIENTS, IPERF_START_PORT = 8, 5200  # the parameters pclients and startport of iperf's ring
OK, NOT_CHECKED, NO_ANSWER = "Ok", "Not checked", "Connection to Server Failed"

GPU_HEALTH = "autopilot.ibm.com/gpuhealth"
LEVEL_3 = "autopilot.ibm.com/dcgm.level.3"
LEVEL_3_OUTPUT = "autopilot.ibm.com/dcgm.level.3.output"
PASS, WARN, TESTING, EVICT = "PASS", "WARN", "TESTING", "EVICT"
STICKY_LABELS = (TESTING, EVICT)  # no periodic result replaces them
FATAL_DCGM_TESTS = ("PCIe", "NVLink", "ECC", "GPU Memory")  # DCGM tests (DCGM_FATAL_ERRORS) whose failure evicts
MEMORY_TEST = "memory"  # the name in DCGM 4 (of its plugin) for the test that older versions print as GPU Memory


@dataclass(frozen=True, slots=True)
class CheckNames:
    """Autopilot's names of a check: in its metric, at the start of its lines, and in the status of a node.

    ``metric`` is "" for a check without a metric. ``measured``: the metric is the measured value, not 0 or 1.
    ``minutes``: the time limit on a node with eight GPUs.
    """

    metric: str
    tag: str
    status: str
    minutes: int
    measured: bool = False


CHECKS: Mapping[str, CheckNames] = {
    "pciebw": CheckNames("pciebw", "PCIEBW", "PCIE", 10, measured=True),
    "remapped": CheckNames("remapped", "REMAPPED ROWS", "REMAPPED ROWS", 2),
    "dcgm": CheckNames("dcgm", "DCGM", "DCGM", 5),
    "gpupower": CheckNames("power-slowdown", "GPU POWER", "GPU POWER", 2),
    "ping": CheckNames("ping", "PING", "PING", 5),
    "gpumem": CheckNames("gpumem", "GPU-MEM", "GPU MEM Test", 10),
    "pvc": CheckNames("pvc", "PVC Create-Delete", "PVC Create-Delete Test", 2),
    "iperf": CheckNames("", "IPERF", "IPERF", 2),  # for one step of its ring
}
DCGM_MINUTES = {1: 5, 2: 30, 3: 90, 4: 240}
METRIC_CHECKS = tuple(check for check, name in CHECKS.items() if name.metric)


def is_invasive(check: str, *, level: int) -> bool:
    """Return whether a check needs idle GPUs. iperf's ring does: it takes the network away from running jobs."""
    return check in ("gpumem", "iperf") or (check == "dcgm" and level > 1)


def time_limit(checks: Iterable[str], *, level: int) -> timedelta:
    """The time limit for a node that runs all of the checks one after the other."""
    return timedelta(minutes=sum(DCGM_MINUTES[level] if check == "dcgm" else CHECKS[check].minutes for check in checks))


def metric_value(check: str, status: str, value: float | None) -> float | None:
    """The value of ``autopilot_health_checks``: the measured value, else 1 for a failure and 0 for a pass.

    None for a check that broke or was skipped, and for a check without a metric.
    """
    name = CHECKS.get(check)
    if name is None or not name.metric or status in ("error", "skipped"):
        return None
    return value if name.measured else float(status == "fail")


def node_status(results: Collection[Check]) -> list[str]:
    """The status of a node as in Autopilot's summary: a list of failures, or [``Ok``]."""
    failures = []
    for check in dict.fromkeys(result.name for result in results):
        states = {result.status for result in results if result.name == check}
        label = CHECKS[check].status if check in CHECKS else check
        if "fail" in states:
            failures.append(f"{label} Failed")
        if "error" in states:
            failures.append(f"{label} Aborted")
    if failures:
        return failures
    return [OK] if any(result.status in ("pass", "warn") for result in results) else [NOT_CHECKED]


def periodic_label(statuses: Collection[str]) -> str | None:
    """``gpuhealth`` from the latest periodic results; None if none of them passed or failed."""
    if "fail" in statuses:
        return WARN
    return PASS if set(statuses) & {"pass", "warn"} else None


def deep_check_label(results: Collection[Check], *, fatal: Collection[str] = FATAL_DCGM_TESTS) -> str | None:
    """``gpuhealth`` from an invasive run: PASS, WARN or EVICT; None if the run did not finish.

    ``fatal``: parts of the names of DCGM tests; case is ignored, and ``_`` is the same as a space.
    """
    ran = [result for result in results if result.name in ("dcgm", "gpumem")]
    if any(result.status == "fail" and _is_fatal(result, fatal) for result in ran):
        return EVICT
    if any(result.status == "fail" for result in ran):
        return WARN
    if any(result.status == "error" for result in ran) or not any(result.status in ("pass", "warn") for result in ran):
        return None
    return PASS


def _is_fatal(result: Check, fatal: Collection[str]) -> bool:
    """Return whether the result fails a fatal test. dcgm's device names GPU and test.

    The memory test matches by either of its names, and only as a whole: ``Memory Bandwidth`` and ``memtest`` differ.
    """
    test = _canonical(dcgm_device.split(result.device)[1])
    named = {_canonical(test_name) for test_name in fatal}
    return result.name == "dcgm" and (test in named or any(test_name in test for test_name in named - {MEMORY_TEST}))


def _canonical(test: str) -> str:
    name = " ".join(test.lower().replace("_", " ").split())
    return MEMORY_TEST if name == "gpu memory" else name


def level_3_label(results: Collection[Check], *, at: datetime) -> tuple[str, str] | None:
    """The label ``dcgm.level.3`` and its annotation from the results of such a run; None if it did not finish."""
    overall = next((result for result in results if result.name == "dcgm" and not result.device), None)
    if overall is None or overall.status in ("error", "skipped"):
        return None
    by_test: dict[str, list[str]] = {}
    for result in results:
        if result.name == "dcgm" and result.status == "fail" and result.device:
            gpu, test = dcgm_device.split(result.device)
            by_test.setdefault(test.lower().replace(" ", "_"), []).append(gpu or "node")
    verdict = "ERR" if overall.status == "fail" else "PASS"
    stamp = at.astimezone(UTC).strftime("%Y-%m-%d_%H.%M.%SUTC")
    return f"{verdict}_{stamp}", " ".join(".".join((test, *gpus)) for test, gpus in by_test.items())
