"""Encoding messages, and decoding them on the other side."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from kcover import wire
from kcover.faults import fault
from kcover.faults.fault import Check, Command, CommandResult, Fault, Gpu, Inventory, Nic
from kcover.values import moments
from kcover.wire import Answer, Rejected, Report

AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
REPORT = Report(node="gpu-0001", boot_id="boot", batch_id="0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11", sent_at=AT)
COMMAND = Command(id="17", kind="reboot", created_at=AT, expires_at=AT + timedelta(hours=1), args={"why": "xid 79"})


def transmit(report):
    return wire.decode(json.dumps(wire.encode(report)).encode())


def copy(report, **changes):
    values = {name: getattr(report, name) for name in Report.__dataclass_fields__}
    return Report(**{**values, **changes})


# --------------------------------------------------------------------------------------------------- reports


def test_a_heartbeat_is_short():
    assert wire.encode(REPORT) == {
        "version": 1,
        "node": "gpu-0001",
        "boot_id": "boot",
        "batch_id": "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11",
        "agent": "",
        "sent_at": "2026-11-21T08:00:00Z",
        "faults": [],
        "checks": [],
    }


def test_every_field_is_written():
    east = timezone(timedelta(hours=8))
    report = copy(
        REPORT,
        agent="1.0.0",
        inventory=Inventory(
            driver="580.1",
            kernel="6.8",
            gpus=(Gpu(index=0, uuid="GPU-a", pci="0000:4e:00", model="H100", serial="1"), Gpu(index=1, uuid="GPU-b")),
        ),
        faults=(
            Fault(
                kind="xid",
                code=79,
                pci="0000:4e:00",
                gpu_uuid="GPU-a",
                message="raw",
                seen_at=datetime(2026, 11, 21, 16, 0, 0, 250000, tzinfo=east),
                source="kmsg",
                sequence=0,
                drill=True,
                count=2,
            ),
        ),
        checks=(Check(name="remapped", status="pass", device="GPU-a", value=0.0, unit="rows", message="m"),),
        command_results=(CommandResult(id="17", status="done", finished_at=AT, message="m", output={"a": 1}),),
    )
    written = wire.encode(report)
    assert written["agent"] == "1.0.0"
    assert written["inventory"] == {
        "driver": "580.1",
        "kernel": "6.8",
        "gpus": [
            {"index": 0, "uuid": "GPU-a", "pci": "0000:4e:00", "model": "H100", "serial": "1"},
            {"index": 1, "uuid": "GPU-b", "model": "", "serial": ""},
        ],
    }
    assert written["faults"] == [
        {
            "kind": "xid",
            "code": 79,
            "pci": "0000:4e:00",
            "gpu_uuid": "GPU-a",
            "message": "raw",
            "seen_at": "2026-11-21T08:00:00.250000Z",
            "source": "kmsg",
            "sequence": 0,
            "drill": True,
            "count": 2,
        }
    ]
    assert written["checks"] == [
        {"name": "remapped", "device": "GPU-a", "status": "pass", "value": 0.0, "unit": "rows", "message": "m"}
    ]
    assert written["command_results"] == [
        {"id": "17", "status": "done", "message": "m", "finished_at": "2026-11-21T08:00:00Z", "output": {"a": 1}}
    ]
    assert transmit(report) == wire.Decoded(report)


def test_none_is_omitted():
    report = copy(REPORT, faults=(Fault(kind="xid", code=79),), checks=(Check(name="ping", status="fail"),))
    written = wire.encode(report)
    assert set(written["faults"][0]) == {"kind", "code", "message", "source", "drill", "count"}
    assert set(written["checks"][0]) == {"name", "device", "status", "unit", "message"}


def test_free_text_is_cut_and_cleaned():
    long = "a\0b\ud800c\udfff" + "x" * 5000
    report = copy(
        REPORT,
        agent=long,
        inventory=Inventory(driver=long, kernel=long, gpus=(Gpu(index=0, uuid="GPU-a", model=long, serial=long),)),
        faults=(Fault(kind="xid", code=79, message=long),),
        checks=(Check(name="ping", status="fail", device=long, unit=long, message=long),),
        command_results=(CommandResult(id="17", status="done", message=long),),
    )
    decoded = transmit(report)
    assert decoded.rejected == ()
    heard = decoded.report
    fit = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}" + "x" * 5000
    assert heard.faults[0].message == heard.checks[0].message == heard.command_results[0].message == fit[:4096]
    assert (heard.agent, heard.checks[0].device, heard.checks[0].unit) == (fit[:64], fit[:128], fit[:32])
    assert heard.inventory == Inventory(
        driver=fit[:64],
        kernel=fit[:128],
        gpus=(Gpu(index=0, uuid="GPU-a", model=fit[:128], serial=fit[:64]),),
    )


def test_a_time_without_an_offset_is_refused():
    naive = AT.replace(tzinfo=None)
    with pytest.raises(ValueError, match="without an offset"):
        wire.encode(copy(REPORT, sent_at=naive))
    with pytest.raises(ValueError, match="without an offset"):
        wire.encode_command(Command(id="1", kind="reboot", created_at=naive, expires_at=AT))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TIMES = st.datetimes(
    min_value=moments.EARLIEST.replace(tzinfo=None),
    max_value=moments.LATEST.replace(tzinfo=None),
    timezones=st.just(UTC),
)
WORDS = st.from_regex(wire.fields.WORD, fullmatch=True)
IDENTIFIERS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64)
PCIS = st.none() | st.from_regex(wire.fields.PCI, fullmatch=True)
NUMERIC = st.tuples(st.sampled_from(fault.NUMERIC_KINDS), st.integers(0, 2**31 - 1))
NAMED = st.tuples(st.sampled_from([kind for kind in fault.KINDS if kind not in fault.NUMERIC_KINDS]), WORDS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXT, values, max_size=3),
    max_leaves=6,
)


@st.composite
def _faults(draw):
    kind, code = draw(NUMERIC | NAMED)
    return Fault(
        kind=kind,
        code=code,
        pci=draw(PCIS),
        gpu_uuid=draw(st.none() | IDENTIFIERS),
        message=draw(TEXT),
        seen_at=draw(st.none() | TIMES),
        source=draw(WORDS.map(lambda word: word[:32])),
        sequence=draw(st.none() | st.integers(0, 2**63 - 1)),
        drill=draw(st.booleans()),
        count=draw(st.integers(1, 1_000_000)),
    )


CHECKS = st.builds(
    Check,
    name=WORDS,
    status=st.sampled_from(fault.CHECK_STATUSES),
    device=TEXT.map(lambda text: text[:128]),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    unit=TEXT.map(lambda text: text[:32]),
    message=TEXT,
)
RESULTS = st.builds(
    CommandResult,
    id=IDENTIFIERS,
    status=st.sampled_from(fault.RESULT_STATUSES),
    finished_at=st.none() | TIMES,
    message=TEXT,
    output=st.dictionaries(TEXT, JSON, max_size=3),
)
GPUS = st.builds(Gpu, index=st.integers(0, 1023), uuid=IDENTIFIERS, pci=PCIS, model=TEXT, serial=TEXT).map(
    lambda gpu: Gpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, model=gpu.model[:128], serial=gpu.serial[:64])
)
INVENTORIES = st.builds(
    Inventory,
    driver=TEXT.map(lambda text: text[:64]),
    kernel=TEXT.map(lambda text: text[:128]),
    gpus=st.lists(GPUS, max_size=3, unique_by=(lambda gpu: gpu.index, lambda gpu: gpu.uuid)).map(tuple),
    machine_serial=TEXT.map(lambda text: text[:64]),
    board_serial=TEXT.map(lambda text: text[:64]),
    nics=st.lists(
        st.builds(Nic, serial=TEXT.map(lambda text: text[:64]), name=st.just("mlx5_0"), pci=PCIS), max_size=2
    ).map(tuple),
)
REPORTS = st.builds(
    Report,
    node=st.from_regex(wire.fields.NODE, fullmatch=True).filter(lambda name: len(name) <= 253),
    boot_id=IDENTIFIERS,
    batch_id=st.uuids().map(str),
    sent_at=TIMES,
    agent=TEXT.map(lambda text: text[:64]),
    inventory=st.none() | INVENTORIES,
    faults=st.lists(_faults(), max_size=3).map(tuple),
    checks=st.lists(CHECKS, max_size=3).map(tuple),
    command_results=st.lists(RESULTS, max_size=2).map(tuple),
)


@given(REPORTS)
def test_every_report_decodes_as_it_was_encoded(report):
    assert transmit(report) == wire.Decoded(report)


PLACES = (
    "version",
    "node",
    "boot_id",
    "batch_id",
    "sent_at",
    "agent",
    "inventory",
    "faults",
    "checks",
    "command_results",
)


@given(st.sampled_from(PLACES), JSON | st.lists(st.dictionaries(st.sampled_from(["kind", "code", "name", "id"]), JSON)))
def test_any_object_decodes_or_raises_wire_error(place, nonsense):
    try:
        decoded = wire.decode(json.dumps({**wire.encode(REPORT), place: nonsense}).encode())
    except wire.EnvelopeError as error:
        assert error.path == place  # noqa: PT017 - most examples raise nothing
    else:
        assert all(one.path.startswith(place) and one.reason for one in decoded.rejected)


@given(st.binary(max_size=50))
def test_any_bytes_decode_or_raise_wire_error(data):
    with pytest.raises(wire.EnvelopeError):
        wire.decode(data)


# ------------------------------------------------------------------------------------------ commands, answers


def test_a_command_decodes_as_it_was_encoded():
    written = wire.encode_command(COMMAND)
    assert written == {
        "id": "17",
        "kind": "reboot",
        "args": {"why": "xid 79"},
        "created_at": "2026-11-21T08:00:00Z",
        "expires_at": "2026-11-21T09:00:00Z",
    }
    assert wire.decode_command(json.loads(json.dumps(written))) == COMMAND
    assert wire.decode_command({**written, "args": None, "new": 1}).args == {}


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"id": None}, "id", "is missing"),
        ({"id": 5}, "id", "must be 1 to 128 printable ASCII characters without spaces, not 5"),
        ({"kind": None}, "kind", "is missing"),
        ({"kind": "format"}, "kind", 'must be one of run_check, reboot, reset_gpu, collect_evidence, not "format"'),
        ({"created_at": None}, "created_at", "is missing"),
        ({"expires_at": None}, "expires_at", "is missing"),
        ({"expires_at": "x"}, "expires_at", 'must be a time such as "2026-11-21T08:00:00Z", not "x"'),
        ({"args": []}, "args", "must be an object, not a list"),
    ],
)
def test_invalid_commands(change, path, reason):
    with pytest.raises(wire.WireError) as caught:
        wire.decode_command({**wire.encode_command(COMMAND), **change})
    assert (caught.value.path, str(caught.value.reason)) == (path, reason)


def test_an_answer_decodes_as_it_was_encoded():
    answer = Answer(
        accepted=3,
        duplicates=2,
        rejected=(Rejected("faults/3/code", "wire_missing", "is missing"),),
        commands=(COMMAND, COMMAND),
    )
    written = wire.encode_answer(answer)
    assert written == {
        "accepted": 3,
        "duplicates": 2,
        "rejected": [{"path": "faults/3/code", "code": "wire_missing", "reason": "is missing"}],
        "commands": [wire.encode_command(COMMAND)] * 2,
    }
    assert wire.decode_answer(json.loads(json.dumps(written))) == answer
    assert wire.encode_answer(Answer()) == {"accepted": 0, "duplicates": 0, "rejected": [], "commands": []}


def test_the_answer_to_a_long_poll_has_only_commands():
    assert wire.decode_answer({"commands": []}) == Answer()
    assert wire.decode_answer({"commands": [wire.encode_command(COMMAND)]}) == Answer(commands=(COMMAND,))


def test_an_unsupported_command_hides_no_other():
    strange = {**wire.encode_command(COMMAND), "kind": "format"}
    answer = wire.decode_answer(
        {"accepted": 1, "rejected": [5], "commands": [strange, wire.encode_command(COMMAND), 7], "new": 1}
    )
    assert (answer.accepted, answer.rejected, answer.commands) == (1, (), (COMMAND,))
    assert answer.unsupported == (
        Rejected("rejected/0", "wire_not_object", "must be an object, not 5"),
        Rejected(
            "commands/0/kind",
            "wire_not_one_of",
            'must be one of run_check, reboot, reset_gpu, collect_evidence, not "format"',
        ),
        Rejected("commands/2", "wire_not_object", "must be an object, not 7"),
    )
    assert "unread" not in wire.encode_answer(answer)


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ([], ""),
        (None, ""),
        ({"accepted": "1"}, "accepted"),
        ({"duplicates": -1}, "duplicates"),
        ({"accepted": -1}, "accepted"),
    ],
)
def test_invalid_answers(answer, path):
    with pytest.raises(wire.WireError) as caught:
        wire.decode_answer(answer)
    assert caught.value.path == path
