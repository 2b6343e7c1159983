"""Reading messages: envelope first, then item by item."""

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from kcover.fault import (
    CHECK_STATUSES,
    COMMAND_KINDS,
    KINDS,
    NUMERIC_KINDS,
    RESULT_STATUSES,
    Check,
    Command,
    CommandResult,
    Fault,
    Gpu,
    Inventory,
)
from kcover.wire import fields
from kcover.wire.fields import EnvelopeError, Object, WireError
from kcover.wire.messages import Answer, Decoded, Rejected, Report

MAX_CODE = 2**31 - 1  # Xid and SXid codes are int32

_Item = TypeVar("_Item")


def decode(body: bytes) -> Decoded:
    """The report in a request's body (plain JSON, already decompressed).

    Raises EnvelopeError where nothing can be kept: not JSON (UTF-8, no key twice, no NaN), too long, nested too deep,
    or version, node, boot_id, batch_id or sent_at wrong. A wrong item is left out and listed in ``rejected``; an
    inventory with anything wrong in it is left out as a whole, because a GPU missing in it would read as taken out.
    """
    item = _load(body)
    try:
        _version(item)
        node = _node(item)
        boot_id = _identifier(item, "boot_id", most=fields.MAX_BOOT_ID)
        batch_id = _batch_id(item)
        sent_at = fields.required_moment(item, "sent_at")
    except WireError as error:
        raise EnvelopeError(error.path, error.reason) from None
    rejected: list[Rejected] = []
    report = Report(
        node=node,
        boot_id=boot_id,
        batch_id=batch_id,
        sent_at=sent_at,
        agent=_one(item, "agent", _agent, rejected) or "",
        inventory=_one(item, "inventory", _inventory, rejected),
        faults=_many(item, "faults", _fault, rejected, most=fields.MAX_FAULTS),
        checks=_many(item, "checks", _check, rejected, most=fields.MAX_CHECKS),
        command_results=_many(item, "command_results", _result, rejected, most=fields.MAX_RESULTS),
    )
    return Decoded(report, tuple(rejected))


def decode_answer(value: object) -> Answer:
    """The answer to a report, or to a long poll (commands only), from its parsed JSON.

    Raises WireError where it is none; a command that this side does not understand is left out, listed in ``unread``.
    """
    item = _object(value)
    unread: list[Rejected] = []
    return Answer(
        accepted=fields.integer(item, "accepted", most=fields.MAX_SEQUENCE) or 0,
        duplicates=fields.integer(item, "duplicates", most=fields.MAX_SEQUENCE) or 0,
        rejected=_many(item, "rejected", _rejected, unread, most=fields.MAX_BYTES),
        commands=_many(item, "commands", decode_command, unread, most=fields.MAX_RESULTS),
        unread=tuple(unread),
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


def _load(body: bytes) -> Object:
    if len(body) > fields.MAX_BYTES:
        raise EnvelopeError(
            "", f"has {len(body)} bytes, at most {fields.MAX_BYTES} are taken: send fewer items at once"
        )
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except EnvelopeError:
        raise
    except RecursionError:
        raise EnvelopeError("", "is nested too deep") from None
    except ValueError as error:  # of JSON, of UTF-8, of an integer with thousands of digits
        raise EnvelopeError("", f"is not JSON in UTF-8: {error}") from None
    if type(value) is not dict:
        raise EnvelopeError("", f"must be an object, not {fields.shown(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Object:
    item = dict(pairs)
    if len(item) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise EnvelopeError("", f"has the key {fields.shown(key)} twice in one object: write it once")
            seen.add(key)
    return item


def _no_constant(name: str) -> NoReturn:
    raise EnvelopeError("", f"holds {name}, which is not JSON: write null or leave the key out")


def _version(item: Object) -> None:
    version = fields.required(item, "version")
    if type(version) is not int or version != fields.VERSION:
        raise WireError("version", f"{fields.shown(version)} is not spoken here: write {fields.VERSION}")


def _node(item: Object) -> str:
    name = fields.required(item, "node")
    if type(name) is not str or len(name) > 253 or not fields.NODE.fullmatch(name):
        wanted = "a node's name as Kubernetes has it (lower-case letters, digits, '-' and '.', at most 253)"
        raise WireError("node", f"must be {wanted}, not {fields.shown(name)}")
    return name


def _batch_id(item: Object) -> str:
    fields.required(item, "batch_id")
    value = fields.matching(
        item, "batch_id", fields.UUID, wanted='a UUID such as "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11"'
    )
    return str(value).lower()


def _identifier(item: Object, key: str, *, most: int = fields.MAX_IDENTIFIER) -> str:
    wanted = f"1 to {most} printable ASCII characters without spaces"
    value = fields.matching(item, key, fields.IDENTIFIER, wanted=wanted, limit=most)
    return value if value is not None else str(fields.required(item, key))


def _object(value: object) -> Object:
    if type(value) is not dict:
        raise WireError("", f"must be an object, not {fields.shown(value)}")
    return value


def _one(item: Object, key: str, read: Callable[[Object], _Item], rejected: list[Rejected]) -> _Item | None:
    """The one thing under a key, None if it is absent or wrong; ``read`` gets the whole item."""
    if item.get(key) is None:
        return None
    try:
        return read(item)
    except WireError as error:
        rejected.append(Rejected(error.path, error.reason))
        return None


def _many(
    item: Object, key: str, read: Callable[[object], _Item], rejected: list[Rejected], *, most: int
) -> tuple[_Item, ...]:
    """The good ones of a list; the others, and those past the limit, are told in ``rejected``."""
    values = item.get(key)
    if values is None:
        return ()
    if type(values) is not list:
        rejected.append(Rejected(key, f"must be a list, not {fields.shown(values)}"))
        return ()
    good = []
    for index, value in enumerate(values[:most]):
        try:
            good.append(read(value))
        except WireError as error:
            rejected.append(Rejected("/".join(filter(None, (key, str(index), error.path))), error.reason))
    if len(values) > most:
        reason = f"at most {most} {key} are taken at once: send this one and all after it in another batch"
        rejected.append(Rejected(f"{key}/{most}", reason))
    return tuple(good)


def _agent(item: Object) -> str:
    return fields.text(item, "agent", limit=64)


def _inventory(report: Object) -> Inventory:
    path = "inventory"
    try:
        item = _object(report["inventory"])
        gpus: list[Gpu] = []
        listed = item.get("gpus")
        if listed is not None and (type(listed) is not list or len(listed) > fields.MAX_GPUS):
            raise WireError("gpus", f"must be a list of at most {fields.MAX_GPUS}")
        inventory = Inventory(
            driver=fields.text(item, "driver", limit=64), kernel=fields.text(item, "kernel", limit=128)
        )
        indexes: set[int] = set()
        uuids: set[str] = set()
        for place, value in enumerate(listed or ()):
            path = f"inventory/gpus/{place}"
            gpu = _gpu(value)
            if gpu.index in indexes:
                raise WireError("index", f"{gpu.index} is another GPU's too")
            if gpu.uuid in uuids:
                raise WireError("uuid", f"{fields.shown(gpu.uuid)} is another GPU's too")
            indexes.add(gpu.index)
            uuids.add(gpu.uuid)
            gpus.append(gpu)
    except WireError as error:
        raise WireError(f"{path}/{error.path}".rstrip("/"), error.reason) from None
    return Inventory(driver=inventory.driver, kernel=inventory.kernel, gpus=tuple(gpus))


def _gpu(value: object) -> Gpu:
    item = _object(value)
    index = fields.integer(item, "index", most=1023)
    return Gpu(
        index=index if index is not None else int(fields.required(item, "index")),
        uuid=_identifier(item, "uuid", most=fields.MAX_GPU_UUID),
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
        gpu_uuid=fields.matching(item, "gpu_uuid", fields.IDENTIFIER, wanted="a GPU's UUID", limit=fields.MAX_GPU_UUID),
        message=fields.text(item, "message", limit=fields.MAX_MESSAGE),
        seen_at=fields.moment(item, "seen_at"),
        source=fields.matching(
            item,
            "source",
            fields.WORD,
            wanted=f'a short word such as "kmsg" (at most {fields.MAX_SOURCE})',
            limit=fields.MAX_SOURCE,
        )
        or "other",
        sequence=fields.integer(item, "sequence", most=fields.MAX_SEQUENCE),
        drill=fields.boolean(item, "drill"),
        count=_count(item),
        records=fields.ranges(item, "records"),
    )


def _code(item: Object, kind: str) -> int | str:
    fields.required(item, "code")
    if kind in NUMERIC_KINDS:
        return fields.integer(item, "code", most=MAX_CODE) or 0
    return _word(item, "code")


def _word(item: Object, key: str) -> str:
    value = fields.matching(item, key, fields.WORD, wanted="1 to 64 of a-z, 0-9, '_', '.' and '-'")
    return value if value is not None else str(fields.required(item, key))


def _count(item: Object) -> int:
    count = fields.integer(item, "count", least=1, most=fields.MAX_COUNT)
    return 1 if count is None else count


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
    return Rejected(
        fields.text(item, "path", limit=fields.MAX_MESSAGE), fields.text(item, "reason", limit=fields.MAX_MESSAGE)
    )
