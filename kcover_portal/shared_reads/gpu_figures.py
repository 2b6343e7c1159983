"""The figures of a node's GPUs over the last three days, by figure and GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover.nodes import gpu_figures
from kcover_portal.fleet.models import Gpu, GpuSample, Node

Values = Mapping[str, Mapping[str, float]]  # by GPU (UUID) and name of the check


@dataclass(frozen=True, slots=True)
class Line:
    """The values of one GPU, one for each time of the figures; None: it reported nothing then."""

    gpu: Gpu
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. ``name``: of ``kcover.nodes.gpu_figures``."""

    name: str
    lines: Sequence[Line]

    @property
    def unit(self) -> str:
        return gpu_figures.FIGURES[self.name]

    @property
    def constant(self) -> float | None:
        """The value that all GPUs had all the time; None if values differ."""
        found = {value for line in self.lines for value in line.values if value is not None}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that at least one GPU reported. ``times``: quarters of an hour with a sample, oldest first."""

    since: datetime
    until: datetime
    times: Sequence[datetime]
    figures: Sequence[Figure]


def of(node: Node, *, now: datetime) -> Figures:
    """The figures of the GPUs in the node's last inventory; two queries."""
    until = gpu_figures.quarter_of(now) + gpu_figures.QUARTER
    since = until - gpu_figures.KEPT
    rows = GpuSample.objects.filter(node=node, at__gte=since, at__lt=until).order_by("at")
    samples: list[tuple[datetime, Values]] = list(rows.values_list("at", "figures"))
    gpus = list(node.devices.all())
    named = {name for _at, values in samples for own in values.values() for name in own}
    figures = [_figure(name, gpus, samples) for name in gpu_figures.FIGURES if name in named]
    return Figures(since, until, [at for at, _values in samples], [one for one in figures if one.lines])


def _figure(name: str, gpus: Sequence[Gpu], samples: Sequence[tuple[datetime, Values]]) -> Figure:
    lines = [Line(gpu, [values.get(gpu.uuid, {}).get(name) for _at, values in samples]) for gpu in gpus]
    return Figure(name, [line for line in lines if any(value is not None for value in line.values)])
