"""The figures of a node's GPUs over time, as charts with the same values as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover_portal.console.line_charts import LineChart, line_chart
from kcover_portal.fleet.models import Node
from kcover_portal.shared_reads import gpu_figures
from kcover_portal.shared_reads.gpu_figures import Figure

TITLES: Final[dict[str, str | Promise]] = {
    "temperature": _("Distance to the slowdown temperature, °C"),
    "amd_temperature": _("Temperature, °C"),
    "metax_temperature": _("Temperature, °C"),
    "power": _("Power, W"),
    "ecc": _("Uncorrected ECC errors since the driver was loaded"),
    "amd_ecc": _("Uncorrected ECC errors"),
    "metax_ecc": _("Double-bit ECC errors"),
    "remapped": _("Remapped memory rows"),
    "retired_pages": _("Retired memory pages"),
    "nvlink": _("NVLinks that are up"),
    "nvlink_errors": _("NVLink errors since the probe's previous run"),
    "pcie_replays": _("PCIe replays per minute"),
}


@dataclass(frozen=True, slots=True)
class FigureHistory:
    """``unchanged``: title and value of the figures that all GPUs had all the time, which need no chart."""

    charts: Sequence[LineChart]
    unchanged: Sequence[tuple[str, float]]


def of(node: Node, *, now: datetime) -> FigureHistory:
    """The figures of the last three days."""
    found = gpu_figures.of(node, now=now)
    charts = [_chart(one, found.times) for one in found.figures if one.constant is None]
    unchanged = [(str(TITLES[one.name]), one.constant) for one in found.figures if one.constant is not None]
    return FigureHistory(charts, unchanged)


def _chart(figure: Figure, times: Sequence[datetime]) -> LineChart:
    lines = [(f"GPU {line.gpu.index}", line.values) for line in figure.lines]
    return line_chart(figure.name, str(TITLES[figure.name]), times, lines)
