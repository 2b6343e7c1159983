"""``dcgm``: NVIDIA's own diagnostics, ``dcgmi diag``, at level ``r``."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agents.checks.health_check import Args, CheckSkipped, integer
from agents.host import programs
from kcover.faults import dcgm_device
from kcover.faults.fault import Check

# Level -> time limit: several times what NVIDIA documents for eight GPUs.
TIMEOUT_SECONDS = {1: 300.0, 2: 1800.0, 3: 5400.0, 4: 14400.0}
INSTALL = "DCGM (package datacenter-gpu-manager)"
CONFIGURATION_SEVERITY = 5  # DCGM reports a setting, such as persistence mode: the GPU is not broken
REPORT_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # DCGM 4; 2 and 3
STATUS_ORDER = ("skipped", "pass", "warn", "fail")


class Dcgm:
    """One result for the whole run, and one for each test and GPU. Passes are included, because they replace earlier
    failures. A test that DCGM skips says nothing new about its GPU."""

    name = "dcgm"
    failure_is_node_fault = True

    def invasive(self, args: Args) -> bool:
        """From level 2 on, the test loads the GPUs."""
        return _level(args) > 1

    def run(self, args: Args) -> list[Check]:
        """The value of the whole run is Autopilot's: 1 if something failed."""
        level = _level(args)
        tool = programs.find("dcgmi", install=INSTALL)
        result = programs.run((tool, "diag", "-r", str(level), "-j"), timeout=TIMEOUT_SECONDS[level])
        report = parse(result.stdout)
        if report is None:  # no host engine, no GPU or a crash: not a diagnosis
            raise RuntimeError(f"dcgmi exited with status {result.status} and no report: {result.diagnostics[-500:]}")
        return summarize(report, level=level)


def _level(args: Args) -> int:
    return integer(args, "r", 1, least=1, most=4)


def parse(text: str) -> Mapping[str, Any] | None:
    """The diagnosis in the output of ``dcgmi -j``, which may have other lines around it.

    None if it has no diagnosis.
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        content = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    return next((content[root] for root in REPORT_ROOTS if isinstance(content.get(root), dict)), None)


def summarize(report: Mapping[str, Any], *, level: int) -> list[Check]:
    """The check results of one diagnosis. Raises CheckSkipped if DCGM tested nothing."""
    found = list(_results(report))
    if not found or all(status == "skipped" for _, _, status, _ in found):
        raise CheckSkipped(
            f"DCGM tested nothing at level {level}: {found[0][3] if found else 'it has no tests for these GPUs'}"
        )
    worst = max((status for _, _, status, _ in found), key=STATUS_ORDER.index)
    ran = sorted(
        (result for result in found if result[2] != "skipped"), key=lambda result: STATUS_ORDER.index(result[2])
    )
    bad = [(test, gpu) for test, gpu, status, _ in found if status in ("warn", "fail")]
    listed = ", ".join(dict.fromkeys(f"{test}{f' on {dcgm_device.gpu_name(gpu)}' if gpu else ''}" for test, gpu in bad))
    message = f"level {level}: {listed}" if listed else f"level {level}"
    whole_run = Check(name="dcgm", status=worst, value=float(worst == "fail"), message=message)
    singles = {}  # the worst result, if DCGM lists a test and GPU twice
    for test, gpu, status, why in ran:
        device = dcgm_device.join(gpu, test)
        shown = why if status != "pass" else ""
        singles[device] = Check(name="dcgm", device=device, status=status, message=shown)
    return [whole_run, *singles.values()]


def _results(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Test, DCGM's number of the GPU ("" for the node), status and reason."""
    for category in report.get("test_categories") or ():
        for test in category.get("tests") or ():
            name = str(test.get("name", "?"))
            for result in test.get("results") or ():
                status, why = _status(result)
                for gpu in _gpus(result):
                    yield name, gpu, status, why


def _gpus(result: Mapping[str, Any]) -> list[str]:
    """DCGM's numbers of the GPUs of a result.

    DCGM 4 names one entity for each result; DCGM 3 names one ``gpu_id``, or a list ``gpu_ids`` as text.
    """
    if "entity_id" in result and str(result.get("entity_group", "GPU")).upper() == "GPU":
        return [str(result["entity_id"])]
    listed = str(result.get("gpu_id", result.get("gpu_ids", "")))
    return [number.strip() for number in listed.split(",") if number.strip().isdecimal()] or [""]


def _status(result: Mapping[str, Any]) -> tuple[str, str]:
    raw = result.get("warnings") or result.get("info") or ()
    notes = raw if isinstance(raw, list) else [raw]
    texts = [str(note.get("warning", note)) if isinstance(note, dict) else str(note) for note in notes]
    why = "; ".join(texts)[:1000]
    printed = str(result.get("status", "")).lower()
    status = {"pass": "pass", "warn": "warn", "fail": "fail"}.get(printed, "skipped")
    severities = {note.get("error_severity") for note in notes if isinstance(note, dict)}
    if status == "fail" and severities == {CONFIGURATION_SEVERITY}:
        status = "warn"
    return status, why
