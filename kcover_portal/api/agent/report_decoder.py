"""Decode the body of a report into the one value that goes to the writer.

msgspec decodes what agents send most: heartbeats, inventories and check results without an invalid item. It takes a
seventh of the time of ``wire.decode``. ``wire.decode`` defines the format and decodes everything else: faults, command
results, invalid items, unusual spellings, and bodies to refuse. A body that msgspec accepts has the same value either
way.
"""

import re
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

from kcover import wire
from kcover.wire import fields
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import agent_reports
from kcover_portal.fleet.services.agent_reports import IncomingReport

# Encoded, these structs have the form of ``wire.encode``: its order, with empty texts (msgspec never omits the value of
# such a ``default_factory``), without None (``omit_defaults``).
Text32 = Annotated[str, Meta(max_length=32)]
Text64 = Annotated[str, Meta(max_length=64)]
Text128 = Annotated[str, Meta(max_length=128)]
Message = Annotated[str, Meta(max_length=fields.MAX_MESSAGE)]
CheckName = Annotated[str, Meta(min_length=1, max_length=64)]
BootId = Annotated[str, Meta(min_length=1, max_length=fields.MAX_BOOT_ID)]
GpuUuid = Annotated[str, Meta(min_length=1, max_length=fields.MAX_GPU_UUID)]
GpuIndex = Annotated[int, Meta(ge=0, le=1023)]


class _Gpu(Struct, kw_only=True, omit_defaults=True, gc=False):
    index: GpuIndex
    uuid: GpuUuid
    pci: str | None = None
    model: Text128 = field(default_factory=str)
    serial: Text64 = field(default_factory=str)


class _Nic(Struct, kw_only=True, omit_defaults=True, gc=False):
    serial: Text64
    name: Text64 = field(default_factory=str)
    pci: str | None = None
    model: Text128 = field(default_factory=str)


class _Inventory(Struct, kw_only=True, omit_defaults=True, gc=False):
    driver: Text64 = field(default_factory=str)
    kernel: Text128 = field(default_factory=str)
    gpus: Annotated[tuple[_Gpu, ...], Meta(max_length=fields.MAX_GPUS)] = field(default_factory=lambda: ())
    # wire.encode leaves these out where they are empty, so that inventories without them keep their digest.
    machine_serial: Text64 = ""
    board_serial: Text64 = ""
    nics: Annotated[tuple[_Nic, ...], Meta(max_length=fields.MAX_NICS)] = ()


class _Check(Struct, kw_only=True, omit_defaults=True, gc=False):
    name: CheckName
    device: Text128 = field(default_factory=str)
    status: Literal["pass", "warn", "fail", "error", "skipped"]
    value: float | None = None
    unit: Text32 = field(default_factory=str)
    message: Message = field(default_factory=str)


_Figures = Annotated[
    dict[GpuUuid, Annotated[dict[CheckName, float], Meta(max_length=fields.MAX_FIGURES)]],
    Meta(max_length=fields.MAX_GPUS),
]


class _Envelope(Struct, kw_only=True, omit_defaults=True):
    version: Literal[1]
    node: str
    boot_id: BootId
    batch_id: str
    agent: Text64 = field(default_factory=str)
    sent_at: str
    inventory: Raw = Raw()
    faults: tuple[()] | None = None
    checks: Raw = Raw()
    command_results: tuple[()] | None = None
    figures: _Figures | None = None


_Checks = Annotated[tuple[_Check, ...], Meta(max_length=fields.MAX_CHECKS)]

_encode = msgspec.json.Encoder().encode
_envelope = msgspec.json.Decoder(_Envelope).decode
_inventory = msgspec.json.Decoder(_Inventory).decode
_checks = msgspec.json.Decoder(_Checks).decode
_tree = msgspec.json.Decoder().decode

# For many texts at once, joined: a class of characters holds for each of them if it holds for all.
_NAMES = re.compile(r"[a-z0-9_.-]*")
_IDENTIFIERS = re.compile(r"[!-~]*")

# MsgspecError: not JSON, or not as above. ValueError: not UTF-8, or a text that does not have its form. The others come
# of values of unknown keys.
_REFUSALS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def read(cluster: Cluster, body: bytes, *, now: datetime) -> IncomingReport:
    """The report in a body. Raises EnvelopeError if nothing can be kept."""
    try:
        return _strict(cluster, body, now=now)
    except _REFUSALS:
        decoded = wire.decode(body)
        return IncomingReport.of(cluster, decoded.report, rejected=decoded.rejected, received_at=now)


def _strict(cluster: Cluster, body: bytes, *, now: datetime) -> IncomingReport:
    """The report in a body that has nothing to reject. Raises one of _REFUSALS."""
    if len(body) > fields.MAX_BYTES or (b"\\" in body and b"\\u0000" in body):
        raise ValueError("too long, or with a NUL")
    envelope = _envelope(body)
    inventory, checks, check_count = b"", b"", 0
    if envelope.inventory:
        inventory = _encode(_valid_inventory(envelope.inventory))
    if envelope.checks:
        results = _valid_checks(envelope.checks)
        checks, check_count = _encode(results), len(results)
    is_as_encoded = (
        checks == bytes(envelope.checks) and inventory == bytes(envelope.inventory) and _encode(envelope) == body
    )
    if not (is_as_encoded or _has_unique_keys(body)):
        raise ValueError("perhaps with a duplicate key")
    checks = checks if check_count else b""
    return IncomingReport(
        cluster=cluster,
        node=_matching(fields.NODE, envelope.node, limit=253),
        received_at=now,
        boot_id=_matching(fields.IDENTIFIER, envelope.boot_id),
        batch_id=_matching(fields.UUID, envelope.batch_id).lower(),
        sent_at=fields.required_moment({"sent_at": envelope.sent_at}, "sent_at"),
        agent=envelope.agent,
        inventory=inventory,
        inventory_digest=agent_reports.digest_of(inventory),
        checks=checks,
        checks_digest=agent_reports.digest_of(checks, size=agent_reports.CHECKS_DIGEST_BYTES),
        check_count=check_count,
        figures=_valid_figures(envelope.figures) if envelope.figures else {},
    )


def _has_unique_keys(body: bytes) -> bool:
    """Returns whether no object in the JSON has a key twice. Such JSON equals its encoded tree, apart from whitespace.

    A tree of dicts has each key once. Also False if a value is spelled differently from how msgspec writes it.
    """
    return _encode(_tree(body)) == msgspec.json.format(body, indent=-1)


def _valid_inventory(part: Raw) -> _Inventory:
    inventory = _inventory(part)
    gpus = inventory.gpus
    uuids = [gpu.uuid for gpu in gpus]
    _matching(_IDENTIFIERS, "".join(uuids))
    if not all(map(fields.PCI.fullmatch, [pci for pci in _addresses(inventory) if pci is not None])):
        raise ValueError("not a PCI address in lower case")
    if len({gpu.index for gpu in gpus}) < len(gpus) or len(set(uuids)) < len(gpus):
        raise ValueError("an index or a UUID occurs twice")
    return inventory


def _addresses(inventory: _Inventory) -> list[str | None]:
    return [gpu.pci for gpu in inventory.gpus] + [nic.pci for nic in inventory.nics]


def _valid_checks(part: Raw) -> tuple[_Check, ...]:
    checks = _checks(part)
    _matching(_NAMES, "".join([check.name for check in checks]))
    return checks


def _valid_figures(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    _matching(_IDENTIFIERS, "".join(figures))
    _matching(_NAMES, "".join([name for values in figures.values() for name in values]))
    return figures


def _matching(pattern: re.Pattern[str], text: str, *, limit: int = fields.MAX_BYTES) -> str:
    if len(text) > limit or not pattern.fullmatch(text):
        raise ValueError("a text does not have its form")
    return text
