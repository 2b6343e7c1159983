"""A stored reading says what the parser says, for every line of a kernel log that the tests have."""

import json
from pathlib import Path

import pytest

from kcover.faults import line_reading, nvlink5, xid
from kcover.faults.line_reading import LineReading

TESTS = Path(__file__).parents[1]
WORDS = ("Xid", "fallen off the bus")
LINES = sorted(
    {
        line
        for path in TESTS.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(word in line for word in WORDS)
    }
)
FATAL = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
CUT = "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Nonfatal   XC0 i0 Link 01 (0x021425c6 0x00000000"


def stored(message: str) -> LineReading:
    """The reading after a way through the database."""
    return line_reading.kept(json.loads(json.dumps(line_reading.read(message).to_json(message))), message)


def agrees(message: str) -> bool:
    """Whether the stored reading has what the parser finds in the message now."""
    found, line = stored(message), xid.parse_line(message)
    if line is None:
        return found == LineReading()
    told = (found.name, found.cause, found.fatal, found.text(message))
    return told == ((line.kind, str(line.code)), line.cause, nvlink5.is_fatal(line), line.text)


def test_each_line_of_the_tests_is_kept_as_it_is_parsed() -> None:
    assert [line for line in LINES if not agrees(line)] == []
    parsed = [line for line in map(stored, LINES) if line.fault]
    assert len(parsed) > 150
    assert {line.fatal for line in parsed} == {None, False, True}
    assert {line.cause is None for line in parsed} == {False, True}


@pytest.mark.parametrize("line", [FATAL, CUT], ids=["sxid", "nvlink5"])
def test_a_line_that_was_cut_anywhere_is_kept_as_it_is_parsed(line: str) -> None:
    assert [line[:end] for end in range(len(line) + 1) if not agrees(line[:end])] == []


def test_a_reading_of_another_message_does_not_count() -> None:
    """An older portal puts a worse line in the place of a message, and leaves the reading as it was."""
    harmless = FATAL.replace("Fatal", "Non-fatal")
    before = line_reading.read(harmless).to_json(harmless)
    assert line_reading.kept(before, harmless).fatal is False
    assert line_reading.kept(before, FATAL) == line_reading.read(FATAL) != line_reading.read(harmless)
    none = line_reading.read("GPU is lost").to_json("GPU is lost")
    assert line_reading.kept(none, "GPU is lost") == LineReading()
    assert line_reading.kept(none, FATAL).fatal is True


def test_a_reading_by_another_parser_does_not_count() -> None:
    now = line_reading.read(FATAL).to_json(FATAL)
    old = now | {"fatal": False}
    assert line_reading.kept(old, FATAL).fatal is False  # the same parser: what it stored counts
    table = nvlink5.table()
    assert now["by"] == line_reading.revision(line_reading.RULES, table)
    others = (
        line_reading.revision(line_reading.RULES + 1, table),
        line_reading.revision(line_reading.RULES, table.replace(b'"fatal": true', b'"fatal": false', 1)),
    )
    assert [line_reading.kept(old | {"by": by}, FATAL).fatal for by in others] == [True, True]
    del old["by"]  # of a parser that wrote none
    assert line_reading.kept(old, FATAL).fatal is True


def test_a_message_without_a_reading_is_read() -> None:
    assert line_reading.kept({}, FATAL) == line_reading.read(FATAL)
    assert line_reading.kept({}, "") == LineReading()
