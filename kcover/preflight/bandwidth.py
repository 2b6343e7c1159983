"""The result of one node's half of a pair test: bus bandwidth per message size, as the Job's container reports it.

The container writes one JSON object as its termination message, of which Kubernetes keeps 4,096 bytes:
``{"busbw": {"<message size in bytes>": <GB/s>, ...}, "device": "NVIDIA H100 80GB HBM3"}``. Without ``device`` no GPU
was measured.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kcover import reasons
from kcover.values.quote import short_text

MAX_SIZES = 64
MAX_DEVICE_CHARS = 120


class BandwidthInvalid(reasons.ExplainedError, ValueError):
    """A result that cannot be read. ``reason``: what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """``by_size``: GB/s (10^9 bytes) by message size in bytes, smallest first. ``device``: "" if it is no GPU."""

    by_size: Mapping[int, float] = field(default_factory=dict)
    device: str = ""

    @property
    def best(self) -> float:
        """The highest bus bandwidth of all sizes, in GB/s."""
        return max(self.by_size.values())


def read(text: str) -> Bandwidth:
    """Raises BandwidthInvalid."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BandwidthInvalid(reasons.of("bandwidth_not_json", text=short_text(text) or "-")) from error
    sizes = found.get("busbw") if isinstance(found, dict) else None
    if not isinstance(sizes, dict) or not 0 < len(sizes) <= MAX_SIZES:
        raise BandwidthInvalid(reasons.of("bandwidth_sizes", most=MAX_SIZES))
    for size, figure in sizes.items():
        if not (size.isascii() and size.isdigit() and len(size) <= 18):
            raise BandwidthInvalid(reasons.of("bandwidth_size_invalid", size=short_text(size)))
        if isinstance(figure, bool) or not isinstance(figure, int | float) or not 0 <= _float(figure) < math.inf:
            raise BandwidthInvalid(reasons.of("bandwidth_figure_invalid", size=size))
    device = found.get("device") or ""
    if not isinstance(device, str) or "\0" in device:
        raise BandwidthInvalid(reasons.of("bandwidth_device_invalid"))
    by_size = {int(size): float(figure) for size, figure in sizes.items()}
    return Bandwidth(dict(sorted(by_size.items())), device[:MAX_DEVICE_CHARS])


def of_nodes(results: Iterable[Bandwidth]) -> Bandwidth:
    """The result of a test from those of its nodes: the lowest figure of each size. Without a device of one, none.

    Raises BandwidthInvalid if they have no size in common.
    """
    every = list(results)
    common = set.intersection(*(set(one.by_size) for one in every))
    if not common:
        raise BandwidthInvalid(reasons.of("bandwidth_no_common_size"))
    lowest = {size: min(one.by_size[size] for one in every) for size in sorted(common)}
    return Bandwidth(lowest, every[0].device if all(one.device for one in every) else "")


def _float(figure: float) -> float:
    """The figure as a float; infinite if it is too large for one."""
    try:
        return float(figure)
    except OverflowError:
        return math.inf
