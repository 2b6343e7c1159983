"""Decode messages: the envelope first, then item by item."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from kcover.faults.fault import (
    CHECK_STATUSES,
    CODE_PHRASE,
    COMMAND_KINDS,
    KINDS,
    NUMERIC_KINDS,
    PHRASED_KINDS,
    RESULT_STATUSES,
    Check,
    Command,
    CommandResult,
    Fault,
    Gpu,
    Inventory,
    Nic,
)
from kcover.wire import fields, strict_json
from kcover.wire.fields import EnvelopeError, JsonObject, WireError
from kcover.wire.messages import Answer, Decoded, Rejected, Report

MAX_CODE = 2**31 - 1  # Xid and SXid codes are int32

_Value = TypeVar("_Value")


def decode(body: bytes) -> Decoded:
    """The report in a request's body (plain JSON, already decompressed).

    Raises EnvelopeError if nothing can be kept: not JSON (UTF-8, no duplicate key, no NaN), too long, nested too
    deeply, or an invalid version, node, boot_id, batch_id or sent_at. An invalid item is left out and listed in
    ``rejected``. An invalid inventory is left out as a whole, because a GPU missing from it would look removed.
    """
    item = strict_json.load(body)
    try:
        _version(item)
        node = _node(item)
        boot_id = _identifier(item, "boot_id", maximum=fields.MAX_BOOT_ID)
        batch_id = _batch_id(item)
        sent_at = fields.required_moment(item, "sent_at")
    except WireError as error:
        raise EnvelopeError(error.path, error.code, **error.params) from None
    rejected: list[Rejected] = []
    report = Report(
        node=node,
        boot_id=boot_id,
        batch_id=batch_id,
        sent_at=sent_at,
        agent=_optional(item, "agent", _agent, rejected) or "",
        inventory=_optional(item, "inventory", _inventory, rejected),
        faults=_items(item, "faults", _fault, rejected, maximum=fields.MAX_FAULTS),
        checks=_items(item, "checks", _check, rejected, maximum=fields.MAX_CHECKS),
        command_results=_items(item, "command_results", _result, rejected, maximum=fields.MAX_RESULTS),
        figures=_optional(item, "figures", _figures, rejected) or {},
    )
    return Decoded(report, tuple(rejected))


def decode_answer(value: object) -> Answer:
    """The answer to a report, or to a long poll (commands only), from its parsed JSON.

    Raises WireError if it is not an answer. A command that this version does not support is left out and listed in
    ``unsupported``.
    """
    item = _object(value)
    unsupported: list[Rejected] = []
    return Answer(
        accepted=fields.integer(item, "accepted", maximum=fields.MAX_SEQUENCE) or 0,
        duplicates=fields.integer(item, "duplicates", maximum=fields.MAX_SEQUENCE) or 0,
        rejected=_items(item, "rejected", _rejected, unsupported, maximum=fields.MAX_BYTES),
        commands=_items(item, "commands", decode_command, unsupported, maximum=fields.MAX_RESULTS),
        unsupported=tuple(unsupported),
    )


def decode_command(value: object) -> Command:
    """A command from its parsed JSON. Raises WireError."""
    item = _object(value)
    return Command(
        id=_identifier(item, "id"),
        kind=fields.choice(item, "kind", COMMAND_KINDS),
        created_at=fields.required_moment(item, "created_at"),
        expires_at=fields.required_moment(item, "expires_at"),
        args=fields.mapping(item, "args"),
    )


def _version(item: JsonObject) -> None:
    version = fields.required(item, "version")
    if type(version) is not int or version != fields.VERSION:
        raise WireError("version", "wire_version", value=fields.short_json(version), version=fields.VERSION)


def _node(item: JsonObject) -> str:
    name = fields.required(item, "node")
    if type(name) is not str or len(name) > 253 or not fields.NODE.fullmatch(name):
        raise WireError("node", "wire_node_invalid", value=fields.short_json(name))
    return name


def _batch_id(item: JsonObject) -> str:
    fields.required(item, "batch_id")
    return str(UUID(fields.matching(item, "batch_id", fields.BATCH, invalid="wire_batch_invalid")))


def _identifier(item: JsonObject, key: str, *, maximum: int = fields.MAX_IDENTIFIER) -> str:
    value = fields.matching(
        item, key, fields.IDENTIFIER, invalid="wire_identifier_invalid", max_length=maximum, limit=maximum
    )
    return value if value is not None else str(fields.required(item, key))


def _object(value: object) -> JsonObject:
    if type(value) is not dict:
        raise WireError("", "wire_not_object", value=fields.short_json(value))
    return value


def _optional(
    item: JsonObject, key: str, read: Callable[[JsonObject], _Value], rejected: list[Rejected]
) -> _Value | None:
    """The value of a key, None if it is absent or invalid; ``read`` is given the whole item."""
    if item.get(key) is None:
        return None
    try:
        return read(item)
    except WireError as error:
        rejected.append(Rejected.of(error))
        return None


def _items(
    item: JsonObject, key: str, read: Callable[[object], _Value], rejected: list[Rejected], *, maximum: int
) -> tuple[_Value, ...]:
    """The valid items of a list; the others, and those over the limit, are added to ``rejected``."""
    values = item.get(key)
    if values is None:
        return ()
    if type(values) is not list:
        rejected.append(Rejected.of(WireError(key, "wire_not_list", value=fields.short_json(values))))
        return ()
    items = []
    for index, value in enumerate(values[:maximum]):
        try:
            items.append(read(value))
        except WireError as error:
            rejected.append(Rejected.of(error, at=f"{key}/{index}"))
    if len(values) > maximum:
        rejected.append(Rejected.of(WireError(f"{key}/{maximum}", "wire_items_many", limit=maximum, items=key)))
    return tuple(items)


def _agent(item: JsonObject) -> str:
    return fields.text(item, "agent", limit=64)


def _inventory(report: JsonObject) -> Inventory:
    path = "inventory"
    try:
        item = _object(report["inventory"])
        gpus: list[Gpu] = []
        listed = item.get("gpus")
        if listed is not None and (type(listed) is not list or len(listed) > fields.MAX_GPUS):
            raise WireError("gpus", "wire_gpus_invalid", limit=fields.MAX_GPUS)
        inventory = Inventory(
            driver=fields.text(item, "driver", limit=64), kernel=fields.text(item, "kernel", limit=128)
        )
        indexes: set[int] = set()
        uuids: set[str] = set()
        for position, value in enumerate(listed or ()):
            path = f"inventory/gpus/{position}"
            gpu = _gpu(value)
            if gpu.index in indexes:
                raise WireError("index", "wire_gpu_twice", value=gpu.index)
            if gpu.uuid in uuids:
                raise WireError("uuid", "wire_gpu_twice", value=fields.short_json(gpu.uuid))
            indexes.add(gpu.index)
            uuids.add(gpu.uuid)
            gpus.append(gpu)
        path = "inventory"
        machine, board = (fields.text(item, key, limit=64) for key in ("machine_serial", "board_serial"))
        nics = _nics(item)
    except WireError as error:
        raise WireError(f"{path}/{error.path}".rstrip("/"), error.code, **error.params) from None
    return replace(inventory, gpus=tuple(gpus), machine_serial=machine, board_serial=board, nics=nics)


def _nics(inventory: JsonObject) -> tuple[Nic, ...]:
    listed = inventory.get("nics")
    if listed is None:
        return ()
    if type(listed) is not list or len(listed) > fields.MAX_NICS:
        raise WireError("nics", "wire_gpus_invalid", limit=fields.MAX_NICS)
    nics = []
    for position, value in enumerate(listed):
        try:
            nics.append(_nic(_object(value)))
        except WireError as error:
            raise WireError(f"nics/{position}/{error.path}".rstrip("/"), error.code, **error.params) from None
    return tuple(nics)


def _nic(item: JsonObject) -> Nic:
    fields.required(item, "serial")
    return Nic(
        serial=fields.text(item, "serial", limit=64),
        name=fields.text(item, "name", limit=64),
        pci=fields.pci(item),
        model=fields.text(item, "model", limit=128),
    )


def _figures(report: JsonObject) -> dict[str, dict[str, float]]:
    """Numbers by GPU and name; one that is invalid makes all invalid."""
    path, found = "figures", dict[str, dict[str, float]]()
    try:
        listed = _object(report["figures"])
        if len(listed) > fields.MAX_GPUS:
            raise WireError("", "wire_keys_many", limit=fields.MAX_GPUS)
        for gpu, values in listed.items():
            path = "figures"
            _identifier({"uuid": gpu}, "uuid", maximum=fields.MAX_GPU_UUID)
            path = f"figures/{gpu}"
            found[gpu] = _of_gpu(_object(values))
    except WireError as error:
        raise WireError(f"{path}/{error.path}".rstrip("/"), error.code, **error.params) from None
    return found


def _of_gpu(values: JsonObject) -> dict[str, float]:
    if len(values) > fields.MAX_FIGURES:
        raise WireError("", "wire_keys_many", limit=fields.MAX_FIGURES)
    for name in values:
        _word({"name": name}, "name")
    return {name: _number(values, name) for name in values}


def _number(item: JsonObject, key: str) -> float:
    fields.required(item, key)
    return fields.number(item, key) or 0.0


def _gpu(value: object) -> Gpu:
    item = _object(value)
    index = fields.integer(item, "index", maximum=1023)
    return Gpu(
        index=index if index is not None else int(fields.required(item, "index")),
        uuid=_identifier(item, "uuid", maximum=fields.MAX_GPU_UUID),
        pci=fields.pci(item),
        model=fields.text(item, "model", limit=128),
        serial=fields.text(item, "serial", limit=64),
    )


def _fault(value: object) -> Fault:
    item = _object(value)
    kind = fields.choice(item, "kind", KINDS)
    return Fault(
        kind=kind,
        code=_code(item, kind),
        pci=fields.pci(item),
        gpu_uuid=fields.matching(
            item, "gpu_uuid", fields.IDENTIFIER, invalid="wire_gpu_uuid_invalid", max_length=fields.MAX_GPU_UUID
        ),
        message=fields.text(item, "message", limit=fields.MAX_MESSAGE),
        seen_at=fields.moment(item, "seen_at"),
        source=fields.matching(
            item,
            "source",
            fields.WORD,
            invalid="wire_source_invalid",
            max_length=fields.MAX_SOURCE,
            limit=fields.MAX_SOURCE,
        )
        or "other",
        sequence=fields.integer(item, "sequence", maximum=fields.MAX_SEQUENCE),
        drill=fields.boolean(item, "drill"),
        count=fields.integer(item, "count", minimum=1, maximum=fields.MAX_COUNT) or 1,
        records=fields.ranges(item, "records"),
        lines_before=fields.text(item, "lines_before", limit=fields.MAX_LINES_BEFORE),
    )


def _code(item: JsonObject, kind: str) -> int | str:
    fields.required(item, "code")
    if kind in NUMERIC_KINDS:
        return fields.integer(item, "code", maximum=MAX_CODE) or 0
    if kind in PHRASED_KINDS:
        return str(fields.matching(item, "code", CODE_PHRASE, invalid="wire_phrase_invalid"))
    return _word(item, "code")


def _word(item: JsonObject, key: str) -> str:
    return fields.matching(item, key, fields.WORD, invalid="wire_word_invalid") or str(fields.required(item, key))


def _check(value: object) -> Check:
    item = _object(value)
    return Check(
        name=_word(item, "name"),
        status=fields.choice(item, "status", CHECK_STATUSES),
        device=fields.text(item, "device", limit=128),
        value=fields.number(item, "value"),
        unit=fields.text(item, "unit", limit=32),
        message=fields.text(item, "message", limit=fields.MAX_MESSAGE),
    )


def _result(value: object) -> CommandResult:
    item = _object(value)
    return CommandResult(
        id=_identifier(item, "id"),
        status=fields.choice(item, "status", RESULT_STATUSES),
        finished_at=fields.moment(item, "finished_at"),
        message=fields.text(item, "message", limit=fields.MAX_MESSAGE),
        output=fields.mapping(item, "output"),
    )


def _rejected(value: object) -> Rejected:
    item = _object(value)
    path, code, reason = (fields.text(item, key, limit=fields.MAX_MESSAGE) for key in ("path", "code", "reason"))
    return Rejected(path, code, reason)
