"""What one GPU's state means. The limits are those that NVIDIA, DCGM and the operators of large clusters publish; each
constant says whose."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.probes.device import Device, Links, Rows
from agents.probes.finding import Finding, finding
from kcover.fault import Check

# What the driver wants done (NVML recovery action): 1, 2, 4, 6 and 7 take the GPU or node out of service.
ACTIONS = {
    0: "none",
    1: "reset the GPU",
    2: "reboot the node",
    3: "end peer-to-peer users",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
OUT_OF_SERVICE = (1, 2, 4, 6, 7)
HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x008, 0x040, 0x080
WINDOW = timedelta(minutes=10)  # throttling is judged over this long, never by one sample
HELD_BACK = 0.6  # share of busy samples in the window
FEWEST_SAMPLES = 5
LIMITED = 0.1  # share of a window spent under a thermal, board or reliability limit
REPLAYS_A_LANE = (0.15, 0.3, 0.48, 0.96, 1.92, 3.84)  # a minute, Gen1 to Gen6 (DCGM)
REPLAY_WINDOWS = 3
FABRIC_PATIENCE = timedelta(minutes=5)
HOT = 5  # °C to the slowdown; H100 that report 0 or less do not know
ROWS = 512  # rows remapped for uncorrectable errors, of as many that can be (DCGM, NVIDIA's limit for replacement)
PAGES = 63  # retired pages, of the 64 that there can be (DCGM)
MANY_CORRECTED = 20_000_000  # ECC errors since the driver was loaded (Azure, H100)
CRC_WARNS, CRC_FAILS = 1.0, 100.0  # errors a second on one NVLink (DCGM, gpud)


@dataclass(slots=True)
class Past:
    """What must be known of the looks before at one GPU."""

    seen_at: datetime | None = None
    uncorrected: int | None = None
    replays: int | None = None
    over: int = 0
    held_back: dict[str, int] = field(default_factory=dict)
    links: Links | None = None
    fabric_since: datetime | None = None
    samples: deque[tuple[datetime, int, bool]] = field(default_factory=deque)
    pci: str | None = None
    uuid: str = ""


def judge(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    """One GPU's findings by its own state."""
    for one in (
        *_recovery(device),
        *_memory(device),
        *_clocks(device, past, now=now),
        *_limits(device, past, now=now),
        *_pcie(device, past, now=now),
        *_link_errors(device, past, now=now),
        *_fabric(device, past, now=now),
        *_environment(device),
    ):
        yield Finding(check=one.check, fault=one.fault, pci=device.pci)


def nameless(devices: Iterable[Device]) -> Check:
    """The check ``gpu`` without a device: GPUs that do not answer and whose UUID nobody knows. Under their place they
    would stay failed for ever, as they pass under their UUID."""
    lost = [(device.late, f"GPU {device.index} does not answer: {device.lost}") for device in devices]
    status = "pass" if not lost else "warn" if all(late for late, _ in lost) else "fail"
    return Check(name="gpu", status=status, message="; ".join(words for _, words in lost))


def remapping(rows: Rows) -> str:
    """What is wrong with a GPU's remapped rows, "" for nothing: one rule for the probe and the check of that name."""
    words = (
        ("a remapped row takes effect at the next reset", rows.pending),
        ("a row could not be remapped", rows.failed),
    )
    return " and ".join(text for text, bad in words if bad)


def _recovery(device: Device) -> Iterator[Finding]:
    action = device.recovery_action
    if action is not None:
        bad = "fail" if action in OUT_OF_SERVICE else "warn" if action else False
        message = f"the driver wants: {ACTIONS.get(action, f'action {action}')}"
        yield finding("recovery_action", bad, device=device.name, value=action, message=message, fault=True)
    if device.repair_pending is not None:
        message = "a channel or TPC repair takes effect at the next reset"
        yield finding("repair_pending", "warn" if device.repair_pending else False, device=device.name, message=message)
    for trouble in device.troubles[:1]:
        message = "; ".join(device.troubles)
        yield finding("nvml", "error" if trouble else False, device=device.name, message=message)


def _memory(device: Device) -> Iterator[Finding]:
    name = device.name
    if device.rows is not None:
        rows = device.rows
        count = rows.corrected + rows.uncorrected
        wrong = remapping(rows)
        yield finding("remapped", bool(wrong), device=name, value=count, unit="rows", message=wrong)
        full = f"{rows.uncorrected} rows are remapped, and {ROWS} is the limit" if rows.uncorrected >= ROWS else ""
        failed = "a row could not be remapped" if rows.failed else full
        yield finding("remap_failure", bool(failed), device=name, message=failed, fault=True)
        if rows.banks_without_spares is not None:
            none = rows.banks_without_spares
            message = f"{none} memory banks have no spare rows left"
            yield finding("remap_spares", "warn" if none else False, device=name, value=none, message=message)
    if device.pages_retired is not None and device.rows is None:
        pages = device.pages_retired
        bad = pages >= PAGES or bool(device.pages_pending)
        message = "a page is retired at the next reset" if device.pages_pending else f"{pages} of 64 pages are retired"
        yield finding(
            "retired_pages", bad, device=name, value=pages, unit="pages", message=message, fault=pages >= PAGES
        )
    if device.ecc is not None:
        yield finding("ecc_mode", False if device.ecc else "warn", device=name, message="ECC is off")
    if device.ecc_uncorrected is not None:
        count, mended = device.ecc_uncorrected, device.ecc_corrected or 0
        message = f"{count} uncorrected and {mended} corrected ECC errors since the driver was loaded"
        status = "fail" if count else "warn" if mended > MANY_CORRECTED else False
        yield finding("ecc", status, device=name, value=count, unit="errors", message=message)
    if device.sram_threshold is not None:
        message = "the SRAM error threshold is exceeded: a field diagnostic is due"
        yield finding("sram_threshold", device.sram_threshold, device=name, message=message, fault=True)


def _clocks(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    """Held back by the hardware in most busy samples of ten minutes; never judged by one sample."""
    if device.clock_reasons is None:
        return
    past.samples.append((now, device.clock_reasons, bool(device.busy)))
    while past.samples and not timedelta() <= now - past.samples[0][0] <= WINDOW:
        past.samples.popleft()
    busy = [reasons for _, reasons, was_busy in past.samples if was_busy]
    held = [reasons for reasons in busy if reasons & (HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE)]
    slow = len(busy) >= FEWEST_SAMPLES and len(held) >= HELD_BACK * len(busy)
    why = " and ".join(
        words
        for bit, words in ((HW_THERMAL, "heat"), (POWER_BRAKE, "the power supply"))
        if any(reasons & bit for reasons in held)
    )
    message = (
        f"the hardware holds its clocks back ({why or 'no cause given'}) in {len(held)} of {len(busy)} busy samples"
    )
    yield finding("clocks", "warn" if slow else False, device=device.name, value=len(held), message=message)


def _limits(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    """Time lost to limits other than power, as a share of the time since the last look."""
    if device.held_back and past.held_back and past.seen_at is not None and now > past.seen_at:
        span = (now - past.seen_at).total_seconds() * 1e9
        lost = {name: (ns - past.held_back.get(name, ns)) / span for name, ns in device.held_back.items()}
        worst = max(lost, key=lambda name: lost[name])
        message = f"{lost[worst]:.0%} of the time under the {worst} limit"
        bad = "warn" if device.busy and lost[worst] > LIMITED else False
        share = round(lost[worst], 3)
        yield finding("clock_limits", bad, device=device.name, value=share, message=message)
    past.held_back = dict(device.held_back)


def _pcie(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    link = device.pcie
    if link is None:
        return
    narrow = link.width < link.max_width
    message = f"x{link.width} of x{link.max_width}"
    yield finding("pcie_width", narrow, device=device.name, value=link.width, unit="lanes", message=message, fault=True)
    if device.busy:  # an idle link slows down by design
        slow = "warn" if link.generation < link.max_generation else False
        message = f"generation {link.generation} of {link.max_generation} under load"
        yield finding("pcie_generation", slow, device=device.name, value=link.generation, message=message)
    before, past.replays = past.replays, link.replays
    if before is None or link.replays is None or past.seen_at is None or now <= past.seen_at:
        return
    minutes = (now - past.seen_at).total_seconds() / 60
    rate = max(0, link.replays - before) / minutes
    limit = math.ceil(link.width * REPLAYS_A_LANE[min(max(link.generation, 1), len(REPLAYS_A_LANE)) - 1])
    past.over = past.over + 1 if rate > limit else 0
    message = f"{rate:.0f} replays a minute, the limit for this link is {limit}"
    bad = past.over >= REPLAY_WINDOWS
    yield finding(
        "pcie_replays", bad, device=device.name, value=round(rate, 1), unit="per min", message=message, fault=True
    )


def _link_errors(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    links, before = device.nvlink, past.links
    past.links = links
    if links is None:
        return
    grown = {name: n - before.errors.get(name, n) for name, n in links.errors.items()} if before else {}
    words = ", ".join(f"{n} {name}" for name, n in grown.items() if n > 0)
    crc = _crc_rate(links, before, seconds=(now - past.seen_at).total_seconds() if past.seen_at else 0.0)
    wrong = [f"{links.recovery_failed} failed link recoveries"] * (links.recovery_failed > 0)
    wrong += [f"{words} errors since the last look"] * bool(words)
    wrong += [f"{crc:.0f} CRC errors a second on one link"] * (crc >= CRC_WARNS)
    message = "; ".join(wrong)
    bad = "fail" if links.recovery_failed or crc >= CRC_FAILS else "warn" if wrong else False
    value = sum(n for n in grown.values() if n > 0)
    yield finding("nvlink_errors", bad, device=device.name, value=value, message=message, fault=True)


def _crc_rate(links: Links, before: Links | None, *, seconds: float) -> float:
    """CRC errors a second since the last look, on the link that has most of them."""
    if before is None or seconds <= 0 or len(before.crc) != len(links.crc):
        return 0.0
    grown = [now - then for now, then in zip(links.crc, before.crc, strict=True)]
    return max([0, *grown]) / seconds


def _fabric(device: Device, past: Past, *, now: datetime) -> Iterator[Finding]:
    """NVSwitch machines: registration must be over (state 3) within five minutes, without an error and in health."""
    if device.fabric is None:
        return
    state, status, mask = device.fabric
    past.fabric_since = None if state == 3 else past.fabric_since or now
    late = past.fabric_since is not None and now - past.fabric_since >= FABRIC_PATIENCE
    wrong = [
        words
        for words, shift, width, bad in (
            ("bandwidth is degraded", 0, 0x3, (1,)),
            ("a route is unhealthy", 4, 0x3, (1,)),
            ("wrongly configured", 8, 0xF, range(2, 16)),
        )
        if (mask >> shift) & width in bad
    ]
    if late:
        wrong = [f"registration is in state {state} since {past.fabric_since:%H:%M} UTC"]
    elif state == 3 and status:
        wrong.append(f"registration ended with error {status}")
    bad = late or (state == 3 and bool(wrong))
    yield finding("fabric", bad, device=device.name, value=state, message="; ".join(wrong), fault=True)


def _environment(device: Device) -> Iterator[Finding]:
    margin = device.margin if device.margin is not None and device.margin > 0 else _margin(device)
    if margin is not None:
        hot = "warn" if device.busy and margin < HOT else False
        message = f"{abs(margin)} °C {'over' if margin < 0 else 'under'} the slowdown"
        yield finding("temperature", hot, device=device.name, value=margin, unit="C to slowdown", message=message)
    limit, default = device.power_limit, device.power_default
    if limit is not None and default is not None:
        message = f"limited to {limit / 1000:.0f} W of {default / 1000:.0f} W"
        low = "warn" if limit < default else False
        yield finding("power_limit", low, device=device.name, value=limit / 1000, unit="W", message=message)


def _margin(device: Device) -> int | None:
    """How far the slowdown is off by the thresholds; older boards and drivers do not tell the margin itself."""
    if not device.slowdown or device.temperature is None:
        return None
    return device.slowdown - device.temperature
