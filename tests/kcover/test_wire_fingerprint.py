"""Fingerprints of reports: equal fingerprints mean equal content."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kcover import wire

IDS = ("0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11", "FFFFFFFF-0000-4000-8000-000000000001")
TIMES = ("2026-11-21T08:00:00Z", "2026-11-21T08:00:30.25+02:00")
REPORT = {
    "version": 1,
    "node": "gpu-0001",
    "boot_id": "boot-1",
    "batch_id": IDS[0],
    "sent_at": TIMES[0],
    "agent": "1.0.0",
    "checks": [{"name": "remapped", "status": "pass", "message": "none pending"}],
}


def body(*, separators=(",", ":"), **changes):
    whole = {key: value for key, value in (REPORT | changes).items() if value is not ...}
    return json.dumps(whole, separators=separators).encode()


def rest(data):
    alike = wire.fingerprint(data)
    assert alike is not None
    return alike.rest


def test_a_repeated_report_has_the_same_fingerprint():
    one, other = wire.fingerprint(body()), wire.fingerprint(body(batch_id=IDS[1], sent_at=TIMES[1]))
    assert one.rest == other.rest
    assert len(one.rest) == 16
    read = wire.decode(body(batch_id=IDS[1], sent_at=TIMES[1])).report
    assert (other.batch_id, other.sent_at) == (read.batch_id, read.sent_at)
    assert other.batch_id == IDS[1].lower()


def test_either_order_and_a_space_after_the_colon():
    turned = {key: REPORT[key] for key in sorted(REPORT, reverse=True)}  # sent_at before batch_id
    assert wire.fingerprint(json.dumps(turned).encode()).batch_id == IDS[0]
    assert rest(body(separators=(", ", ": "))) == rest(body(separators=(", ", ": "), batch_id=IDS[1]))


def test_any_other_difference_changes_the_fingerprint():
    known = rest(body())
    others = [
        body(node="gpu-0002"),
        body(boot_id="boot-2"),
        body(agent="1.0.1"),
        body(checks=[{"name": "remapped", "status": "fail"}]),
        body(faults=[]),
        body(separators=(", ", ": ")),
        body() + b" ",
    ]
    assert all(rest(other) != known for other in others)


def test_the_positions_of_the_values_matter():
    def made(before: str, between: str, after: str) -> bytes:
        return (
            f'{{"version":1,"node":"a","boot_id":"b",{before}"batch_id":"{IDS[0]}",{between}"sent_at":"{TIMES[0]}"{after}}}'
        ).encode()

    found = {
        rest(made('"agent":"x",', "", "")),
        rest(made("", '"agent":"x",', "")),
        rest(made("", "", ',"agent":"x"')),
    }
    assert len(found) == 3


def test_an_ambiguous_body_has_no_fingerprint():
    doubtful = [
        b"",
        b"[]",
        body(batch_id=...),
        body(sent_at=...),
        body(batch_id="none"),
        body(sent_at="yesterday"),
        body(sent_at="2026-02-30T00:00:00Z"),
        body(agent='says "hello"'),  # a backslash: keys could be spelled with it, too
        body().replace(b'"agent"', b'"\\u0061gent"'),
        body(more={"batch_id": IDS[1]}),
        body(more={"sent_at": TIMES[1]}),
        body(agent="batch_id"),
        body().replace(b'"batch_id":', b'"batch_id"\n:'),
    ]
    assert [data for data in doubtful if wire.fingerprint(data) is not None] == []


KEYS = st.sampled_from(["batch_id", "sent_at", "x"])
VALUES = st.sampled_from([IDS[0], TIMES[0], "batch_id", "sent_at", '"batch_id":"x"', "x", None])
EXTRA = st.dictionaries(KEYS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=2)), max_size=2)


@st.composite
def texts(draw):
    """A report's body as text, with strange keys inside, in any order, perhaps with a key spelled by an escape."""
    whole = {**REPORT, "more": draw(EXTRA), "checks": []}
    order = draw(st.permutations(sorted(whole)))
    text = json.dumps({key: whole[key] for key in order}, separators=draw(st.sampled_from([(",", ":"), (", ", ": ")])))
    if draw(st.booleans()):
        key = draw(st.sampled_from(["batch_id", "sent_at"]))
        text = text.replace(f'"{key}"', f'"{key[:-1]}\\u{ord(key[-1]):04x}"', 1)
    return text


@settings(max_examples=1000)
@given(
    texts(), st.integers(0, 5), st.sampled_from([*zip(IDS, IDS[::-1], strict=True), (TIMES[0], TIMES[1]), ("x", "y")])
)
def test_reports_with_the_same_fingerprint_decode_to_the_same(text, which, swap):
    places = [at for at in range(len(text)) if text.startswith(swap[0], at)]
    at = places[which % len(places)] if places else len(text)
    other = text[:at] + text[at:].replace(*swap, 1)
    first, second = wire.fingerprint(text.encode()), wire.fingerprint(other.encode())
    known = wire.decode(text.encode())
    if first is None:
        return
    assert (first.batch_id, first.sent_at) == (known.report.batch_id, known.report.sent_at)
    if second is not None and second.rest == first.rest:
        expected = replace(known.report, batch_id=second.batch_id, sent_at=second.sent_at)
        assert wire.decode(other.encode()) == replace(known, report=expected)
