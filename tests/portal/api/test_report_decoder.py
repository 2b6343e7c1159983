"""Reports decoded by msgspec have the value that the wire format gives them."""

import json
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from agents.outbox import reports
from kcover import wire
from kcover.faults.fault import Check, Gpu, Inventory
from kcover_portal.api.agent import report_decoder
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from tests.portal.api.door import check, fault, report

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
EAST = Cluster(pk=1, name="east")
GPUS = [{"index": 0, "uuid": "GPU-1"}, {"index": 1, "uuid": "GPU-2"}]
FULL = {"inventory": {"driver": "580.1", "kernel": "6.8", "gpus": GPUS}, "checks": [check(), check(device="GPU-2")]}


class Token(str):
    """JSON as it is to stand in the body."""


class Object(list[tuple[str, Any]]):
    """An object that may have a key twice."""


def pairs(**values: Any) -> Object:
    return Object(values.items())


def tokens(*texts: str) -> st.SearchStrategy[Token]:
    return st.sampled_from([Token(text) for text in texts])


def texts(limit: int, *good: str) -> st.SearchStrategy[str]:
    return st.sampled_from(["", *good, "x" * limit, "é" * limit, "a\nb", 'a":"b', "\x7f", "x y", "\\", "中文"])


def objects(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """Objects whose keys that start with "may_" may be absent."""
    required = {key: value for key, value in values.items() if not key.startswith("may_")}
    optional = {key.removeprefix("may_"): value for key, value in values.items() if key.startswith("may_")}
    return st.fixed_dictionaries(required, optional=optional).map(lambda item: Object(item.items()))


def of_keys(item: dict[str, Any]) -> Object:
    return Object(item.items())


NUMBERS = tokens("0", "-0", "0.0", "-0.0", "1.5", "0.10", "1e5", "1E+2", "1e16", "1e-7", "123456789012345678901")
CHECKS = objects(
    name=st.sampled_from(["remapped", "a" * 64, "x_.-9"]),
    may_device=texts(128, "GPU-1"),
    status=st.sampled_from(["pass", "warn", "fail", "error", "skipped"]),
    may_value=st.one_of(st.none(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False)),
    may_unit=texts(32, "rows"),
    may_message=texts(4096, "none pending"),
)
GPU = objects(
    index=st.integers(0, 3) | st.just(1023),
    uuid=st.sampled_from(["GPU-1", "GPU-2", "GPU-3", "g" * 96]),
    may_pci=st.sampled_from(["0000:4e:00.0", "4e:00", None]),
    may_model=texts(128, "H100"),
    may_serial=texts(64, "1"),
)
NIC = objects(
    serial=texts(64, "MT21"),
    may_name=texts(64, "mlx5_0"),
    may_pci=st.sampled_from(["0000:4e:00.0", None]),
    may_model=texts(128, "ConnectX-7"),
)
INVENTORY = objects(
    may_driver=texts(64, "580"),
    may_kernel=texts(128, "6.8"),
    may_gpus=st.lists(GPU, max_size=3),
    may_machine_serial=texts(64, "SN1"),
    may_board_serial=texts(64, "B1"),
    may_nics=st.lists(NIC, max_size=2),
)
FIGURES = st.dictionaries(st.sampled_from(["ecc", "n" * 64]), NUMBERS, max_size=2).map(of_keys)
REPORTS = objects(
    version=st.just(1),
    node=st.sampled_from(["gpu-1", "a" * 253, "a.b"]),
    boot_id=st.sampled_from(["boot-1", "b" * 64]),
    batch_id=st.sampled_from(["0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11", "FFFFFFFF-0000-4000-8000-000000000001"]),
    sent_at=st.sampled_from(["2026-11-21T08:00:00Z", "2026-11-21T08:00:30.25+02:00"]),
    may_agent=texts(64, "1.0.0"),
    may_inventory=INVENTORY,
    may_checks=st.lists(CHECKS, max_size=3),
    may_faults=st.just([]),
    may_command_results=st.just([]),
    may_figures=st.dictionaries(st.sampled_from(["GPU-1", "g" * 96]), FIGURES, max_size=2).map(of_keys),
)
STRANGE_VALUES = [
    *(None, True, False, 0, 1, 2, -1, 1.0, 1023, 1024, 2**70, [], [1], [None] * 65, Object()),
    *(
        "",
        "\0",
        "x\0",
        "\ud800",
        "\x1f",
        "A",
        " ",
        "é",
        "a\n",
        "1",
        "pass",
        "GPU-1",
        "yesterday",
        "0001-01-01T00:00:00Z",
    ),
    *("x" * size for size in (32, 33, 64, 65, 96, 97, 128, 129, 253, 254, 4096, 4097)),
    *("0000:4E:00", "4e:00\n4e:01", "4e:00\n", "4e:00.8", "PCI:4e:00"),
    *map(Token, ("NaN", "1e999", "-1e999", "01", "-0", "-0.0", '{"a":1,"a":2}', '"\\u0031"', "1" * 5000, "-", "")),
    [Object([("kind", "xid"), ("code", 79)])],
    [Object([("id", "1"), ("status", "done")])],
]
STRANGE = st.sampled_from(STRANGE_VALUES)
KEYS = st.sampled_from(
    ["unknown", "node", "sent_at", "checks", "name", "value", "uuid", "pci", "inventory", "gpus", "faults", "figures"]
)


def inside(value: Any) -> list[Object]:
    """All objects in a value."""
    if isinstance(value, Object):
        return [value, *(found for _, item in value for found in inside(item))]
    return [found for item in value for found in inside(item)] if isinstance(value, list) else []


def dump(value: Any, *, ascii_only: bool, space: str) -> str:
    if isinstance(value, Token):
        return str(value)
    more = {"ascii_only": ascii_only, "space": space}
    if isinstance(value, Object):
        return "{" + f",{space}".join(f"{json.dumps(key)}:{space}{dump(item, **more)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(dump(item, **more) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Bodies of reports: valid ones, in several spellings, and such with a few changes."""
    whole = draw(REPORTS)
    for _ in range(draw(st.integers(0, 2))):
        item = draw(st.sampled_from(inside(whole)))
        if item and draw(st.booleans()):
            at = draw(st.integers(0, len(item) - 1))
            item[at] = (item[at][0], deepcopy(draw(STRANGE)))
        else:
            key = draw(KEYS | st.sampled_from([key for key, _ in item] or ["unknown"]))
            value = deepcopy(draw(STRANGE))
            item.insert(draw(st.integers(0, len(item))), (key, value))
    if draw(st.booleans()):
        whole = Object(draw(st.permutations(whole)))
    text = dump(whole, ascii_only=draw(st.booleans()), space=draw(st.sampled_from(["", "", " ", "\n"])))
    if draw(st.integers(0, 9)) == 0:
        key = draw(KEYS)
        text = text.replace(f'"{key}"', f'"{key[:-1]}\\u{ord(key[-1]):04x}"', 1)
    if draw(st.integers(0, 9)) == 0:
        text = text.replace('":', '" :', 1)
    return text.encode(errors="surrogatepass")


def by_the_format(body: bytes) -> incidents.IncomingReport:
    decoded = wire.decode(body)
    return incidents.IncomingReport.of(EAST, decoded.report, rejected=decoded.rejected, received_at=NOW)


def accepts(body: bytes) -> bool:
    """Returns whether msgspec accepts the body. Asserts that its value is then that of the format."""
    try:
        strict = report_decoder._strict(EAST, body, now=NOW)
    except report_decoder._REFUSALS:
        return False
    assert wire.decode(body).rejected == ()
    assert strict == by_the_format(body)
    assert repr(strict) == repr(by_the_format(body))
    return True


@settings(max_examples=500)
@given(bodies())
def test_msgspec_decodes_to_the_value_of_the_format_or_refuses(body: bytes) -> None:
    accepts(body)


def test_each_field_with_each_strange_value_has_the_value_of_the_format_or_is_refused() -> None:
    gpus = [pairs(index=n, uuid=f"GPU-{n}", pci="4e:00", model="H100", serial="1") for n in range(2)]
    whole = pairs(
        version=1,
        node="gpu-1",
        boot_id="boot-1",
        batch_id="0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11",
        agent="1.0.0",
        sent_at="2026-11-21T08:00:00Z",
        inventory=pairs(driver="580", kernel="6.8", gpus=gpus),
        faults=[],
        checks=[pairs(name="remapped", device="GPU-1", status="pass", value=0.5, unit="rows", message="none")],
        command_results=[],
    )
    places = [(number, at) for number, item in enumerate(inside(whole)) for at in range(len(item))]
    accepted = 0
    for number, at in places:
        for value in STRANGE_VALUES:
            changed = deepcopy(whole)
            item = inside(changed)[number]
            item[at] = (item[at][0], value)
            accepted += accepts(dump(changed, ascii_only=True, space="").encode())
            item.append((item[at][0], "again"))
            accepted += accepts(dump(changed, ascii_only=False, space="").encode(errors="surrogatepass"))
    assert accepted > len(places)


@settings(max_examples=200)
@given(bodies())
def test_an_invalid_body_has_the_error_of_the_wire_format(body: bytes) -> None:
    def outcome(read: Any) -> object:
        try:
            return read()
        except wire.EnvelopeError as error:
            return error.path, error.reason

    assert outcome(lambda: report_decoder.read(EAST, body, now=NOW)) == outcome(lambda: by_the_format(body))


@pytest.fixture
def by_wire(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that msgspec refused."""
    found: list[bytes] = []
    decode = wire.decode

    def note(body: bytes) -> wire.Decoded:
        found.append(body)
        return decode(body)

    monkeypatch.setattr(wire, "decode", note)
    return found


@pytest.mark.parametrize("checks", [0, 1, 100])
def test_reports_of_agents_are_decoded_by_msgspec(by_wire: list[bytes], checks: int) -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", pci=f"0000:{n:02x}:00.0", model="H100") for n in range(8))
    inventory = Inventory(driver="580.1", kernel="6.8", gpus=(*gpus, Gpu(index=8, uuid="GPU-8")))
    results = [
        Check(name=f"check-{n}", status="pass", device="GPU-1", value=None if n % 2 else n / 7, message='5 % of "x"\n')
        for n in range(checks)
    ]
    figures = {f"GPU-{n}": {"power": 400.5 + n, "ecc": n} for n in range(checks // 25)}
    sent = reports.heartbeat("gpu-1", boot_id="boot-1", inventory=inventory, results=(), figures=figures, now=NOW)
    spooled = reports.findings_report("gpu-1", (), results, boot_id="boot-1", now=NOW)
    heartbeat = report_decoder.read(EAST, sent.body, now=NOW)
    findings = report_decoder.read(EAST, reports.from_spool(spooled, now=NOW).body, now=NOW)
    assert by_wire == []
    assert (heartbeat, heartbeat.figures) == (by_the_format(sent.body), figures)
    assert (findings.check_count, findings.sent_at) == (checks, NOW)


def test_the_spelling_of_a_body_does_not_change_its_digests(by_wire: list[bytes]) -> None:
    whole = report(**FULL)
    turned = {key: whole[key] for key in sorted(whole, reverse=True)}
    bodies = [
        json.dumps(whole, separators=(",", ":")),
        json.dumps(turned),
        json.dumps(whole | {"unknown": 1}),
        json.dumps(whole | {"faults": [fault()]}),
        json.dumps(whole, indent=2).replace('":', '" :'),
        json.dumps(whole).replace("remapped", "re\\u006dapped"),
    ]
    found = {
        (incoming.inventory_digest, incoming.checks_digest)
        for incoming in (report_decoder.read(EAST, body.encode(), now=NOW) for body in bodies)
    }
    assert len(found) == 1
    assert len(by_wire) == 2  # the one with a fault, and the one with an escape
