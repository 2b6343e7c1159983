"""Decoding reports: invalid envelopes, rejected items, and their messages."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kcover import wire
from kcover.faults.fault import Check, CommandResult, Fault, Gpu, Inventory
from kcover.wire import Decoded, EnvelopeError, Rejected, Report

ENVELOPE = {
    "version": 1,
    "node": "gpu-0001",
    "boot_id": "7b6a4f10-9d3c-4c50-8f57-0d8f5e0f6a11",
    "batch_id": "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11",
    "sent_at": "2026-11-21T08:00:00Z",
}
XID = {"kind": "xid", "code": 79}
CHECK = {"name": "remapped", "status": "pass"}
GPU = {"index": 0, "uuid": "GPU-0"}
RESULT = {"id": "17", "status": "done"}
AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
TIME = 'must be a time such as "2026-11-21T08:00:00Z", not'


def body(**changes):
    return json.dumps({key: value for key, value in (ENVELOPE | changes).items() if value is not ...}).encode()


def decode(**changes):
    return wire.decode(body(**changes))


def refusal(data):
    with pytest.raises(EnvelopeError) as caught:
        wire.decode(data)
    return caught.value.path, str(caught.value.reason)


def rejected(**changes):
    return said(decode(**changes))


def said(decoded):
    return [(one.path, one.reason) for one in decoded.rejected]


# ---------------------------------------------------------------------------------------------- a good report


def test_a_whole_report():
    decoded = decode(
        agent="1.0.0",
        inventory={
            "driver": "580.1",
            "kernel": "6.8",
            "gpus": [
                {"index": 0, "uuid": "GPU-a", "pci": "0000:4E:00", "model": "NVIDIA H100 80GB HBM3", "serial": "12"},
                {"index": 1, "uuid": "GPU-b"},
            ],
        },
        faults=[
            {
                "kind": "xid",
                "code": 79,
                "pci": "0000:4e:00",
                "gpu_uuid": "GPU-a",
                "message": "raw line\tä",
                "seen_at": "2026-11-21T16:00:00.25+08:00",
                "source": "kmsg",
                "sequence": 1234,
                "drill": True,
                "count": 3,
                "lines_before": "08:00:00.000 first\n08:00:00.125 second",
            },
            {"kind": "check", "code": "pcie_bw.h2d-1"},
        ],
        checks=[
            {"name": "remapped", "device": "GPU-a", "status": "warn", "value": 1.5, "unit": "rows", "message": "m"},
            {"name": "ping", "status": "error"},
        ],
        command_results=[
            {
                "id": "17",
                "status": "done",
                "message": "m",
                "finished_at": "2026-11-21T08:00:00Z",
                "output": {"a": [1, None, True, "x", 1.5, {"b": {}}]},
            },
            {"id": "18", "status": "refused"},
        ],
    )
    assert decoded == Decoded(
        Report(
            version=1,
            node="gpu-0001",
            boot_id="7b6a4f10-9d3c-4c50-8f57-0d8f5e0f6a11",
            batch_id="0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11",
            sent_at=AT,
            agent="1.0.0",
            inventory=Inventory(
                driver="580.1",
                kernel="6.8",
                gpus=(
                    Gpu(index=0, uuid="GPU-a", pci="0000:4e:00", model="NVIDIA H100 80GB HBM3", serial="12"),
                    Gpu(index=1, uuid="GPU-b", pci=None, model="", serial=""),
                ),
            ),
            faults=(
                Fault(
                    kind="xid",
                    code=79,
                    pci="0000:4e:00",
                    gpu_uuid="GPU-a",
                    message="raw line\tä",
                    seen_at=AT + timedelta(seconds=0.25),
                    source="kmsg",
                    sequence=1234,
                    drill=True,
                    count=3,
                    lines_before="08:00:00.000 first\n08:00:00.125 second",
                ),
                Fault(kind="check", code="pcie_bw.h2d-1"),
            ),
            checks=(
                Check(name="remapped", device="GPU-a", status="warn", value=1.5, unit="rows", message="m"),
                Check(name="ping", status="error"),
            ),
            command_results=(
                CommandResult(
                    id="17",
                    status="done",
                    message="m",
                    finished_at=AT,
                    output={"a": [1, None, True, "x", 1.5, {"b": {}}]},
                ),
                CommandResult(id="18", status="refused"),
            ),
        ),
        (),
    )


def test_a_heartbeat():
    decoded = decode()
    assert decoded.report == Report(
        node=ENVELOPE["node"], boot_id=ENVELOPE["boot_id"], batch_id=ENVELOPE["batch_id"], sent_at=AT
    )
    assert decoded.rejected == ()
    assert decoded.report.sent_at.tzinfo is UTC


def test_null_equals_absent_and_unknown_keys_are_ignored():
    fault = dict.fromkeys(("pci", "gpu_uuid", "message", "seen_at", "source", "sequence", "drill", "count"))
    decoded = decode(
        agent=None,
        inventory=None,
        faults=[{**XID, **fault, "severity": "new"}],
        checks=[{**CHECK, "device": None, "value": None, "unit": None, "message": None, "new": {}}],
        command_results=[{**RESULT, "message": None, "finished_at": None, "output": None, "new": 1}],
        new={"deep": [1]},
    )
    assert decoded.rejected == ()
    assert decoded.report.faults == (Fault(kind="xid", code=79),)
    assert decoded.report.checks == (Check(name="remapped", status="pass"),)
    assert decoded.report.command_results == (CommandResult(id="17", status="done"),)
    assert decode(faults=None, checks=None, command_results=None).report == decode().report
    assert decode(inventory={"driver": None, "kernel": None, "gpus": None, "x": 1}).report.inventory == Inventory()
    gpu = {**GPU, "pci": None, "model": None, "serial": None, "x": 1}
    assert decode(inventory={"gpus": [gpu]}).report.inventory == Inventory(gpus=(Gpu(index=0, uuid="GPU-0"),))


# ------------------------------------------------------------------------------------------------ the envelope


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not JSON in UTF-8"),
        (b"{", "is not JSON in UTF-8"),
        (b'{"version": 1,}', "is not JSON in UTF-8"),
        (b'{"version": 1} x', "is not JSON in UTF-8"),
        (b'\xff{"version": 1}', "is not JSON in UTF-8"),
        ('{"version": 1}'.encode("utf-16"), "is not JSON in UTF-8"),
        (b'\xef\xbb\xbf{"version": 1}', "is not JSON in UTF-8"),
        (b'{"version": ' + b"1" * 5000 + b"}", "is not JSON in UTF-8"),
        (b"null", "must be an object, not null"),
        (b"[]", "must be an object, not a list"),
        (b'"x"', 'must be an object, not "x"'),
        (b'{"version": NaN}', "contains NaN, which is not JSON: write null or leave the key out"),
        (b'{"x": [-Infinity]}', "contains -Infinity, which is not JSON: write null or leave the key out"),
        (b'{"version": 1, "version": 1}', 'has the key "version" twice in one object: write it once'),
        (b'{"x": [{"a": 1, "b": 1, "b": 2}]}', 'has the key "b" twice in one object: write it once'),
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested too deeply"),
    ],
)
def test_bodies_that_are_not_a_json_object(data, reason):
    path, said = refusal(data)
    assert path == ""
    assert said.startswith(reason)


def test_a_duplicate_key_among_many_is_found_fast():
    """In one pass: by counting each key this took a minute and more, and nobody else was heard meanwhile."""
    keys = ",".join(f'"k{n}":1' for n in range(80_000))
    path, said = refusal(f'{{{keys},"k79999":1}}'.encode())
    assert (path, said) == ("", 'has the key "k79999" twice in one object: write it once')


def test_the_longest_report():
    padding = wire.MAX_BYTES - len(body(x=""))
    assert wire.decode(body(x="x" * padding)).rejected == ()
    said = f"has {wire.MAX_BYTES + 1} bytes, at most {wire.MAX_BYTES} are allowed: send fewer items at once"
    assert refusal(body(x="x" * (padding + 1))) == ("", said)
    assert wire.MAX_BYTES == 1 << 20


@pytest.mark.parametrize("key", ["version", "node", "boot_id", "batch_id", "sent_at"])
@pytest.mark.parametrize("value", [None, ...])
def test_every_envelope_field_is_required(key, value):
    assert refusal(body(**{key: value})) == (key, "is missing")


@pytest.mark.parametrize("version", [0, 2, -1, True, 1.0, "1", [1]])
def test_only_version_1_is_supported(version):
    shown = "a list" if version == [1] else json.dumps(version)
    assert refusal(body(version=version)) == ("version", f"{shown} is not supported: write 1")


@pytest.mark.parametrize("node", ["a", "0", "gpu-0001", "10.0.2.193", "a.b-c.d", "a" * 253])
def test_valid_node_names(node):
    assert decode(node=node).report.node == node


@pytest.mark.parametrize(
    "node",
    [
        "",
        "GPU-1",
        "a_b",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a.",
        "a.-b",
        "a b",
        "a/b",
        "a\n",
        "节点",
        "ａ",
        "a" * 254,
        7,
        True,
        [],
    ],
)
def test_invalid_node_names(node):
    wanted = "a Kubernetes node name (lower-case letters, digits, '-' and '.', at most 253)"
    shown = "a list" if node == [] else json.dumps(node)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    assert refusal(body(node=node)) == ("node", f"must be {wanted}, not {shown}")


@pytest.mark.parametrize("boot_id", ["a b", "", "x" * 65, "ä", "a\n", 7])
def test_invalid_boot_ids(boot_id):
    path, reason = refusal(body(boot_id=boot_id))
    assert path == "boot_id"
    assert reason.startswith("must be 1 to 64 printable ASCII characters without spaces, not ")


def test_boot_ids():
    for boot_id in ("!", "~", "x" * 64):
        assert decode(boot_id=boot_id).report.boot_id == boot_id


def test_batch_ids_have_one_form():
    for given in (ENVELOPE["batch_id"].upper(), ENVELOPE["batch_id"].replace("-", "")):
        assert decode(batch_id=given).report.batch_id == ENVELOPE["batch_id"]


@pytest.mark.parametrize(
    "batch_id",
    [
        "",
        "7",
        ENVELOPE["batch_id"].replace("-", "", 1),
        "{" + ENVELOPE["batch_id"] + "}",
        ENVELOPE["batch_id"] + "\n",
        7,
    ],
)
def test_invalid_batch_ids(batch_id):
    path, reason = refusal(body(batch_id=batch_id))
    assert path == "batch_id"
    assert reason.startswith('must be a UUID such as "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11", not ')


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21T08:00:00+00:00", AT),
        ("2026-11-21T16:30:00+08:30", AT),
        ("2026-11-21T07:59:59.999999Z", AT - timedelta(microseconds=1)),
        ("2026-11-21T08:00:00.000000999Z", AT),
        ("0001-01-02T00:00:00Z", datetime(1, 1, 2, tzinfo=UTC)),
    ],
)
def test_times(text, moment):
    assert decode(sent_at=text).report.sent_at == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-11-21", "2026-11-21T08:00:00", "2026-11-21 08:00:00Z", "20261121T080000Z"),
        *("2026-11-21T08:00Z", "2026-11-21T08:00:00z", "２026-11-21T08:00:00Z", "2026-11-21T08:00:00Z\n"),
        *("2026-11-21T08:00:00.0123456789Z", "2026-11-21T08:00:00+0800", 1795248000, 1.5, True, []),
    ],
)
def test_invalid_times(text):
    path, reason = refusal(body(sent_at=text))
    assert path == "sent_at"
    assert reason.startswith(TIME)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-30T08:00:00Z", "2026-11-21T24:00:01Z", "2026-11-21T08:00:60Z", "2026-13-01T08:00:00Z"),
        *(
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2026-11-21T08:00:00+24:00",
        ),
    ],
)
def test_times_that_do_not_exist(text):
    assert refusal(body(sent_at=text)) == ("sent_at", f'is not a valid time: "{text}"')


@pytest.mark.parametrize("text", ["0001-01-01T23:59:59Z", "9999-12-31T00:00:00Z", "9999-12-30T23:59:59-00:01"])
def test_times_at_the_ends_of_the_calendar(text):
    assert refusal(body(sent_at=text)) == ("sent_at", f'must be from 0001-01-02 to 9999-12-30, not "{text}"')


def test_the_first_problem_of_an_envelope_is_raised():
    with pytest.raises(EnvelopeError, match=r"^node: must be a Kubernetes node name") as caught:
        wire.decode(body(node="A", boot_id=None))
    assert isinstance(caught.value, wire.WireError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(EnvelopeError, match=r"^must be an object, not null$"):
        wire.decode(b"null")


# ------------------------------------------------------------------------------------------------------- items


def test_an_invalid_item_rejects_only_itself():
    decoded = decode(
        agent=7,
        faults=[XID, {"kind": "xid", "code": "79"}, {"kind": "sxid", "code": 12028}, 5],
        checks=[{**CHECK, "status": "ok"}, CHECK],
        command_results=[{**RESULT, "status": "ok"}, RESULT],
    )
    assert decoded.report.agent == ""
    assert decoded.report.faults == (Fault(kind="xid", code=79), Fault(kind="sxid", code=12028))
    assert decoded.report.checks == (Check(name="remapped", status="pass"),)
    assert decoded.report.command_results == (CommandResult(id="17", status="done"),)
    statuses = 'must be one of pass, warn, fail, error, skipped, not "ok"'
    results = 'must be one of done, failed, refused, expired, not "ok"'
    assert decoded.rejected == (
        Rejected("agent", "wire_not_text", "must be a string, not 7"),
        Rejected("faults/1/code", "wire_integer_quoted", 'must be a whole number, not "79": write 79 without quotes'),
        Rejected("faults/3", "wire_not_object", "must be an object, not 5"),
        Rejected("checks/0/status", "wire_not_one_of", statuses),
        Rejected("command_results/0/status", "wire_not_one_of", results),
    )


@pytest.mark.parametrize("key", ["faults", "checks", "command_results"])
@pytest.mark.parametrize(("value", "shown"), [({}, "an object"), ("x", '"x"'), (0, "0"), (False, "false")])
def test_lists_are_lists(key, value, shown):
    assert rejected(**{key: value}) == [(key, f"must be a list, not {shown}")]


@pytest.mark.parametrize(
    ("key", "item", "most"),
    [
        ("faults", XID, wire.MAX_FAULTS),
        ("checks", CHECK, wire.MAX_CHECKS),
        ("command_results", RESULT, wire.MAX_RESULTS),
    ],
)
def test_items_over_the_limit_are_left_for_another_batch(key, item, most):
    assert rejected(**{key: [item] * most}) == []
    decoded = decode(**{key: [item] * (most + 2)})
    assert len(getattr(decoded.report, key)) == most
    reason = f"a report has at most {most} {key}: send this one and all after it in another batch"
    assert said(decoded) == [(f"{key}/{most}", reason)]


def test_the_limits():
    limits = (wire.MAX_FAULTS, wire.MAX_CHECKS, wire.MAX_RESULTS, wire.MAX_MESSAGE, wire.VERSION)
    assert limits == (1000, 2000, 200, 4096, 1)


PCI = 'must be a PCI address such as "0000:4e:00", without "PCI:" and MIG part, not'
WORD = "must be 1 to 64 of a-z, 0-9, '_', '.' and '-', not"
KIND = "must be one of xid, sxid, check, agent, preflight, pod, other, not"
IDENTIFIER = "must be 1 to 96 printable ASCII characters without spaces, not"
UNSTORABLE = "contains a NUL or an unpaired surrogate: remove it"
OUTPUT = "must not be nested deeper than 32 or contain NUL, NaN, infinity or an integer of more than 64 bits"


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"kind": ...}, "kind", "is missing"),
        ({"kind": None}, "kind", "is missing"),
        ({"kind": "XID"}, "kind", f'{KIND} "XID"'),
        ({"kind": []}, "kind", f"{KIND} a list"),
        ({"code": ...}, "code", "is missing"),
        ({"code": None}, "code", "is missing"),
        ({"code": True}, "code", "must be a whole number, not true"),
        ({"code": 79.0}, "code", "must be a whole number, not 79.0"),
        ({"code": "x"}, "code", 'must be a whole number, not "x"'),
        ({"code": "７９"}, "code", 'must be a whole number, not "\\uff17\\uff19"'),
        ({"code": -1}, "code", "must be from 0 to 2147483647"),
        ({"code": 2**31}, "code", "must be from 0 to 2147483647"),
        ({"kind": "sxid", "code": "12028"}, "code", 'must be a whole number, not "12028": write 12028 without quotes'),
        ({"kind": "check", "code": ...}, "code", "is missing"),
        ({"kind": "check", "code": 79}, "code", f"{WORD} 79"),
        ({"kind": "check", "code": ""}, "code", f'{WORD} ""'),
        ({"kind": "check", "code": "PCIe"}, "code", f'{WORD} "PCIe"'),
        ({"kind": "check", "code": "a b"}, "code", f'{WORD} "a b"'),
        ({"kind": "check", "code": "A" * 58}, "code", f'{WORD} "' + "A" * 58 + '"'),
        ({"kind": "check", "code": "A" * 59}, "code", f'{WORD} "' + "A" * 56 + "..."),
        ({"kind": "check", "code": "a" * 65}, "code", f'{WORD} "' + "a" * 56 + "..."),
        ({"pci": "PCI:0000:4e:00"}, "pci", f'{PCI} "PCI:0000:4e:00"'),
        ({"pci": "0000:4e:00 GPU-I:05"}, "pci", f'{PCI} "0000:4e:00 GPU-I:05"'),
        ({"pci": ""}, "pci", f'{PCI} ""'),
        ({"pci": "0000:4e:00.8"}, "pci", f'{PCI} "0000:4e:00.8"'),
        ({"pci": 5}, "pci", f"{PCI} 5"),
        ({"gpu_uuid": ""}, "gpu_uuid", 'must be a GPU\'s UUID, not ""'),
        ({"gpu_uuid": "x" * 97}, "gpu_uuid", "must be a GPU's UUID, not \"" + "x" * 56 + "..."),
        ({"gpu_uuid": "a b"}, "gpu_uuid", 'must be a GPU\'s UUID, not "a b"'),
        ({"message": 5}, "message", "must be a string, not 5"),
        ({"message": {}}, "message", "must be a string, not an object"),
        ({"message": "x" * 4097}, "message", "has 4097 characters, at most 4096 are allowed: shorten it"),
        ({"message": "a\0b"}, "message", UNSTORABLE),
        ({"message": "a\ud800b"}, "message", UNSTORABLE),
        ({"message": "a\udfffb" + "c"}, "message", UNSTORABLE),
        ({"lines_before": 5}, "lines_before", "must be a string, not 5"),
        ({"lines_before": "x" * 4097}, "lines_before", "has 4097 characters, at most 4096 are allowed: shorten it"),
        ({"lines_before": "a\0b"}, "lines_before", UNSTORABLE),
        ({"seen_at": "yesterday"}, "seen_at", f'{TIME} "yesterday"'),
        ({"source": "K msg"}, "source", 'must be a short word such as "kmsg" (at most 32), not "K msg"'),
        ({"source": "x" * 33}, "source", 'must be a short word such as "kmsg" (at most 32), not "' + "x" * 33 + '"'),
        ({"source": ""}, "source", 'must be a short word such as "kmsg" (at most 32), not ""'),
        ({"sequence": "5"}, "sequence", 'must be a whole number, not "5": write 5 without quotes'),
        ({"sequence": -1}, "sequence", f"must be from 0 to {2**63 - 1}"),
        ({"sequence": 2**63}, "sequence", f"must be from 0 to {2**63 - 1}"),
        ({"drill": 1}, "drill", "must be true or false, not 1"),
        ({"drill": "true"}, "drill", 'must be true or false, not "true"'),
        ({"count": 0}, "count", "must be from 1 to 1000000"),
        ({"count": 1_000_001}, "count", "must be from 1 to 1000000"),
        ({"count": True}, "count", "must be a whole number, not true"),
        ({"records": 5}, "records", "must be a list of at most 64 pairs, not 5"),
        ({"records": [[n * 2, n * 2] for n in range(65)]}, "records", "must be a list of at most 64 pairs, not a list"),
        ({"records": [12]}, "records", "must contain pairs such as [12, 14], first and last, not 12"),
        ({"records": [[1, 2, 3]]}, "records", "must contain pairs such as [12, 14], first and last, not a list"),
        ({"records": [[1, True]]}, "records", "must contain pairs such as [12, 14], first and last, not a list"),
        (
            {"records": [[2, 1]]},
            "records",
            "must contain pairs of a first and a last number, from 0 to 9223372036854775807",
        ),
        (
            {"records": [[-1, 1]]},
            "records",
            "must contain pairs of a first and a last number, from 0 to 9223372036854775807",
        ),
    ],
)
def test_invalid_faults(change, path, reason):
    item = {key: value for key, value in (XID | change).items() if value is not ...}
    decoded = decode(faults=[XID, item])
    assert said(decoded) == [(f"faults/1/{path}", reason)]
    assert decoded.report.faults == (Fault(kind="xid", code=79),)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"code": 0}, Fault(kind="xid", code=0)),
        ({"code": 2**31 - 1}, Fault(kind="xid", code=2**31 - 1)),
        ({"kind": "agent", "code": "a" * 64}, Fault(kind="agent", code="a" * 64)),
        ({"kind": "preflight", "code": "0"}, Fault(kind="preflight", code="0")),
        ({"kind": "pod", "code": "OOMKilled"}, Fault(kind="pod", code="OOMKilled")),
        ({"kind": "other", "code": "x"}, Fault(kind="other", code="x")),
        ({"pci": "0000:03:00.0"}, Fault(kind="xid", code=79, pci="0000:03:00.0")),
        ({"pci": "00000000:4E:00.0"}, Fault(kind="xid", code=79, pci="00000000:4e:00.0")),
        ({"message": "x" * 4096}, Fault(kind="xid", code=79, message="x" * 4096)),
        ({"message": "训练\x1b😀\ud7ff\ue000"}, Fault(kind="xid", code=79, message="训练\x1b😀\ud7ff\ue000")),
        ({"gpu_uuid": "x" * 96}, Fault(kind="xid", code=79, gpu_uuid="x" * 96)),
        ({"source": "x" * 32}, Fault(kind="xid", code=79, source="x" * 32)),
        ({"sequence": 0}, Fault(kind="xid", code=79, sequence=0)),
        ({"sequence": 2**63 - 1}, Fault(kind="xid", code=79, sequence=2**63 - 1)),
        ({"drill": False}, Fault(kind="xid", code=79, drill=False)),
        ({"records": []}, Fault(kind="xid", code=79)),
        ({"records": [[7, 9], [2**63 - 1] * 2]}, Fault(kind="xid", code=79, records=((7, 9), (2**63 - 1,) * 2))),
        ({"records": [[8, 9], [3, 7]]}, Fault(kind="xid", code=79, records=((3, 9),))),
        ({"count": 1}, Fault(kind="xid", code=79, count=1)),
        ({"count": 1_000_000}, Fault(kind="xid", code=79, count=1_000_000)),
    ],
)
def test_the_bounds_of_a_fault(change, fault):
    assert decode(faults=[XID | change]) == Decoded(
        Report(**{**ENVELOPE, "sent_at": AT, "faults": (fault,)}),
    )


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"name": ...}, "name", "is missing"),
        ({"name": "PCIe"}, "name", f'{WORD} "PCIe"'),
        ({"status": ...}, "status", "is missing"),
        ({"device": "x" * 129}, "device", "has 129 characters, at most 128 are allowed: shorten it"),
        ({"unit": "x" * 33}, "unit", "has 33 characters, at most 32 are allowed: shorten it"),
        ({"message": "x" * 4097}, "message", "has 4097 characters, at most 4096 are allowed: shorten it"),
        ({"value": "0"}, "value", 'must be a number, not "0"'),
        ({"value": True}, "value", "must be a number, not true"),
        ({"value": 10**400}, "value", "is too large for a number"),
    ],
)
def test_invalid_checks(change, path, reason):
    item = {key: value for key, value in (CHECK | change).items() if value is not ...}
    decoded = decode(checks=[CHECK, item])
    assert said(decoded) == [(f"checks/1/{path}", reason)]
    assert len(decoded.report.checks) == 1


@pytest.mark.parametrize("text", ["1e999", "-1e999"])
def test_a_number_that_overflows(text):
    data = body(checks=[{**CHECK, "value": 5}]).replace(b"5}]", text.encode() + b"}]")
    assert said(wire.decode(data)) == [("checks/0/value", "is too large for a number")]


def test_the_bounds_of_a_check():
    item = {**CHECK, "device": "x" * 128, "unit": "x" * 32, "message": "x" * 4096, "value": 3}
    (check,) = decode(checks=[item]).report.checks
    assert (check.value, type(check.value), len(check.device), len(check.unit)) == (3.0, float, 128, 32)
    assert len(check.message) == 4096


def nested(levels):
    """An object with scalars on that many levels, the object itself being the first, lists and objects in turn."""
    value = 1
    for level in range(levels - 1, 0, -1):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"id": ...}, "id", "is missing"),
        ({"id": 17}, "id", "must be 1 to 128 printable ASCII characters without spaces, not 17"),
        ({"status": ...}, "status", "is missing"),
        ({"finished_at": "x"}, "finished_at", f'{TIME} "x"'),
        ({"message": "x" * 4097}, "message", "has 4097 characters, at most 4096 are allowed: shorten it"),
        ({"output": []}, "output", "must be an object, not a list"),
        ({"output": "x"}, "output", 'must be an object, not "x"'),
        ({"output": nested(33)}, "output", OUTPUT),
        ({"output": {"a": [[1]], "b": nested(32), "c": 1}}, "output", OUTPUT),
        ({"output": {"a": ["x\0"]}}, "output", OUTPUT),
        ({"output": {"checks": [{"value": 10**400}]}}, "output", OUTPUT),
        ({"output": {"a": -(2**64)}}, "output", OUTPUT),
        ({"output": {"a": {"x\ud800": 1}}}, "output", OUTPUT),
        ({"output": {"a": "x" * 65536}}, "output", "is longer than 65536 characters of JSON: shorten it"),
    ],
)
def test_invalid_results(change, path, reason):
    item = {key: value for key, value in (RESULT | change).items() if value is not ...}
    decoded = decode(command_results=[RESULT, item])
    assert said(decoded) == [(f"command_results/1/{path}", reason)]
    assert len(decoded.report.command_results) == 1


def test_an_output_that_overflows():
    data = body(command_results=[{**RESULT, "output": {"a": [5]}}]).replace(b"[5]", b"[1e999]")
    assert said(wire.decode(data)) == [("command_results/0/output", OUTPUT)]


def test_the_bounds_of_an_output():
    for output in (nested(32), {"a": "x" * (65536 - len('{"a": ""}'))}, {"a": [[{}], "ä", None, 2.5]}):
        (result,) = decode(command_results=[{**RESULT, "output": output}]).report.command_results
        assert result.output == output


# --------------------------------------------------------------------------------------------------- inventory


@pytest.mark.parametrize(
    ("inventory", "path", "reason"),
    [
        ([], "inventory", "must be an object, not a list"),
        ("x", "inventory", 'must be an object, not "x"'),
        ({"driver": 5}, "inventory/driver", "must be a string, not 5"),
        ({"driver": "x" * 65}, "inventory/driver", "has 65 characters, at most 64 are allowed: shorten it"),
        ({"kernel": "x" * 129}, "inventory/kernel", "has 129 characters, at most 128 are allowed: shorten it"),
        ({"gpus": {}}, "inventory/gpus", "must be a list of at most 64"),
        ({"gpus": [GPU] * 65}, "inventory/gpus", "must be a list of at most 64"),
        ({"gpus": [5]}, "inventory/gpus/0", "must be an object, not 5"),
        ({"gpus": [GPU, {"uuid": "GPU-1"}]}, "inventory/gpus/1/index", "is missing"),
        ({"gpus": [GPU, {"index": 1}]}, "inventory/gpus/1/uuid", "is missing"),
        ({"gpus": [{**GPU, "index": -1}]}, "inventory/gpus/0/index", "must be from 0 to 1023"),
        ({"gpus": [{**GPU, "index": 1024}]}, "inventory/gpus/0/index", "must be from 0 to 1023"),
        ({"gpus": [{**GPU, "uuid": "a b"}]}, "inventory/gpus/0/uuid", f'{IDENTIFIER} "a b"'),
        ({"gpus": [{**GPU, "pci": "x"}]}, "inventory/gpus/0/pci", f'{PCI} "x"'),
        (
            {"gpus": [{**GPU, "model": "x" * 129}]},
            "inventory/gpus/0/model",
            "has 129 characters, at most 128 are allowed: shorten it",
        ),
        (
            {"gpus": [{**GPU, "serial": "x" * 65}]},
            "inventory/gpus/0/serial",
            "has 65 characters, at most 64 are allowed: shorten it",
        ),
        ({"gpus": [GPU, {**GPU, "uuid": "GPU-1"}]}, "inventory/gpus/1/index", "0 is used by another GPU"),
        ({"gpus": [GPU, {**GPU, "index": 1}]}, "inventory/gpus/1/uuid", '"GPU-0" is used by another GPU'),
    ],
)
def test_an_invalid_inventory_is_left_out(inventory, path, reason):
    decoded = decode(inventory=inventory, faults=[XID])
    assert said(decoded) == [(path, reason)]
    assert decoded.report.inventory is None
    assert decoded.report.faults == (Fault(kind="xid", code=79),)


def test_the_bounds_of_an_inventory():
    gpus = [{"index": 1023 - n, "uuid": f"GPU-{n}", "model": "x" * 128, "serial": "x" * 64} for n in range(64)]
    decoded = decode(inventory={"driver": "x" * 64, "kernel": "x" * 128, "gpus": gpus})
    assert decoded.rejected == ()
    assert decoded.report.inventory is not None
    assert [gpu.index for gpu in decoded.report.inventory.gpus] == [1023 - n for n in range(64)]
    assert decode(agent="x" * 64).report.agent == "x" * 64
    assert rejected(agent="x" * 65) == [("agent", "has 65 characters, at most 64 are allowed: shorten it")]


@pytest.mark.parametrize(
    ("figures", "path", "code"),
    [
        ([], "figures", "wire_not_object"),
        ({f"GPU-{number}": {} for number in range(65)}, "figures", "wire_keys_many"),
        ({"GPU 1": {"ecc": 1}}, "figures/uuid", "wire_identifier_invalid"),
        ({"x" * 97: {"ecc": 1}}, "figures/uuid", "wire_identifier_invalid"),
        ({"GPU-1": 7}, "figures/GPU-1", "wire_not_object"),
        ({"GPU-1": {f"n{number}": 1 for number in range(33)}}, "figures/GPU-1", "wire_keys_many"),
        ({"GPU-1": {"ECC": 1}}, "figures/GPU-1/name", "wire_word_invalid"),
        ({"GPU-1": {"ecc": "1"}}, "figures/GPU-1/ecc", "wire_not_number"),
        ({"GPU-1": {"ecc": True}}, "figures/GPU-1/ecc", "wire_not_number"),
        ({"GPU-1": {"ecc": None}}, "figures/GPU-1/ecc", "wire_missing"),
    ],
)
def test_invalid_figures_are_left_out(figures, path, code):
    decoded = decode(figures=figures, checks=[CHECK])
    assert [(one.path, one.code) for one in decoded.rejected] == [(path, code)]
    assert (decoded.report.figures, len(decoded.report.checks)) == ({}, 1)


def test_figures():
    figures = {
        "GPU-1": {"power": 400.5, "ecc": 0.0},
        "g" * 96: {f"n{number}": 1.0 for number in range(32)},
        "GPU-2": {},
    }
    decoded = decode(figures=figures)
    assert (decoded.rejected, decoded.report.figures) == ((), figures)
    assert wire.decode(json.dumps(wire.encode(decoded.report)).encode()) == decoded
    assert decode(figures={"GPU-1": {"ecc": 2}}).report.figures == {"GPU-1": {"ecc": 2.0}}
    assert decode(figures=None) == decode(figures={}) == decode()


def test_times_are_converted_to_utc():
    east = datetime(2026, 11, 21, 16, 0, tzinfo=timezone(timedelta(hours=8)))
    assert decode(sent_at=east.isoformat()).report.sent_at.utcoffset() == timedelta()
