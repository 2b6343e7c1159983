"""The meaning of the state of an NVIDIA GPU.

The limits are those that NVIDIA, DCGM and operators of large clusters publish; each constant names its source.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from agents.probes.finding import Finding, Severity, finding
from agents.probes.gpu.device import Device, NvLinks, RowRemapping
from kcover.faults.fault import Check

# What the driver asks for (NVML recovery action): 1, 2, 4, 6 and 7 take the GPU or node out of service.
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset the GPU",
    2: "reboot the node",
    3: "end peer-to-peer users",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
OUT_OF_SERVICE_ACTIONS = (1, 2, 4, 6, 7)
HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x008, 0x040, 0x080
THROTTLE_WINDOW = timedelta(minutes=10)  # throttling is judged over this time, never by one sample
THROTTLED_SHARE = 0.6  # of the busy samples in the window
MIN_SAMPLES = 5
LIMITED_SHARE = 0.1  # of the time under a thermal, board or reliability limit
REPLAYS_PER_LANE = (0.15, 0.3, 0.48, 0.96, 1.92, 3.84)  # per minute, Gen1 to Gen6 (DCGM)
REPLAY_WINDOWS = 3
FABRIC_TIMEOUT = timedelta(minutes=5)
HOT_MARGIN_CELSIUS = 5  # distance to the slowdown; an H100 that reports 0 or less does not know it
MAX_REMAPPED_ROWS = 512  # for uncorrectable errors: all that there are (DCGM, NVIDIA's limit for replacement)
MAX_RETIRED_PAGES = 63  # of the 64 that can be retired (DCGM)
MANY_CORRECTED_ERRORS = 20_000_000  # ECC errors since the driver was loaded (Azure, H100)
CRC_WARNING_RATE, CRC_FAULT_RATE = 1.0, 100.0  # errors per second on one NVLink (DCGM, gpud)


@dataclass(slots=True)
class GpuHistory:
    """The parts of earlier states of one GPU that must be remembered."""

    seen_at: datetime | None = None
    uncorrected: int | None = None
    replays: int | None = None
    replay_windows: int = 0
    throttled_ns: dict[str, int] = field(default_factory=dict)
    nvlinks: NvLinks | None = None
    fabric_since: datetime | None = None
    samples: deque[tuple[datetime, int, bool]] = field(default_factory=deque)
    pci: str | None = None
    uuid: str = ""


def evaluate(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    """The findings for one GPU."""
    for result in (
        *_recovery(device),
        *_memory(device),
        *_clocks(device, history, now=now),
        *_limits(device, history, now=now),
        *_pcie(device, history, now=now),
        *_link_errors(device, history, now=now),
        *_fabric(device, history, now=now),
        *_environment(device),
    ):
        yield replace(result, pci=device.pci)


def unidentified(devices: Iterable[Device]) -> Check:
    """The check ``gpu`` without a device: GPUs that do not answer and whose UUID is unknown. Reported by index they
    would stay failed for ever, because they pass under their UUID."""
    lost = [(device.is_late, f"GPU {device.index} does not answer: {device.lost}") for device in devices]
    status = "pass" if not lost else "warn" if all(late for late, _ in lost) else "fail"
    return Check(name="gpu", status=status, message="; ".join(message for _, message in lost))


def remapping_problem(rows: RowRemapping) -> str:
    """The problem with the remapped rows of a GPU, or "". Shared by the probe and the check ``remapped``."""
    problems = (
        ("a remapped row takes effect at the next reset", rows.pending),
        ("a row could not be remapped", rows.failed),
    )
    return " and ".join(text for text, bad in problems if bad)


def _recovery(device: Device) -> Iterator[Finding]:
    action = device.recovery_action
    if action is not None:
        severity = Severity.FAULT if action in OUT_OF_SERVICE_ACTIONS else Severity.WARNING.when(bool(action))
        message = f"the driver asks for: {RECOVERY_ACTIONS.get(action, f'action {action}')}"
        yield finding("recovery_action", severity, device=device.name, value=action, message=message)
    if device.repair_pending is not None:
        message = "a channel or TPC repair takes effect at the next reset"
        severity = Severity.WARNING.when(device.repair_pending)
        yield finding("repair_pending", severity, device=device.name, message=message)
    if device.errors:
        yield finding("nvml", Severity.ERROR, device=device.name, message="; ".join(device.errors))


def _memory(device: Device) -> Iterator[Finding]:
    name = device.name
    if device.rows is not None:
        rows = device.rows
        count = rows.corrected + rows.uncorrected
        problem = remapping_problem(rows)
        yield finding(
            "remapped", Severity.FAILURE.when(bool(problem)), device=name, value=count, unit="rows", message=problem
        )
        full = (
            f"{rows.uncorrected} rows are remapped; the limit is {MAX_REMAPPED_ROWS}"
            if rows.uncorrected >= MAX_REMAPPED_ROWS
            else ""
        )
        failed = "a row could not be remapped" if rows.failed else full
        yield finding("remap_failure", Severity.FAULT.when(bool(failed)), device=name, message=failed)
        if rows.banks_without_spares is not None:
            none = rows.banks_without_spares
            message = f"{none} memory banks have no spare rows left"
            severity = Severity.WARNING.when(none > 0)
            yield finding("remap_spares", severity, device=name, value=none, message=message)
    if device.pages_retired is not None and device.rows is None:
        pages = device.pages_retired
        pending = Severity.FAILURE.when(bool(device.pages_pending))
        severity = Severity.FAULT if pages >= MAX_RETIRED_PAGES else pending
        message = "a page is retired at the next reset" if device.pages_pending else f"{pages} of 64 pages are retired"
        yield finding("retired_pages", severity, device=name, value=pages, unit="pages", message=message)
    if device.ecc is not None:
        yield finding("ecc_mode", Severity.WARNING.when(not device.ecc), device=name, message="ECC is disabled")
    if device.ecc_uncorrected is not None:
        count, mended = device.ecc_uncorrected, device.ecc_corrected or 0
        message = f"{count} uncorrected and {mended} corrected ECC errors since the driver was loaded"
        severity = Severity.FAILURE if count else Severity.WARNING.when(mended > MANY_CORRECTED_ERRORS)
        yield finding("ecc", severity, device=name, value=count, unit="errors", message=message)
    if device.sram_threshold is not None:
        message = "the SRAM error threshold is exceeded: run the field diagnostic"
        yield finding("sram_threshold", Severity.FAULT.when(device.sram_threshold), device=name, message=message)


def _clocks(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    """The finding ``clocks``: whether the hardware throttled them in most busy samples of ten minutes."""
    if device.clock_reasons is None:
        return
    history.samples.append((now, device.clock_reasons, bool(device.busy)))
    while history.samples and not timedelta() <= now - history.samples[0][0] <= THROTTLE_WINDOW:
        history.samples.popleft()
    busy = [reasons for _, reasons, was_busy in history.samples if was_busy]
    held = [reasons for reasons in busy if reasons & (HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE)]
    slow = len(busy) >= MIN_SAMPLES and len(held) >= THROTTLED_SHARE * len(busy)
    why = " and ".join(
        cause
        for bit, cause in ((HW_THERMAL, "heat"), (POWER_BRAKE, "power supply"))
        if any(reasons & bit for reasons in held)
    )
    message = (
        f"the hardware throttles the clocks ({why or 'no cause reported'}) in {len(held)} of {len(busy)} busy samples"
    )
    yield finding("clocks", Severity.WARNING.when(slow), device=device.name, value=len(held), message=message)


def _limits(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    """Time under limits other than power, as a share of the time since the last run."""
    if device.throttled_ns and history.throttled_ns and history.seen_at is not None and now > history.seen_at:
        span = (now - history.seen_at).total_seconds() * 1e9
        lost = {name: (ns - history.throttled_ns.get(name, ns)) / span for name, ns in device.throttled_ns.items()}
        worst = max(lost, key=lambda name: lost[name])
        message = f"{lost[worst]:.0%} of the time under the {worst} limit"
        severity = Severity.WARNING.when(bool(device.busy) and lost[worst] > LIMITED_SHARE)
        share = round(lost[worst], 3)
        yield finding("clock_limits", severity, device=device.name, value=share, message=message)
    history.throttled_ns = dict(device.throttled_ns)


def _pcie(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    link = device.pcie
    if link is None:
        return
    narrow = link.width < link.max_width
    message = f"x{link.width} of x{link.max_width}"
    severity = Severity.FAULT.when(narrow)
    yield finding("pcie_width", severity, device=device.name, value=link.width, unit="lanes", message=message)
    if device.busy:  # idle links run slower by design
        severity = Severity.WARNING.when(link.generation < link.max_generation)
        message = f"generation {link.generation} of {link.max_generation} under load"
        yield finding("pcie_generation", severity, device=device.name, value=link.generation, message=message)
    before, history.replays = history.replays, link.replays
    if before is None or link.replays is None or history.seen_at is None or now <= history.seen_at:
        return
    minutes = (now - history.seen_at).total_seconds() / 60
    rate = max(0, link.replays - before) / minutes
    limit = math.ceil(link.width * REPLAYS_PER_LANE[min(max(link.generation, 1), len(REPLAYS_PER_LANE)) - 1])
    history.replay_windows = history.replay_windows + 1 if rate > limit else 0
    message = f"{rate:.0f} replays per minute; the limit for this link is {limit}"
    severity = Severity.FAULT.when(history.replay_windows >= REPLAY_WINDOWS)
    yield finding("pcie_replays", severity, device=device.name, value=round(rate, 1), unit="per min", message=message)


def _link_errors(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    links, before = device.nvlink, history.nvlinks
    history.nvlinks = links
    if links is None:
        return
    grown = {name: n - before.errors.get(name, n) for name, n in links.errors.items()} if before else {}
    errors = ", ".join(f"{n} {name}" for name, n in grown.items() if n > 0)
    crc = _crc_rate(links, before, seconds=(now - history.seen_at).total_seconds() if history.seen_at else 0.0)
    problems = [f"{links.recovery_failed} failed link recoveries"] * (links.recovery_failed > 0)
    problems += [f"{errors} errors since the last run"] * bool(errors)
    problems += [f"{crc:.0f} CRC errors per second on one link"] * (crc >= CRC_WARNING_RATE)
    message = "; ".join(problems)
    failed = links.recovery_failed or crc >= CRC_FAULT_RATE
    severity = Severity.FAULT if failed else Severity.WARNING.when(bool(problems))
    value = sum(n for n in grown.values() if n > 0)
    yield finding("nvlink_errors", severity, device=device.name, value=value, message=message)


def _crc_rate(links: NvLinks, before: NvLinks | None, *, seconds: float) -> float:
    """CRC errors per second since the last run, on the link with the most."""
    if before is None or seconds <= 0 or len(before.crc) != len(links.crc):
        return 0.0
    grown = [now - then for now, then in zip(links.crc, before.crc, strict=True)]
    return max([0, *grown]) / seconds


def _fabric(device: Device, history: GpuHistory, *, now: datetime) -> Iterator[Finding]:
    """NVSwitch machines: registration must complete (state 3) within five minutes, without errors and healthy."""
    if device.fabric is None:
        return
    state, status, mask = device.fabric
    history.fabric_since = None if state == 3 else history.fabric_since or now
    late = history.fabric_since is not None and now - history.fabric_since >= FABRIC_TIMEOUT
    problems = [
        problem
        for problem, shift, width, bad in (
            ("bandwidth is degraded", 0, 0x3, (1,)),
            ("a route is unhealthy", 4, 0x3, (1,)),
            ("the fabric is misconfigured", 8, 0xF, range(2, 16)),
        )
        if (mask >> shift) & width in bad
    ]
    if late:
        problems = [f"registration has been in state {state} since {history.fabric_since:%H:%M} UTC"]
    elif state == 3 and status:
        problems.append(f"registration ended with error {status}")
    severity = Severity.FAULT.when(late or (state == 3 and bool(problems)))
    yield finding("fabric", severity, device=device.name, value=state, message="; ".join(problems))


def _environment(device: Device) -> Iterator[Finding]:
    margin = (
        device.slowdown_margin if device.slowdown_margin is not None and device.slowdown_margin > 0 else _margin(device)
    )
    if margin is not None:
        severity = Severity.WARNING.when(bool(device.busy) and margin < HOT_MARGIN_CELSIUS)
        message = f"{abs(margin)} °C {'above' if margin < 0 else 'below'} the slowdown temperature"
        yield finding("temperature", severity, device=device.name, value=margin, unit="C to slowdown", message=message)
    limit, default = device.power_limit, device.power_default
    if limit is not None and default is not None:
        message = f"power limited to {limit / 1000:.0f} W; the default is {default / 1000:.0f} W"
        severity = Severity.WARNING.when(limit < default)
        yield finding("power_limit", severity, device=device.name, value=limit / 1000, unit="W", message=message)


def _margin(device: Device) -> int | None:
    """The distance to the slowdown by the thresholds; older boards and drivers do not report the margin itself."""
    if not device.slowdown or device.temperature is None:
        return None
    return device.slowdown - device.temperature
