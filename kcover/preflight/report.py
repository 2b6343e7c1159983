"""Parse the preflight report of one node: kcover's JSON, compact or full. Errors name the path of the field.

Fields and rules are kcover's. Unknown fields are ignored, and so are batches beyond the expected ones.
"""

import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcover import reasons
from kcover.values.quote import short_repr

MAX_BATCHES = 5
MAX_NODES = 10_000
CHECKS = ("gpu_check", "storage_check")
CHECK_PASSED, CHECK_FAILED = 1, 2  # 0: not run
FAILED_STATUSES = ("fail", "skip")
GIB = 2**30


class ReportInvalid(reasons.ExplainedError, ValueError):
    """A report that is not counted. ``path``: the field, "" for the whole. ``reason``: what is wrong with it."""

    def __init__(self, path: str, code: str, /, **params: reasons.Value) -> None:
        super().__init__(reasons.of(code, **params))
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else str(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One slot as reported by one node of its pair: both addresses, and whether the slot failed."""

    slot: int
    own: str
    peer: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one node. ``failed_checks`` make the node abnormal; ``batches`` is empty then.

    ``passed_checks``: both checks of the node itself ran and passed.

    ``address`` is the address that the node reports for itself, or None; it may differ from those of its batches.
    """

    node: str
    size: int
    address: str | None = None
    failed_checks: tuple[str, ...] = ()
    passed_checks: bool = False
    batches: tuple[Batch, ...] = ()

    @property
    def addresses(self) -> frozenset[str]:
        """Every address of this node."""
        return frozenset({batch.own for batch in self.batches} | ({self.address} if self.address else set()))


def expected_batches(size: int) -> int:
    """The number of slots that each node runs in a job of ``size`` nodes."""
    return min(size - 1, MAX_BATCHES)


def bus_bandwidth(*, elements: float, element_bytes: float, milliseconds: float, ranks: float) -> float | None:
    """The bus bandwidth of an all-reduce in GiB/s, None if a figure is not finite and positive.

    kcover names the threshold gbps, but its formula gives GiB/s.
    """
    try:
        figures = [float(figure) for figure in (elements, element_bytes, milliseconds, ranks)]
        if not all(math.isfinite(figure) and figure > 0 for figure in figures) or ranks <= 1:
            return None
        bandwidth = (figures[0] * figures[1] / GIB) / (figures[2] / 1000) * 2 * (figures[3] - 1) / figures[3]
    except (OverflowError, ZeroDivisionError):  # from figures that no machine measures
        return None
    return bandwidth if math.isfinite(bandwidth) else None


def read(body: bytes | str | Mapping[str, Any]) -> Report:
    """The report in a body: JSON text, or its parsed object. Raises ReportInvalid."""
    data = _json(body) if isinstance(body, bytes | str) else body
    if not isinstance(data, Mapping):
        raise ReportInvalid("", "preflight_not_object")
    size = _size(data.get("workload_size"))
    node = data.get("node_name")
    if not isinstance(node, str) or not node:
        raise ReportInvalid("node_name", "preflight_node_missing")
    failed = tuple(name for name in CHECKS if _equals(data.get(name), CHECK_FAILED))
    passed = all(_equals(data.get(name), CHECK_PASSED) for name in CHECKS)
    address = _address(data["node_ip"], "node_ip") if data.get("node_ip") not in (None, "") else None
    batches = () if failed else _batches(data, size=size)
    return Report(node=node, size=size, address=address, failed_checks=failed, passed_checks=passed, batches=batches)


def _json(body: bytes | str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReportInvalid("", "preflight_not_json", error=str(error)) from error


def _equals(value: object, number: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == number


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_NODES:
        raise ReportInvalid("workload_size", "preflight_size_invalid", most=MAX_NODES, value=short_repr(value))
    if value % 2:
        raise ReportInvalid("workload_size", "preflight_size_odd", value=value)
    return value


def _address(value: object, path: str) -> str:
    """The address in its canonical form, so that both nodes of a pair name it the same way."""
    try:
        if isinstance(value, str):
            return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    raise ReportInvalid(path, "preflight_not_an_ip", value=short_repr(value))


def _threshold(value: object) -> float:
    """The bandwidth in GiB/s below which a batch has failed; 0 for no threshold. kcover writes it as a string."""
    path = "node_check_busbw_threshold_gbps"
    if value is None or (isinstance(value, str) and not value.strip()):
        return 0
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ReportInvalid(path, "preflight_threshold_invalid", value=short_repr(value))
    return number


def _batches(data: Mapping[str, Any], *, size: int) -> tuple[Batch, ...]:
    """The expected slots, in order; others are ignored."""
    threshold = _threshold(data.get("node_check_busbw_threshold_gbps"))
    items = data.get("batches")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ReportInvalid("batches", "preflight_batches_type")
    batches: dict[int, Batch | None] = {}
    for index, item in enumerate(items):
        at = f"batches/{index}"
        if not isinstance(item, Mapping):
            raise ReportInvalid(at, "preflight_batch_type")
        slot = item.get("batch_idx")
        if isinstance(slot, bool) or not isinstance(slot, int) or slot < 0:
            raise ReportInvalid(f"{at}/batch_idx", "preflight_slot_invalid", value=short_repr(slot))
        if slot in batches:
            raise ReportInvalid(f"{at}/batch_idx", "preflight_slot_twice", slot=short_repr(slot))
        expected = slot < expected_batches(size)
        batches[slot] = _batch(item, at, slot=slot, threshold=threshold) if expected else None
    return tuple(batch for _, batch in sorted(batches.items()) if batch is not None)


def _batch(item: Mapping[str, Any], at: str, *, slot: int, threshold: float) -> Batch:
    pair = item.get("pair")
    if not isinstance(pair, list) or len(pair) != 2:
        raise ReportInvalid(f"{at}/pair", "preflight_pair_type")
    ends = [_address(end, f"{at}/pair/{index}") for index, end in enumerate(pair)]
    if ends[0] == ends[1]:
        raise ReportInvalid(f"{at}/pair", "preflight_pair_same")
    own = _address(item.get("self_ip"), f"{at}/self_ip")
    if own not in ends:
        raise ReportInvalid(f"{at}/self_ip", "preflight_not_in_pair", address=own)
    peer = ends[1] if own == ends[0] else ends[0]
    return Batch(slot=slot, own=own, peer=peer, failed=_failed(item, threshold=threshold))


def _failed(item: Mapping[str, Any], *, threshold: float) -> bool:
    """Return whether a slot failed, by its status or, if there is a threshold, by its figures."""
    if item.get("status") in FAILED_STATUSES:
        return True
    if threshold <= 0:
        return False
    figures = [item.get(name) for name in ("allreduce_shape", "dtype_bytes", "allreduce_ms", "world_size")]
    numbers = [figure for figure in figures if isinstance(figure, int | float) and not isinstance(figure, bool)]
    if len(numbers) < len(figures):
        return True
    elements, element_bytes, milliseconds, ranks = numbers
    bandwidth = bus_bandwidth(elements=elements, element_bytes=element_bytes, milliseconds=milliseconds, ranks=ranks)
    return bandwidth is None or bandwidth < threshold
