"""Messages of several lines: one is explained by another, and only the first of them has a header in a plain log."""

import pathlib
from datetime import UTC, datetime

import pytest

from agents.probes.log import kmsg, reader
from agents.probes.log.sources import LogFile

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
CARD = "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c31)"
NEEDS_OPEN = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
INIT = "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)"
OTHER = "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0x40:2477)"
LOST = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def told(lines: list[str], *, is_plain: bool = False) -> list[tuple[int | str, str | None]]:
    records = [kmsg.Record(text=line, at=NOW, is_plain=is_plain) for line in lines]
    return [(fault.code, fault.pci) for fault in kmsg.faults_of(records)]


def test_a_card_that_needs_another_kind_of_driver_is_no_fault() -> None:
    """The driver prints both lines whenever somebody looks at the GPU: a rule that reboots for it never ended."""
    assert told([CARD, NEEDS_OPEN, INIT]) == []
    assert told([f"{CARD}\\x0a{NEEDS_OPEN}", INIT]) == []  # one record
    assert told([f"{CARD}#012{NEEDS_OPEN}", INIT]) == []  # as rsyslog writes it
    assert told([CARD, NEEDS_OPEN, INIT, OTHER]) == [("gpu_init_failed", "0000:5d:00.0")]
    assert told([INIT]) == [("gpu_init_failed", "0000:02:00.0")]


def test_the_lines_of_one_message_in_two_reads(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text(f"[    5.559842] {CARD}\n[    5.559842] {NEEDS_OPEN}\n")
    logs = reader.LogReader([LogFile(path, uptime=lambda: 100.0)], {})
    assert logs.read(boot_id="boot-1", now=NOW).faults == ()
    with path.open("a") as log:
        log.write(f"[    5.559858] {INIT}\n[    5.560000] {OTHER}\n")
    assert [fault.pci for fault in logs.read(boot_id="boot-1", now=NOW).faults] == ["0000:5d:00.0"]
    logs.close()


@pytest.mark.parametrize("header", ["[ 1843.308145] ", "Feb 14 05:03:41 gpu-1 kernel: "])
def test_a_message_whose_further_lines_are_indented(header: str) -> None:
    """As dmesg and journalctl print it. The GPU was lost without a word."""
    first, *others = LOST
    indented = [" " * len(header) + line for line in others]
    assert told([header + first, *indented], is_plain=True) == [(79, "0000:b3:00.0")]
    card = [header + CARD, " " * len(header) + NEEDS_OPEN, header + INIT]
    assert told(card, is_plain=True) == []


@pytest.mark.parametrize(
    "before",
    [
        [],
        ["Feb 14 05:03:41 gpu-1 alice[7]: what a program says"],
        ["Feb 14 05:03:41 gpu-1 alice[7]: NVRM: The NVIDIA GPU 0000:b3:00.0"],
        ["Feb 14 05:03:41 gpu-1 alice[7]: a", *["  NVRM: more"] * 20],
    ],
)
def test_the_further_lines_of_a_program_are_its_own(before: list[str]) -> None:
    assert (
        told([*before, "      NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus."], is_plain=True) == []
    )
