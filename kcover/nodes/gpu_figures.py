"""The figures of a GPU that the portal keeps over time, a sample each quarter of an hour.

Most are values of checks and have their names.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

Figures = Mapping[str, Mapping[str, float]]  # values by GPU (UUID) and name
NO_FIGURES: Final[Figures] = MappingProxyType({})

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
QUARTER: Final = timedelta(minutes=15)
SLOTS: Final = 3 * 96  # of the ring of a node: three days
KEPT: Final = SLOTS * QUARTER
# The names, and the units of the values.
FIGURES: Final[Mapping[str, str]] = {
    "temperature": "C to slowdown",
    "amd_temperature": "C",
    "metax_temperature": "C",
    "power": "W",
    "ecc": "errors",
    "amd_ecc": "errors",
    "metax_ecc": "errors",
    "remapped": "rows",
    "retired_pages": "pages",
    "nvlink": "links",
    "nvlink_errors": "errors",
    "pcie_replays": "per min",
}


def quarter_of(now: datetime) -> datetime:
    """The start of the quarter of an hour."""
    return now - (now - _EPOCH) % QUARTER


def slot(quarter: datetime) -> int:
    """The place of a quarter in the ring."""
    return (quarter - _EPOCH) // QUARTER % SLOTS
