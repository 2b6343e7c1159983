"""The state of one GPU as its driver reports it: plain values. None means that this GPU or driver cannot report the
value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HUNG_AFTER_SECONDS = (
    90.0  # a GPU that does not answer for longer counts as broken: by the third run, two minutes after the first
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemapping:
    """Row remapping (Ampere and newer): rows remapped for either cause, whether one waits for the next reset, whether
    one failed."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool
    banks_without_spares: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """The PCIe link now and at its best. ``replays`` counts since the driver was loaded."""

    width: int
    max_width: int
    generation: int
    max_generation: int
    replays: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinks:
    """NVLinks the GPU has, how many are up, and their errors since the driver was loaded; ``crc`` has one counter for
    each link."""

    count: int
    active: int
    errors: Mapping[str, int] = field(default_factory=dict)
    recovery_failed: int = 0
    crc: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU. ``lost``: why it does not answer at all; then nothing else is known. ``code`` is the NVML error.
    ``hung_seconds``: how long a call about it has not returned.

    Temperatures are in °C (``slowdown``: where slowing down begins; ``slowdown_margin``: distance to it as the GPU
    reports it), power in mW, ``throttled_ns`` in ns. Counters count since the driver was loaded. ``errors``: calls that
    ended in an unexpected error.
    """

    index: int
    uuid: str = ""
    pci: str | None = None
    model: str = ""
    lost: str = ""
    code: int = 0
    hung_seconds: float = 0.0
    busy: bool | None = None
    processes: tuple[int, ...] | None = None
    mig: bool = False
    recovery_action: int | None = None
    rows: RowRemapping | None = None
    pages_retired: int | None = None
    pages_pending: bool | None = None
    repair_pending: bool | None = None
    ecc: bool | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    sram_threshold: bool | None = None
    clock_reasons: int | None = None
    throttled_ns: Mapping[str, int] = field(default_factory=dict)
    pcie: PcieLink | None = None
    nvlink: NvLinks | None = None
    fabric: tuple[int, int, int] | None = None
    slowdown_margin: int | None = None
    temperature: int | None = None
    slowdown: int | None = None
    power: int | None = None
    power_limit: int | None = None
    power_default: int | None = None
    errors: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name for people: the UUID, else the index. A check result for a GPU that failed must use the UUID: the
        index may belong to another GPU once it answers again."""
        return self.uuid or f"gpu{self.index}"

    @property
    def is_late(self) -> bool:
        """True if the GPU has not answered yet, but still may."""
        return 0 < self.hung_seconds < HUNG_AFTER_SECONDS
