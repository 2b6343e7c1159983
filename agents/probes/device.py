"""How one GPU is, by its driver: plain values that a vendor's module fills in. None: this GPU or driver cannot say."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HUNG = 90.0  # seconds until a GPU that does not answer counts as broken: by the third look, two minutes after the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Row remapping (Ampere and newer): rows remapped for either cause, one due at the next reset, one that failed."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool
    banks_without_spares: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcie:
    """The slot's link now and at its best; ``replays`` counts since the driver was loaded."""

    width: int
    max_width: int
    generation: int
    max_generation: int
    replays: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """NVLinks that the GPU has, how many of them are up, and their errors since the driver was loaded; ``crc`` link by
    link."""

    count: int
    active: int
    errors: Mapping[str, int] = field(default_factory=dict)
    recovery_failed: int = 0
    crc: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU. ``lost``: why it does not answer at all, and then nothing else is known; ``code`` is NVML's. ``hangs``:
    it does not, as a question to it has not come back for so many seconds.

    Temperatures in °C (``slowdown``: where that begins, ``margin``: how far off it is, by the GPU's own word), power in
    mW, ``held_back`` in ns since the driver was loaded, counters since then too. ``troubles``: questions that ended in
    an unexpected error.
    """

    index: int
    uuid: str = ""
    pci: str | None = None
    model: str = ""
    lost: str = ""
    code: int = 0
    hangs: float = 0.0
    busy: bool | None = None
    processes: tuple[int, ...] | None = None
    mig: bool = False
    recovery_action: int | None = None
    rows: Rows | None = None
    pages_retired: int | None = None
    pages_pending: bool | None = None
    repair_pending: bool | None = None
    ecc: bool | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    sram_threshold: bool | None = None
    clock_reasons: int | None = None
    held_back: Mapping[str, int] = field(default_factory=dict)
    pcie: Pcie | None = None
    nvlink: Links | None = None
    fabric: tuple[int, int, int] | None = None
    margin: int | None = None
    temperature: int | None = None
    slowdown: int | None = None
    power_limit: int | None = None
    power_default: int | None = None
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What names it to people: its UUID, else its place. In a check result only a UUID may stand for a GPU that
        failed: once it answers again nobody would know that the place was it."""
        return self.uuid or f"gpu{self.index}"

    @property
    def late(self) -> bool:
        """Whether it has not answered yet, and may still."""
        return 0 < self.hangs < HUNG
