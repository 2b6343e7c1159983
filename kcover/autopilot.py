"""Autopilot's words for our check results: its metric, its text, its node label (semantics section 3).

Dashboards, scripts and schedulers that know Autopilot read these. Its bugs are not copied: a check that broke is
``Aborted`` and not ``Failed``, a failure keeps its own name, and a periodic run never takes EVICT or TESTING back.
"""

import pprint
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kcover.fault import Check

PERIODIC = ("pciebw", "remapped", "dcgm", "ping", "gpupower")  # what ``check=all`` means
BY_THE_PORTAL = ("pvc",)  # about the cluster's storage, so that no agent runs it
LEVELS = (1, 2, 3, 4)  # of dcgm; from the second on it loads the GPUs
CLIENTS, START_PORT = 8, 5200  # of iperf's ring: pclients, startport
OK, NOT_CHECKED, NO_ANSWER = "Ok", "Not checked", "Connection to Server Failed"
RULE = "-" * 37

GPU_HEALTH = "autopilot.ibm.com/gpuhealth"
LEVEL_3 = "autopilot.ibm.com/dcgm.level.3"
LEVEL_3_OUTPUT = "autopilot.ibm.com/dcgm.level.3.output"
PASS, WARN, TESTING, EVICT = "PASS", "WARN", "TESTING", "EVICT"
KEPT = (TESTING, EVICT)  # no periodic result puts something else in their place
FATAL = ("PCIe", "NVLink", "ECC", "GPU Memory")  # DCGM tests (DCGM_FATAL_ERRORS): one that fails evicts
MEMORY = "memory"  # DCGM 4's name (its plugin's) of the test that older ones print as GPU Memory


@dataclass(frozen=True, slots=True)
class Name:
    """What Autopilot calls a check: in its metric, at the head of its lines, and in a node's status.

    ``metric`` "" where it has none. ``measured``: the metric is the value and not 0 or 1. ``minutes``: how long it may
    take on a node of eight GPUs.
    """

    metric: str
    tag: str
    status: str
    minutes: int
    measured: bool = False


NAMES: Mapping[str, Name] = {
    "pciebw": Name("pciebw", "PCIEBW", "PCIE", 10, measured=True),
    "remapped": Name("remapped", "REMAPPED ROWS", "REMAPPED ROWS", 2),
    "dcgm": Name("dcgm", "DCGM", "DCGM", 5),
    "gpupower": Name("power-slowdown", "GPU POWER", "GPU POWER", 2),
    "ping": Name("ping", "PING", "PING", 5),
    "gpumem": Name("gpumem", "GPU-MEM", "GPU MEM Test", 10),
    "pvc": Name("pvc", "PVC", "PVC Create-Delete Test", 2),
    "iperf": Name("", "IPERF", "IPERF", 2),  # a step of its ring
}
DCGM_MINUTES = {1: 5, 2: 30, 3: 90, 4: 240}
METRICS = tuple(check for check, name in NAMES.items() if name.metric)


def invasive(check: str, *, level: int) -> bool:
    """Whether a check needs GPUs that nobody uses: iperf's ring takes the network away from whoever uses them."""
    return check in ("gpumem", "iperf") or (check == "dcgm" and level > 1)


def patience(checks: Iterable[str], *, level: int) -> timedelta:
    """How long a node may take for all of the checks, one after the other."""
    return timedelta(minutes=sum(DCGM_MINUTES[level] if one == "dcgm" else NAMES[one].minutes for one in checks))


def metric_value(check: str, status: str, value: float | None) -> float | None:
    """What ``autopilot_health_checks`` shows: the measured value, else 1 for a failure and 0 for none.

    None for a check that broke or was skipped: it is neither.
    """
    name = NAMES.get(check)
    if name is None or not name.metric or status in ("error", "skipped"):
        return None
    return value if name.measured else float(status == "fail")


def failures(results: Collection[Check]) -> list[str]:
    """A node's status in Autopilot's words, a list as in its summary; [``Ok``] where nothing is wrong."""
    words = []
    for check in dict.fromkeys(one.name for one in results):
        states = {one.status for one in results if one.name == check}
        said = NAMES[check].status if check in NAMES else check
        if "fail" in states:
            words.append(f"{said} Failed")
        if "error" in states:
            words.append(f"{said} Aborted")
    if words:
        return words
    return [OK] if any(one.status in ("pass", "warn") for one in results) else [NOT_CHECKED]


def node_text(
    node: str, *, address: str, url: str, results: Sequence[Check], said: Sequence[str], note: str = ""
) -> str:
    """One node's part of the answer. ``said`` is its status, ``note`` why there are no results."""
    lines = [f"Autopilot Endpoint: {address}", f"Node: {node}", f"url(s): {url}", "Response:"]
    if results:
        lines.append(f"Checking system status of host {node}")
    if note:
        lines.append(f"ABORT: {note}" if said == [NO_ANSWER] else note)
    for check in dict.fromkeys(one.name for one in results):
        lines += ["", *_check_lines(node, check, [one for one in results if one.name == check])]
    return "\n".join((*lines, "", f"Node Status: {', '.join(said)}", RULE, "", ""))


def summary_text(said: Mapping[str, Sequence[str]], *, runtime: timedelta) -> str:
    """What ends the answer: each node's failures, and how long it took."""
    listed = pprint.pformat({node: list(words) for node, words in said.items()})
    return f"Node Summary:\n\n{listed}\n\nruntime: {runtime.total_seconds():.1f} sec\n"


def throughput_text(rates: Mapping[str, Mapping[str, float]]) -> str:
    """What iperf's ring measured, Gbit/s by sender and receiver, as Autopilot's table; "" where it measured nothing."""
    nodes = sorted({*rates, *(receiver for row in rates.values() for receiver in row)})
    every = [rate for row in rates.values() for rate in row.values()]
    if not every:
        return ""
    width = max(map(len, ("src/dst", *nodes))) + 2
    rows = [["src/dst", *nodes]]
    rows += [[one, *(f"{rates[one][to]:g}" if to in rates[one] else "N/A" for to in nodes)] for one in sorted(rates)]
    lines = ["".join(cell.ljust(width) for cell in row).rstrip() for row in rows]
    average = f"Average Bandwidth Gb/s: {sum(every) / len(every):.2f}"
    return "\n".join((average, "Network Throughput:", *lines, "", ""))


def _check_lines(node: str, check: str, results: Sequence[Check]) -> list[str]:
    tag = NAMES[check].tag if check in NAMES else check.upper()
    states = {one.status for one in results}
    words = {"fail": "FAIL", "error": "ABORT", "warn": "SUCCESS", "pass": "SUCCESS", "skipped": "SKIPPED"}
    head = next(word for state, word in words.items() if state in states)
    lines = [f"[[ {tag} ]] {head}"]
    values = [one for one in results if one.value is not None]
    if values:
        units = dict.fromkeys(one.unit for one in values if one.unit)
        lines.append(" ".join((node, *(f"{one.value:g}" for one in values), *units)))
    lines += [
        f"[[ {tag} ]] {words[one.status]} {one.device or node}: {one.message}"
        for one in results
        if one.status in ("fail", "error") or (one.message and one.status != "pass")
    ]
    return lines


def periodic_label(statuses: Collection[str]) -> str | None:
    """``gpuhealth`` by the latest periodic results; None where none says anything."""
    if "fail" in statuses:
        return WARN
    return PASS if set(statuses) & {"pass", "warn"} else None


def verdict(results: Collection[Check], *, fatal: Collection[str] = FATAL) -> str | None:
    """``gpuhealth`` by an invasive run: PASS, WARN, EVICT; None where it came to no end.

    ``fatal``: parts of the names of DCGM's tests, in whatever case and with ``_`` or blanks.
    """
    ran = [one for one in results if one.name in ("dcgm", "gpumem")]
    if any(one.status == "fail" and _is_fatal(one, fatal) for one in ran):
        return EVICT
    if any(one.status == "fail" for one in ran):
        return WARN
    if any(one.status == "error" for one in ran) or not any(one.status in ("pass", "warn") for one in ran):
        return None
    return PASS


def _is_fatal(result: Check, fatal: Collection[str]) -> bool:
    """The single results of dcgm name their GPU and test in the device: ``gpu3 GPU Memory``.

    The test of the memory is meant by either of its names, and whole: ``Memory Bandwidth`` and ``memtest`` are others.
    """
    test = _canonical(result.device.partition(" ")[2])
    named = {_canonical(one) for one in fatal}
    return result.name == "dcgm" and (test in named or any(one in test for one in named - {MEMORY}))


def _canonical(test: str) -> str:
    name = " ".join(test.lower().replace("_", " ").split())
    return MEMORY if name == "gpu memory" else name


def level_3(results: Collection[Check], *, at: datetime) -> tuple[str, str] | None:
    """The label ``dcgm.level.3`` and its annotation by the results of such a run; None: it came to no end."""
    whole = next((one for one in results if one.name == "dcgm" and not one.device), None)
    if whole is None or whole.status in ("error", "skipped"):
        return None
    by_test: dict[str, list[str]] = {}
    for one in results:
        if one.name == "dcgm" and one.status == "fail" and one.device:
            gpu, _, test = one.device.partition(" ")
            by_test.setdefault(test.lower().replace(" ", "_"), []).append(gpu.removeprefix("gpu"))
    word = "ERR" if whole.status == "fail" else "PASS"
    stamp = at.astimezone(UTC).strftime("%Y-%m-%d_%H.%M.%SUTC")
    return f"{word}_{stamp}", " ".join(".".join((test, *gpus)) for test, gpus in by_test.items())
