"""The text of Autopilot's ``/status``, line by line, for scripts that parse it.

A line that holds FAIL or ABORT counts as a failure there, so no other line may hold these words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from kcover.checks import autopilot
from kcover.faults.fault import Check

SEPARATOR = "-" * 37
# What Autopilot prints before a check's verdict.
BRIEFINGS: Mapping[str, str] = {
    "pciebw": "PCIe Bandwidth",
    "remapped": "remapped rows",
    "dcgm": "dcgm",
    "gpumem": "memory",
}
WORDS = {"fail": "FAIL", "error": "ABORT", "warn": "SUCCESS", "pass": "SUCCESS", "skipped": "SKIPPED"}  # worst first


def heading(*, hosts: str, job: str, label: str) -> str:
    """The first line of the response. ``hosts``, ``job``, ``label``: the parameters as given; "" if they are absent."""
    if hosts in ("", "all") and not job and not label:
        return "Checking status on all nodes\n"
    of_job = f"Workload: {': '.join(job.split(':', 1))}\n" if job else ""
    return f"{of_job}Asking to run on remote node(s) {hosts or 'all'} or with node label {label or 'None'}\n\n"


def node_text(
    node: str, *, address: str, url: str, results: Sequence[Check], status: Sequence[str], note: str = ""
) -> str:
    """The part of the response about one node.

    ``status``: see ``autopilot.node_status``. ``note``: why there are no results.
    """
    lines = [f"Autopilot Endpoint: {address}", f"Node: {node}", f"url(s): {url}", "Response:"]
    if results:
        lines.append(f"Checking system status of host {node} (localhost) ")
    if note:
        lines.append(f"ABORT: {note}" if status == [autopilot.NO_ANSWER] else note)
    for check in dict.fromkeys(row.name for row in results):
        lines += ["", *_check_lines(node, check, [result for result in results if result.name == check])]
    return "\n".join((*lines, "", f"Node Status: {', '.join(status)}", SEPARATOR, "", ""))


def summary_text(statuses: Mapping[str, Sequence[str]], *, runtime: timedelta) -> str:
    """The end of the response: the status of each node, and the run time."""
    listed = ",\n ".join(f"{node!r}: {list(statuses[node])!r}" for node in sorted(statuses))
    return f"Node Summary:\n\n{{{listed}}}\n\nruntime: {runtime.total_seconds()} sec\n"


def throughput_text(rates: Mapping[str, Mapping[str, float]], *, interface: str = "") -> str:
    """Autopilot's table of iperf's results, Gbit/s by sender and receiver; "" if there are no results.

    ``interface``: on the data plane, the one that was measured.
    """
    nodes = sorted({*rates, *(receiver for row in rates.values() for receiver in row)})
    every = [rate for row in rates.values() for rate in row.values()]
    if not every:
        return ""
    width = max(map(len, ("src/dst", *nodes))) + 2
    rows = [["src/dst", *nodes]]
    rows += [
        [sender, *(f"{rates[sender][to]:g}" if to in rates[sender] else "N/A" for to in nodes)]
        for sender in sorted(rates)
    ]
    lines = ["".join(cell.ljust(width) for cell in row).rstrip() for row in rows]
    average = f"{interface} Average Bandwidth Gb/s: {sum(every) / len(every):.2f}".lstrip()
    return "\n".join((average, f"Network Throughput {interface}".rstrip() + ":", *lines, "", ""))


def _check_lines(node: str, check: str, results: Sequence[Check]) -> list[str]:
    states = {result.status for result in results}
    word = next(word for state, word in WORDS.items() if state in states)
    reasons = _reason_lines(node, check, results)
    if word in ("ABORT", "SKIPPED"):
        return [f"{_tag(check)} {word}", *reasons]
    verdict = _VERDICTS.get(check, _verdict_first)(node, check, word, results)
    return [*_briefing_lines(check), *verdict, *reasons]


def _briefing_lines(check: str) -> list[str]:
    what = BRIEFINGS.get(check)
    return [f"{_tag(check)} Briefings completed. Continue with {what} evaluation."] if what else []


def _reason_lines(node: str, check: str, results: Iterable[Check]) -> list[str]:
    """The messages of the portal's checks, which Autopilot's lack."""
    return [
        f"{_tag(check)} {WORDS[result.status]} {result.device or node}: {result.message}"
        for result in results
        if result.status in ("fail", "error") or (result.message and result.status != "pass")
    ]


def _tag(check: str) -> str:
    """``[[ PCIEBW ]]``. Autopilot writes these three with single brackets."""
    tag = autopilot.CHECKS[check].tag if check in autopilot.CHECKS else check.upper()
    return f"[{tag}]" if check in ("gpupower", "ping", "pvc") else f"[[ {tag} ]]"


def _verdict_first(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    """``[[ PCIEBW ]] FAIL``, ``Host  node``, and the values of the GPUs."""
    values = _values(check, results)
    return [f"{_tag(check)} {word}", *((f"Host  {node}", values) if values else ())]


def _values(check: str, results: Iterable[Check]) -> str:
    """The numbers of Autopilot's metric, else what was measured. Results without a device are about the whole node."""
    of_metric = check in autopilot.METRIC_CHECKS
    numbers = [
        autopilot.metric_value(check, result.status, result.value) if of_metric else result.value
        for result in results
        if result.device
    ]
    return " ".join(f"{number:g}" for number in numbers if number is not None)


def _dcgm(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    return [*([f"Host {node}"] if word == "FAIL" else ()), f"{_tag(check)} {word}"]


def _gpu_power(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    return [f"{_tag(check)} {word}", _values(check, results)]


def _gpu_memory(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    return [f"{_tag(check)} Health Check {'unsuccessful. FAIL.' if word == 'FAIL' else 'successful'}"]


def _ping(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    """``Node PEER PEER INTERFACE 1``: 1 for a peer that does not answer.

    The portal knows a peer's address only, so it stands for the name too; the interface is the host's.
    """
    peers = [f"Node {result.device} {result.device} host {int(result.status == 'fail')}" for result in results]
    end = "At least one node unreachable. FAIL" if word == "FAIL" else "all nodes reachable. success"
    return [*peers, f"{_tag(check)} {end}"]


def _pvc(node: str, check: str, word: str, results: Sequence[Check]) -> list[str]:
    return [f"{_tag(check)} {'FAIL' if word == 'FAIL' else 'PVC SUCCESS'}"]


_VERDICTS: Mapping[str, Callable[[str, str, str, Sequence[Check]], list[str]]] = {
    "dcgm": _dcgm,
    "gpupower": _gpu_power,
    "gpumem": _gpu_memory,
    "ping": _ping,
    "pvc": _pvc,
}
