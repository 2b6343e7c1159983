"""One node's preflight report: kcover's JSON, compacted or whole, read into values; what is wrong is named by its path.

Fields and rules: semantics section 1.5. Unknown fields are ignored, batches beyond those that are judged too.
"""

import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_BATCHES = 5
MOST_NODES = 10_000
FAILED = 2  # gpu_check, storage_check: 0 not run, 1 pass, 2 fail
FAILURES = ("fail", "skip")
GIB = 2**30


class ReportRefused(ValueError):
    """A report that is not counted: ``path`` names the field, ``reason`` says what is wrong with it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One slot as one end of its pair saw it: the two addresses, and whether it failed."""

    slot: int
    own: str
    peer: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one node says. ``failed_checks`` names those that make the node abnormal; then ``batches`` is empty.

    ``address`` is the node's own by its word, None where it gave none; it need not be the one it ran batches under.
    """

    node: str
    size: int
    address: str | None = None
    failed_checks: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()

    @property
    def addresses(self) -> frozenset[str]:
        """Every address that is this node's."""
        return frozenset({batch.own for batch in self.batches} | ({self.address} if self.address else set()))


def batches_of(size: int) -> int:
    """How many slots a node of a job of ``size`` nodes runs."""
    return min(size - 1, MOST_BATCHES)


def bus_bandwidth(*, elements: float, element_bytes: float, milliseconds: float, ranks: float) -> float | None:
    """The bus bandwidth of an all-reduce in GiB/s, None for figures that mean nothing.

    kcover calls the threshold gbps; its formula gives GiB/s.
    """
    try:
        figures = [float(one) for one in (elements, element_bytes, milliseconds, ranks)]
        if not all(math.isfinite(one) and one > 0 for one in figures) or ranks <= 1:
            return None
        found = (figures[0] * figures[1] / GIB) / (figures[2] / 1000) * 2 * (figures[3] - 1) / figures[3]
    except (OverflowError, ZeroDivisionError):  # of figures that no machine measures
        return None
    return found if math.isfinite(found) else None


def read(body: bytes | str | Mapping[str, Any]) -> Report:
    """The report that a body means. Raises ReportRefused."""
    data = _json(body) if isinstance(body, bytes | str) else body
    if not isinstance(data, Mapping):
        raise ReportRefused("", "a report is a JSON object")
    size = _size(data.get("workload_size"))
    node = data.get("node_name")
    if not isinstance(node, str) or not node:
        raise ReportRefused("node_name", "the report does not say which node it is from")
    failed = tuple(name for name in ("gpu_check", "storage_check") if _is(data.get(name), FAILED))
    address = _address(data["node_ip"], "node_ip") if data.get("node_ip") not in (None, "") else None
    batches = () if failed else _batches(data, size=size)
    return Report(node=node, size=size, address=address, failed_checks=failed, batches=batches)


def _json(body: bytes | str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReportRefused("", f"the report is no JSON: {error}") from error


def _is(value: object, number: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == number


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_NODES:
        raise ReportRefused("workload_size", f"must be a whole number of nodes from 2 to {MOST_NODES}, not {value!r}")
    if value % 2:
        raise ReportRefused("workload_size", f"must be even, for nodes run in pairs, not {value}")
    return value


def _address(value: object, path: str) -> str:
    """The address in its one canonical form, so that both ends name a pair alike."""
    try:
        if isinstance(value, str):
            return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    raise ReportRefused(path, f"{value!r} is no IP address")


def _threshold(value: object) -> float:
    """GiB/s below which a batch failed; 0: batches are not judged by it. kcover writes it as a string."""
    path = "node_check_busbw_threshold_gbps"
    if value is None or (isinstance(value, str) and not value.strip()):
        return 0
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ReportRefused(path, f"must be a number from 0, not {value!r}")
    return number


def _batches(data: Mapping[str, Any], *, size: int) -> tuple[Batch, ...]:
    """The slots that are judged, in order."""
    threshold = _threshold(data.get("node_check_busbw_threshold_gbps"))
    items = data.get("batches")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ReportRefused("batches", "must be a list")
    read: dict[int, Batch | None] = {}
    for place, item in enumerate(items):
        at = f"batches/{place}"
        if not isinstance(item, Mapping):
            raise ReportRefused(at, "must be an object")
        slot = item.get("batch_idx")
        if isinstance(slot, bool) or not isinstance(slot, int) or slot < 0:
            raise ReportRefused(f"{at}/batch_idx", f"must be a whole number from 0, not {slot!r}")
        if slot in read:
            raise ReportRefused(f"{at}/batch_idx", f"slot {slot} is there twice")
        judged = slot < batches_of(size)
        read[slot] = _batch(item, at, slot=slot, threshold=threshold) if judged else None
    return tuple(batch for _, batch in sorted(read.items()) if batch is not None)


def _batch(item: Mapping[str, Any], at: str, *, slot: int, threshold: float) -> Batch:
    pair = item.get("pair")
    if not isinstance(pair, list) or len(pair) != 2:
        raise ReportRefused(f"{at}/pair", "must be two addresses")
    ends = [_address(one, f"{at}/pair/{place}") for place, one in enumerate(pair)]
    if ends[0] == ends[1]:
        raise ReportRefused(f"{at}/pair", "must be two addresses, not the same one twice")
    own = _address(item.get("self_ip"), f"{at}/self_ip")
    if own not in ends:
        raise ReportRefused(f"{at}/self_ip", f"{own} is not in the pair")
    peer = ends[1] if own == ends[0] else ends[0]
    return Batch(slot=slot, own=own, peer=peer, failed=_failed(item, threshold=threshold))


def _failed(item: Mapping[str, Any], *, threshold: float) -> bool:
    """Whether a slot failed, by its word or, where there is a threshold, by its figures."""
    if item.get("status") in FAILURES:
        return True
    if threshold <= 0:
        return False
    figures = [item.get(name) for name in ("allreduce_shape", "dtype_bytes", "allreduce_ms", "world_size")]
    numbers = [one for one in figures if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < len(figures):
        return True
    elements, element_bytes, milliseconds, ranks = numbers
    found = bus_bandwidth(elements=elements, element_bytes=element_bytes, milliseconds=milliseconds, ranks=ranks)
    return found is None or found < threshold
