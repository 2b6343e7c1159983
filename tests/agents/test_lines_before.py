"""The kernel's lines that go with a fault, and those that stay on the node."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.probes.log import lines_before, sources
from agents.probes.log.reader import LogReader
from kcover.faults.fault import Fault

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Log:
    """A kernel log in memory, and its reader."""

    def __init__(self) -> None:
        self.ring = sources.MemoryLog()
        self.reader = LogReader([self.ring], {})

    def write(self, text: str, *, at: float = 0.0, facility: int = 0) -> None:
        self.ring.write(text, at=NOW + timedelta(seconds=at), facility=facility)

    def read(self, *, at: float = 0.0, boot_id: str = "boot-1") -> list[Fault]:
        return list(self.reader.read(boot_id=boot_id, now=NOW + timedelta(seconds=at)).faults)


@pytest.fixture
def log() -> Log:
    return Log()


def before(fault: Fault) -> list[str]:
    return fault.lines_before.splitlines()


def test_a_fault_has_the_lines_of_the_kernel_before_it_with_their_time(log: Log) -> None:
    log.write("pcieport 0000:40:01.0: AER: Uncorrected (Fatal) error received", at=-0.25)
    log.write(XID_79)
    log.write("later")
    (fault,) = log.read()
    assert before(fault) == ["07:59:59.750 pcieport 0000:40:01.0: AER: Uncorrected (Fatal) error received"]


def test_lines_of_an_earlier_read_count_and_old_ones_do_not(log: Log) -> None:
    log.write("old", at=-lines_before.WITHIN.total_seconds() - 1)
    for number in range(lines_before.MAX_LINES + 5):
        log.write(f"line {number}", at=-1)
    assert log.read() == []
    log.write(XID_79)
    (fault,) = log.read()
    assert [line.partition(" ")[2] for line in before(fault)] == [f"line {number}" for number in range(5, 15)]


def test_lines_of_programs_and_of_the_boot_before_stay_out(log: Log) -> None:
    log.write("a line of the boot before")
    log.read()
    log.ring.reboot()
    log.write("systemd[1]: user=alice logs in", facility=3)
    log.write("nvidia 0000:4e:00.0: a line of the kernel", at=1)
    log.write(XID_79, at=1)
    (fault,) = log.read(at=1, boot_id="boot-2")
    assert before(fault) == ["08:00:01.000 nvidia 0000:4e:00.0: a line of the kernel"]


def test_secrets_stay_on_the_node_and_lines_are_bounded(log: Log) -> None:
    log.write("Kernel command line: quiet ro api_key=hunter2-hunter2 \x1b[2J" + " and more" * 100)
    log.write(XID_79)
    (fault,) = log.read()
    (line,) = before(fault)
    assert "hunter2" not in line
    assert "\x1b" not in line
    assert len(line) == len("08:00:00.000 ") + lines_before.MAX_LINE_CHARACTERS


def test_the_first_faults_of_a_burst_have_lines(log: Log) -> None:
    log.write("the cause")
    for number in range(lines_before.MAX_FAULTS + 5):
        log.write(XID_79.replace("4e", f"{number:02x}"))
    found = log.read()
    assert [bool(fault.lines_before) for fault in found] == [True] * lines_before.MAX_FAULTS + [False] * 5


def test_repeats_that_are_told_later_have_no_lines_of_other_reads(log: Log) -> None:
    log.write("the cause")
    log.write(XID_79)
    log.write(XID_79, at=1)
    log.read(at=1)
    log.write(XID_79, at=2)
    assert log.read(at=2) == []
    for _ in range(lines_before.MAX_LINES):
        log.write("chatter", at=3)
    assert log.read(at=3) == []
    (repeat,) = log.read(at=10)
    assert (repeat.count, repeat.lines_before) == (1, "")


def test_a_plain_log_has_its_own_times(tmp_path) -> None:
    path = tmp_path / "kern.log"
    path.write_text(f"Nov 21 08:00:00 n1 kernel: [   12.5] usb 1-1: new device\nNov 21 08:00:01 n1 kernel: {XID_79}\n")
    reader = LogReader([sources.LogFile(path)], {})
    (fault,) = reader.read(boot_id="boot-1", now=NOW).faults
    reader.close()
    assert before(fault) == ["Nov 21 08:00:00 n1 kernel: [   12.5] usb 1-1: new device"]
