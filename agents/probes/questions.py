"""Which questions an NVIDIA GPU is asked, by NVML's names, and what the answers say of it.

``nvml`` asks them; here is neither driver nor library. Field numbers: nvidia-ml-py 13 and NVIDIA's NVML API reference.
"""

from typing import Any, Protocol

from agents.probes.device import Links, Pcie, Rows

RECOVERY_ACTION, REPLAYS = 230, 94
LINK_COUNT = 91
LINK_RECOVERY_FAILED = 214  # of one link: the link's number is the field's scope
LINK_REPLAY, LINK_RECOVERY, LINK_CRC_FLIT, LINK_CRC_DATA, LINK_ECC_DATA = 0, 1, 2, 3, 4
MAX_LINKS = 18
SLOWDOWN = 1  # temperature threshold
VOLATILE, CORRECTED, UNCORRECTED = 0, 0, 1
LIMITS = {"thermal": 1, "board": 3, "reliability": 5}  # violation policies; power (0) is normal under load


class Asking(Protocol):
    """Questions to one GPU. What it or its driver has no answer to is None, or left out."""

    def __call__(self, name: str, *args: Any) -> Any:
        """The answer to one of NVML's functions of a device."""

    def processes(self) -> tuple[int, ...] | None:
        """The ids of the processes with a context here."""

    def structure(self, name: str, kind: str) -> Any:
        """What the driver fills in, a structure of pynvml's ``kind``."""

    def fields(self, *wanted: tuple[int, int]) -> dict[tuple[int, int], int]:
        """Field values by (field, scope)."""


def state(ask: Asking) -> dict[str, Any]:
    """What there is to know of one GPU: ``Device``'s fields by name."""
    usage = ask("nvmlDeviceGetUtilizationRates")
    ecc = ask("nvmlDeviceGetEccMode")
    retired = ask("nvmlDeviceGetRetiredPagesPendingStatus")
    mig = ask("nvmlDeviceGetMigMode")
    plain = ask.fields((RECOVERY_ACTION, 0), (REPLAYS, 0))
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    limits = {name: ask("nvmlDeviceGetViolationStatus", policy) for name, policy in LIMITS.items()}
    repair = ask("nvmlDeviceGetRepairStatus")
    return {
        "busy": None if usage is None else usage.gpu > 0,
        "processes": ask.processes(),
        "mig": bool(mig and mig[0]),
        "recovery_action": plain.get((RECOVERY_ACTION, 0)),
        "rows": _rows(ask),
        "pages_retired": _pages(ask),
        "pages_pending": None if retired is None else bool(retired),
        "repair_pending": None if repair is None else any(repair),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_corrected": ask("nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE),
        "ecc_uncorrected": ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
        "sram_threshold": _sram(ask),
        "clock_reasons": ask("nvmlDeviceGetCurrentClocksThrottleReasons") if reasons is None else reasons,
        "held_back": {name: one.violationTime for name, one in limits.items() if one is not None},
        "pcie": _link(ask, plain.get((REPLAYS, 0))),
        "nvlink": _nvlinks(ask),
        "fabric": _fabric(ask),
        "margin": ask("nvmlDeviceGetMarginTemperature"),
        "temperature": ask("nvmlDeviceGetTemperature", 0),
        "slowdown": ask("nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
        "power_limit": ask("nvmlDeviceGetEnforcedPowerLimit"),
        "power_default": ask("nvmlDeviceGetPowerManagementDefaultLimit"),
    }


def _rows(ask: Asking) -> Rows | None:
    rows = ask("nvmlDeviceGetRemappedRows")
    if rows is None:
        return None
    banks = ask("nvmlDeviceGetRowRemapperHistogram")
    return Rows(
        corrected=rows[0],
        uncorrected=rows[1],
        pending=bool(rows[2]),
        failed=bool(rows[3]),
        banks_without_spares=None if banks is None else banks.none,
    )


def _pages(ask: Asking) -> int | None:
    """Retired pages by both causes (single-bit 0, double-bit 1); boards before Ampere."""
    lists = [ask("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    return None if None in lists else sum(len(pages) for pages in lists)


def _sram(ask: Asking) -> bool | None:
    status = ask.structure("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    return None if status is None else bool(status.bThresholdExceeded)


def _link(ask: Asking, replays: int | None) -> Pcie | None:
    width, widest = ask("nvmlDeviceGetCurrPcieLinkWidth"), ask("nvmlDeviceGetMaxPcieLinkWidth")
    generation, newest = ask("nvmlDeviceGetCurrPcieLinkGeneration"), ask("nvmlDeviceGetMaxPcieLinkGeneration")
    if None in (width, widest, generation, newest):
        return None
    return Pcie(width=width, max_width=widest, generation=generation, max_generation=newest, replays=replays)


def _nvlinks(ask: Asking) -> Links | None:
    """The links that there are, as many as the GPU says it has; ``active`` counts those that are up, asleep ones
    included (states 1 to 3)."""
    states = {link: ask("nvmlDeviceGetNvLinkState", link) for link in range(MAX_LINKS)}
    there = [link for link, state in states.items() if state is not None]
    if not there:
        return None
    counts = {
        name: sum(ask("nvmlDeviceGetNvLinkErrorCounter", link, counter) or 0 for link in there)
        for name, counter in (("replay", LINK_REPLAY), ("recovery", LINK_RECOVERY), ("ECC", LINK_ECC_DATA))
    }
    crc = tuple(
        sum(ask("nvmlDeviceGetNvLinkErrorCounter", link, counter) or 0 for counter in (LINK_CRC_FLIT, LINK_CRC_DATA))
        for link in there
    )
    failed = sum(ask.fields(*((LINK_RECOVERY_FAILED, link) for link in there)).values())
    active = sum(1 for link in there if states[link])
    count = ask.fields((LINK_COUNT, 0)).get((LINK_COUNT, 0), len(there))
    return Links(count=count, active=active, errors=counts, recovery_failed=failed, crc=crc)


def _fabric(ask: Asking) -> tuple[int, int, int] | None:
    """State, status and health mask; None where the GPU has no fabric (state 0)."""
    info = ask.structure("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
    return None if info is None or info.state == 0 else (info.state, info.status, info.healthMask)
