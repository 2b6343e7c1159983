"""The lines of a bundle around a fault."""

import io
from collections.abc import Iterator

import pytest

from kcover.evidence import excerpt
from kcover.evidence.bundle import Section, Writer

FAULT = "NVRM: Xid (PCI:0000:18:00): 62"


def bundle(*lines: str) -> bytes:
    file = io.BytesIO()
    writer = Writer(file)
    writer.add(Section(name="versions", status="ok"), [FAULT])
    writer.add(Section(name="kernel log", status="ok"), lines)
    writer.add(Section(name="PCI", status="ok"), ["18:00.0 3D controller"])
    writer.close()
    return file.getvalue()


def pieces(content: bytes, size: int = 7) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def test_the_lines_around_the_last_occurrence_are_found_in_the_kernel_log_only() -> None:
    log = [f"line {number}" for number in range(200)]
    log[10], log[120] = f"[10.0] {FAULT}, 1", f"[120.0] {FAULT}, 2"
    found = excerpt.around(pieces(bundle(*log)), FAULT)
    assert [line.text for line in found] == log[120 - excerpt.AROUND : 121 + excerpt.AROUND]
    assert [line.text for line in found if line.hit] == [log[120]]
    assert excerpt.around(pieces(bundle("quiet")), FAULT) == []


def test_occurrences_next_to_each_other_are_one_excerpt_of_a_bounded_length() -> None:
    log = [f"{FAULT}, {number}" for number in range(500)]
    found = excerpt.around([bundle(*log)], FAULT)
    assert len(found) == 4 * excerpt.AROUND
    assert found[-2].text.endswith("499") or found[-1].text.endswith("499")


def test_a_truncated_or_invalid_bundle_gives_no_excerpt() -> None:
    content = bundle(*(f"line {number}" for number in range(50)), FAULT)
    assert excerpt.around([b"no gzip"], FAULT) == []
    assert excerpt.around([content[: len(content) // 3]], FAULT) == []


def test_an_empty_text_and_lines_beyond_the_bound_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bundle("quiet", FAULT)
    assert excerpt.around([content], "") == []
    assert excerpt.around([content], FAULT)
    monkeypatch.setattr(excerpt, "MAX_LINES", 4)
    assert excerpt.around([content], FAULT) == []
