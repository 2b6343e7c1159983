"""Parse the preflight report of one node: kcover's JSON, compact or full. Errors name the path of the field.

Fields and rules: semantics section 1.5. Unknown fields are ignored, and so are batches beyond the expected ones.
"""

import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BATCHES = 5
MAX_NODES = 10_000
CHECK_FAILED = 2  # gpu_check, storage_check: 0 not run, 1 pass, 2 fail
FAILED_STATUSES = ("fail", "skip")
GIB = 2**30


class ReportInvalid(ValueError):
    """A report that is not counted. ``path``: the field. ``reason``: what is wrong with it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


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

    ``address`` is the address that the node reports for itself, or None; it may differ from those of its batches.
    """

    node: str
    size: int
    address: str | None = None
    failed_checks: tuple[str, ...] = ()
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
        raise ReportInvalid("", "a report must be a JSON object")
    size = _size(data.get("workload_size"))
    node = data.get("node_name")
    if not isinstance(node, str) or not node:
        raise ReportInvalid("node_name", "must be the name of the node that sends the report")
    failed = tuple(name for name in ("gpu_check", "storage_check") if _equals(data.get(name), CHECK_FAILED))
    address = _address(data["node_ip"], "node_ip") if data.get("node_ip") not in (None, "") else None
    batches = () if failed else _batches(data, size=size)
    return Report(node=node, size=size, address=address, failed_checks=failed, batches=batches)


def _json(body: bytes | str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReportInvalid("", f"the report is not valid JSON: {error}") from error


def _equals(value: object, number: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == number


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_NODES:
        raise ReportInvalid("workload_size", f"must be a whole number of nodes from 2 to {MAX_NODES}, not {value!r}")
    if value % 2:
        raise ReportInvalid("workload_size", f"must be even, because nodes run in pairs, not {value}")
    return value


def _address(value: object, path: str) -> str:
    """The address in its canonical form, so that both nodes of a pair name it the same way."""
    try:
        if isinstance(value, str):
            return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    raise ReportInvalid(path, f"{value!r} is not an IP address")


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
        raise ReportInvalid(path, f"must be a number of at least 0, not {value!r}")
    return number


def _batches(data: Mapping[str, Any], *, size: int) -> tuple[Batch, ...]:
    """The expected slots, in order; others are ignored."""
    threshold = _threshold(data.get("node_check_busbw_threshold_gbps"))
    items = data.get("batches")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ReportInvalid("batches", "must be a list")
    batches: dict[int, Batch | None] = {}
    for index, item in enumerate(items):
        at = f"batches/{index}"
        if not isinstance(item, Mapping):
            raise ReportInvalid(at, "must be an object")
        slot = item.get("batch_idx")
        if isinstance(slot, bool) or not isinstance(slot, int) or slot < 0:
            raise ReportInvalid(f"{at}/batch_idx", f"must be a whole number of at least 0, not {slot!r}")
        if slot in batches:
            raise ReportInvalid(f"{at}/batch_idx", f"slot {slot} appears twice")
        expected = slot < expected_batches(size)
        batches[slot] = _batch(item, at, slot=slot, threshold=threshold) if expected else None
    return tuple(batch for _, batch in sorted(batches.items()) if batch is not None)


def _batch(item: Mapping[str, Any], at: str, *, slot: int, threshold: float) -> Batch:
    pair = item.get("pair")
    if not isinstance(pair, list) or len(pair) != 2:
        raise ReportInvalid(f"{at}/pair", "must be two addresses")
    ends = [_address(end, f"{at}/pair/{index}") for index, end in enumerate(pair)]
    if ends[0] == ends[1]:
        raise ReportInvalid(f"{at}/pair", "must be two addresses, not the same one twice")
    own = _address(item.get("self_ip"), f"{at}/self_ip")
    if own not in ends:
        raise ReportInvalid(f"{at}/self_ip", f"{own} is not in the pair")
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
