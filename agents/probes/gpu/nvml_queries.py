"""NVML queries about an NVIDIA GPU, and how to read the answers.

``nvml`` makes the calls; this module needs neither driver nor library. Field numbers are those of nvidia-ml-py 13 and
of NVIDIA's NVML API reference.
"""

from typing import Any, Protocol

from agents.probes.gpu.device import NvLinks, PcieLink, RowRemapping

RECOVERY_ACTION, REPLAYS = 230, 94
LINK_COUNT = 91
LINK_RECOVERY_FAILED = 214  # of one link: the scope of the field is the number of the link
LINK_REPLAY, LINK_RECOVERY, LINK_CRC_FLIT, LINK_CRC_DATA, LINK_ECC_DATA = 0, 1, 2, 3, 4
MAX_LINKS = 18
SLOWDOWN = 1  # temperature threshold
VOLATILE, CORRECTED, UNCORRECTED = 0, 0, 1
VIOLATION_POLICIES = {"thermal": 1, "board": 3, "reliability": 5}  # violation policies; power (0) is normal under load


class Queries(Protocol):
    """Queries to one GPU. A value that it or its driver does not have is None, or left out."""

    def __call__(self, name: str, *args: Any) -> Any:
        """The result of an NVML function that takes a device."""

    def processes(self) -> tuple[int, ...] | None:
        """The IDs of the processes with a context on this GPU."""

    def structure(self, name: str, kind: str) -> Any:
        """A structure of pynvml's ``kind``, filled in by the driver."""

    def fields(self, *wanted: tuple[int, int]) -> dict[tuple[int, int], int]:
        """Field values by (field, scope)."""


def state(query: Queries) -> dict[str, Any]:
    """Everything known about one GPU: the fields of ``Device`` by name."""
    usage = query("nvmlDeviceGetUtilizationRates")
    ecc = query("nvmlDeviceGetEccMode")
    retired = query("nvmlDeviceGetRetiredPagesPendingStatus")
    mig = query("nvmlDeviceGetMigMode")
    plain = query.fields((RECOVERY_ACTION, 0), (REPLAYS, 0))
    reasons = query("nvmlDeviceGetCurrentClocksEventReasons")
    limits = {name: query("nvmlDeviceGetViolationStatus", policy) for name, policy in VIOLATION_POLICIES.items()}
    repair = query("nvmlDeviceGetRepairStatus")
    return {
        "busy": None if usage is None else usage.gpu > 0,
        "processes": query.processes(),
        "mig": bool(mig and mig[0]),
        "recovery_action": plain.get((RECOVERY_ACTION, 0)),
        "rows": _rows(query),
        "pages_retired": _pages(query),
        "pages_pending": None if retired is None else bool(retired),
        "repair_pending": None if repair is None else any(repair),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_corrected": query("nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE),
        "ecc_uncorrected": query("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
        "sram_threshold": _sram(query),
        "clock_reasons": query("nvmlDeviceGetCurrentClocksThrottleReasons") if reasons is None else reasons,
        "throttled_ns": {name: status.violationTime for name, status in limits.items() if status is not None},
        "pcie": _link(query, plain.get((REPLAYS, 0))),
        "nvlink": _nvlinks(query),
        "fabric": _fabric(query),
        "slowdown_margin": query("nvmlDeviceGetMarginTemperature"),
        "temperature": query("nvmlDeviceGetTemperature", 0),
        "slowdown": query("nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
        "power": query("nvmlDeviceGetPowerUsage"),
        "power_limit": query("nvmlDeviceGetEnforcedPowerLimit"),
        "power_default": query("nvmlDeviceGetPowerManagementDefaultLimit"),
    }


def _rows(query: Queries) -> RowRemapping | None:
    rows = query("nvmlDeviceGetRemappedRows")
    if rows is None:
        return None
    banks = query("nvmlDeviceGetRowRemapperHistogram")
    return RowRemapping(
        corrected=rows[0],
        uncorrected=rows[1],
        pending=bool(rows[2]),
        failed=bool(rows[3]),
        banks_without_spares=None if banks is None else banks.none,
    )


def _pages(query: Queries) -> int | None:
    """Retired pages for both causes (single-bit 0, double-bit 1); boards before Ampere."""
    lists = [query("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    return None if None in lists else sum(len(pages) for pages in lists)


def _sram(query: Queries) -> bool | None:
    status = query.structure("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    return None if status is None else bool(status.bThresholdExceeded)


def _link(query: Queries, replays: int | None) -> PcieLink | None:
    width, widest = query("nvmlDeviceGetCurrPcieLinkWidth"), query("nvmlDeviceGetMaxPcieLinkWidth")
    generation, newest = query("nvmlDeviceGetCurrPcieLinkGeneration"), query("nvmlDeviceGetMaxPcieLinkGeneration")
    if None in (width, widest, generation, newest):
        return None
    return PcieLink(width=width, max_width=widest, generation=generation, max_generation=newest, replays=replays)


def _nvlinks(query: Queries) -> NvLinks | None:
    """The NVLinks of this GPU. ``active`` counts those that are up, sleeping ones included (states 1 to 3)."""
    states = {link: query("nvmlDeviceGetNvLinkState", link) for link in range(MAX_LINKS)}
    known = [link for link, state in states.items() if state is not None]
    if not known:
        return None
    counts = {
        name: sum(query("nvmlDeviceGetNvLinkErrorCounter", link, counter) or 0 for link in known)
        for name, counter in (("replay", LINK_REPLAY), ("recovery", LINK_RECOVERY), ("ECC", LINK_ECC_DATA))
    }
    crc = tuple(
        sum(query("nvmlDeviceGetNvLinkErrorCounter", link, counter) or 0 for counter in (LINK_CRC_FLIT, LINK_CRC_DATA))
        for link in known
    )
    failed = sum(query.fields(*((LINK_RECOVERY_FAILED, link) for link in known)).values())
    active = sum(1 for link in known if states[link])
    count = query.fields((LINK_COUNT, 0)).get((LINK_COUNT, 0), len(known))
    return NvLinks(count=count, active=active, errors=counts, recovery_failed=failed, crc=crc)


def _fabric(query: Queries) -> tuple[int, int, int] | None:
    """State, status and health mask; None if the GPU has no fabric (state 0)."""
    info = query.structure("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
    return None if info is None or info.state == 0 else (info.state, info.status, info.healthMask)
