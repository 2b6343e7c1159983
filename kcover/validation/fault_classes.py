"""Which validation profile proves that a node with such faults is healthy: a table of classes of faults.

A rule with ``validate: auto`` asks. The strictest profile that one of the faults needs is chosen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kcover import reasons
from kcover.faults import catalog, driver_line, fault
from kcover.validation import profiles

AUTO: Final = "auto"
STRICTEST_LAST: Final = (profiles.LIGHT, profiles.FULL, profiles.BURN_IN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultClass:
    """A class of faults. ``because``: the code of the reason why ``profile`` is needed after such a fault."""

    name: str
    profile: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFault:
    """A fault of the node. ``by_program``: a user's program caused it."""

    kind: str
    code: str
    by_program: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen profile, and why; ``because`` None: the rule names the profile."""

    profile: str
    because: reasons.Reason | None = None


def _class(name: str, profile: str) -> FaultClass:
    return FaultClass(name=name, profile=profile, because=f"validation_class_{name}")


# DCGM's level 1 reads counters and copies once, so a GPU that fails under load passes it. Level 2 and the benchmark
# load every GPU and its memory. Only hours of load find a part that fails when it is warm or new.
PROGRAM: Final = _class("program", profiles.LIGHT)
CHECK: Final = _class("check", profiles.LIGHT)
MEMORY: Final = _class("memory", profiles.FULL)
NVLINK: Final = _class("nvlink", profiles.FULL)
BUS: Final = _class("bus", profiles.FULL)
FIRMWARE: Final = _class("firmware", profiles.FULL)
HARDWARE: Final = _class("hardware", profiles.FULL)  # and every fault of no other class
RETURNED: Final = _class("returned", profiles.BURN_IN)
CLASSES: Final = (PROGRAM, CHECK, MEMORY, NVLINK, BUS, FIRMWARE, HARDWARE, RETURNED)

BY_CATEGORY: Final[Mapping[str, FaultClass]] = MappingProxyType(  # of Xids in the catalog
    {"memory_ecc": MEMORY, "nvlink": NVLINK, "pcie": BUS, "firmware": FIRMWARE, "driver": FIRMWARE}
)
BY_CHECK: Final[Mapping[str, FaultClass]] = MappingProxyType(  # checks and probes whose failure is one of hardware
    {
        **dict.fromkeys(("remapped", "remap_failure", "ecc", "gpumem"), MEMORY),
        **dict.fromkeys(("nvlink", "nvlink_errors", "fabric"), NVLINK),
        **dict.fromkeys(("gpu", "gpu_count", "pcie_errors", "pcie_width"), BUS),
        "dcgm": HARDWARE,
    }
)


def class_of(seen: SeenFault) -> FaultClass:
    """The class of one fault."""
    if seen.by_program or seen.kind == "pod":
        return PROGRAM
    if seen.kind == "check":
        return BY_CHECK.get(seen.code, CHECK)
    if seen.kind == "sxid":
        return NVLINK
    if seen.kind in fault.NUMERIC_KINDS and seen.code.isdigit():
        entry = catalog.describe(seen.kind, int(seen.code))
        return BY_CATEGORY.get(entry.category, HARDWARE) if entry is not None else HARDWARE
    if seen.kind == driver_line.KIND and seen.code in driver_line.SEVERITIES:
        return BUS
    return HARDWARE


def choose(seen: Iterable[SeenFault], *, returned: bool) -> Choice:
    """The profile for a node with these faults. ``returned``: the machine comes back from a repair.

    Without any fault the profile is that of unknown hardware.
    """
    found = [RETURNED] if returned else [class_of(one) for one in seen] or [HARDWARE]
    chosen = max(found, key=lambda one: STRICTEST_LAST.index(one.profile))
    return Choice(chosen.profile, reasons.of(chosen.because))
