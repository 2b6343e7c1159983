"""Who wrote a line of a log file: a user's text is not taken for the kernel's."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.faults import kernel_line

XID = "NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[1084456.074562] ",
        "[    1.074562] ",
        "[   38.175561][ T1234] ",
        "<4>[ 12.000000] ",
        "[Thu Nov 28 10:00:00 2026] ",
        "kern  :err   : [   12.345678] ",
        "kern  :err   : 2026-11-28T10:00:00,123456+00:00 ",
        "kern  :err   : ",
        "Thu 2026-11-28 10:00:00 +08 gpu-1 kernel: ",
        "2026-11-28T10:00:00,123456+00:00 ",
        "Sep 12 00:01:44 ws1 kernel: ",
        "Sep  2 00:01:44 ws1 kernel: [1234.567890] ",
        "2026-11-28T10:00:00.123456+00:00 gpu-1.example.com kernel: ",
        "2026-11-28T10:00:00Z gpu-1 kernel: ",
        "Nov 28 10:00:00.123456 gpu-1 kernel: ",
        "<4>Nov 28 10:00:00 gpu-1 kernel: ",
        "<4>1 2026-11-28T10:00:00.123Z gpu-1 kernel - - - ",
        "[ 1234.567890] gpu-1 kernel: ",
        "<6>",
        "kernel: ",
        "[Nov28 10:00] ",
        "[  +0.000012] ",
        "Nov 28 10:00:00 gpu-1 kern.warn kernel: ",
        "Nov 28 10:00:00 gpu-1 kern.warn kernel: [   12.345678] ",
        "Thu Nov 28 10:00:00 2026 kern.warn kernel: [   12.345678] ",
        "Thu 2026-11-28 10:00:00 UTC gpu-1 kernel: ",
        "Thu 2026-11-28 10:00:00.123456 CEST gpu-1 kernel: [   12.345678] ",
        "<4>1 2026-11-28T10:00:00.123Z gpu-1 kernel - - - \ufeff",
        "kernel: [16450076.435595] ",
        "[ 1234.567890 <    0.000123>] ",
        "[ 1234.567890 <    0.000123 >] gpu-1 kernel: ",
        "[Sun Nov 29 10:00:00 2026 <    0.000123>] ",
        "11月 15 14:15:47 gpu-1 kernel: ",
        " 7月 05 14:15:47 gpu-1 kernel: ",
        "[六 11月 28 12:34:56 2026] ",
        "[토 11월 28 12:34:56 2026] ",
        "déc. 26 10:00:00 gpu-1 kernel: ",
        "[jeu. nov. 26 10:00:00 2026] ",
        "Mär 06 17:59:27 gpu-1 kernel: ",
        "ноя 26 10:00:00 gpu-1 kernel: ",
    ],
)
def test_the_kernels_lines(before: str) -> None:
    assert kernel_line.is_of_kernel(before + XID)


@pytest.mark.parametrize(
    "before",
    [
        "Sep 12 00:01:44 ws1 alice: ",
        "Sep 12 00:01:44 ws1 root[4711]: ",
        "Sep 12 00:01:44 ws1 kernel[4711]: ",
        "Sep 12 00:01:44 ws1 alice: kernel: ",
        "Sep 12 00:01:44 ws1 alice: [1234.567890] ",
        "Sep 12 00:01:44 ws1 Kernel: ",
        "2026-11-28T10:00:00.123456+00:00 gpu-1 python3[99]: ",
        "<13>1 2026-11-28T10:00:00.123Z gpu-1 alice - - - ",
        "<13>1 2026-11-28T10:00:00.123Z gpu-1 kernel 77 - - ",
        "<13>Nov 28 10:00:00 gpu-1 logger: ",
        "user  :notice: [   12.345678] ",
        "[ 1234.567890] gpu-1 sshd[12]: ",
        "Nov 28 10:00:00 gpu-1 systemd-coredump[3]: ",
        # Anybody chooses the tag: logger -t.
        "Nov 28 10:00:00 gpu-1 0x: ",
        "Nov 28 10:00:00 gpu-1 a b: ",
        "Nov 28 10:00:00 gpu-1 é: ",
        f"Nov 28 10:00:00 gpu-1 {'x' * 70}: ",
        "Nov 28 10:00:00 gpu-1 ",
        "Nov 28 10:00:00 gpu-1 a kernel: ",
        "11月 28 10:00:00 gpu-1 alice: ",
        "11月 28 10:00:00 gpu-1 a kernel: ",
        "déc. 26 10:00:00 gpu-1 alice: kernel: ",
        "kernel: kernel: [16450076.435595] ",
        "alice: [ 1234.567890 <    0.000123>] ",
        "[ 1234.567890 <    0.000123 >] gpu-1 alice[7]: ",
        "Nov 28 10:00:00 gpu-1 user.notice kernel: kernel: ",
        "Nov 28 10:00:00 gpu-1 kernel: alice: ",
        "2026-11-28T10:00:00+00:00 gpu-1 0x: [   12.345678] ",
        "<13>",
        "joe: ",
        "joe: kernel: ",
        "alice said ",
        "2026-11-28T10:00:00Z stderr F Nov 28 10:00:00 gpu-1 0x: ",
        '{"log":"Nov 28 10:00:00 gpu-1 0x: ',
    ],
)
def test_the_lines_of_programs(before: str) -> None:
    assert not kernel_line.is_of_kernel(before + XID)
    assert kernel_line.is_of_program(before + XID)


def test_a_line_with_many_spaces_is_not_of_the_kernel() -> None:
    """Each way to divide them would be tried: the time to read such a line grew with its square."""
    for before in ("[" + " " * 4000, "Nov 28 10:00:00 h kernel: [" + " " * 4000):
        assert not kernel_line.is_of_kernel(before + XID)


@pytest.mark.parametrize("before", ["2026-11-28T10:00:00Z stderr F ", '{"log":"'])
def test_a_line_that_does_not_tell(before: str) -> None:
    assert kernel_line.writer(before + XID) == ""


def test_a_line_in_a_thousand_wraps_is_a_programs() -> None:
    wrap = "1700000000.1 stdout F "
    assert kernel_line.writer(2 * wrap + XID) == ""
    assert kernel_line.writer(3_000 * wrap + XID) == "program"


def test_the_fields_of_a_journal() -> None:
    assert kernel_line.is_of_program('{"MESSAGE":"' + XID + '","SYSLOG_IDENTIFIER":"alice"}')
    assert kernel_line.is_of_kernel('{"MESSAGE":"' + XID + '","_TRANSPORT":"kernel"}')
    assert kernel_line.is_of_kernel('{"_TRANSPORT":"kernel","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"' + XID + '"}')
    tagged = '{"SYSLOG_IDENTIFIER":"kernel","_TRANSPORT":"syslog","MESSAGE":"' + XID + '"}'
    assert kernel_line.is_of_program(tagged)


@pytest.mark.parametrize(
    ("fields", "writer"),
    [
        ({"facility": "kern", "priority": "err", "talos-time": "2026-11-29T18:59:01.3Z"}, ""),
        ({"facility": "user", "priority": "warning"}, "program"),
        ({"facility": "user", "programname": "kernel", "procid": "-"}, "program"),
        ({"programname": "train", "severity": "err"}, "program"),
        ({"facility": "kern", "programname": "kernel", "syslogtag": "kernel:"}, "kernel"),
        ({"SYSLOG_FACILITY": "0", "_TRANSPORT": "kernel"}, "kernel"),
        ({"priority": 3, "sequence": 1432, "sec": 12345}, ""),
        ({"host": "gpu-1", "ident": "kernel"}, "kernel"),
        ({"host": "gpu-1", "ident": "alice", "pid": "12"}, "program"),
        ({"appname": "alice", "hostname": "gpu-1"}, "program"),
        ({"PROGRAM": "alice", "HOST": "gpu-1"}, "program"),
        # A collector sets its own name beside that of the writer.
        ({"SYSLOG_IDENTIFIER": "kernel", "appname": "node-logs"}, "kernel"),
        ({"_TRANSPORT": "kernel", "program": "fluent-bit"}, "kernel"),
        ({"program": "dmesg"}, ""),
        ({"SYSLOG_IDENTIFIER": "alice", "appname": "kernel"}, "program"),
    ],
)
def test_the_writer_of_a_json_line_is_found(fields: dict[str, Any], writer: str) -> None:
    assert kernel_line.writer(json.dumps({**fields, "msg": XID})) == writer
    assert kernel_line.writer(json.dumps({"msg": XID, **fields})) == writer


@pytest.mark.parametrize("time", ["", "[ 2288.712311] "])
def test_rsyslog_keeps_the_space_before_a_message(time: str) -> None:
    fields = {"host": "gpu-1", "facility": "kern", "syslog-tag": "kernel:"}
    assert kernel_line.writer(json.dumps({**fields, "message": f" {time}{XID}"})) == ""
    assert kernel_line.is_of_kernel(json.dumps({"programname": "kernel", "msg": f" {time}{XID}"}))
    assert kernel_line.is_of_program(json.dumps({**fields, "message": f" alice: {XID}"}))
    assert kernel_line.is_of_program(json.dumps({**fields, "message": f" alice {time}{XID}"}))


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 x",
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400",
        "{1}[Hardware Error]: event severity: fatal",
        "[Hardware Error]: Uncorrected, software restartable error.",
        "NVRM: GPU at PCI:0000:09:00: GPU-26fba6b2-0000-1111-2222-333344445555",
        "pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:00.0",
        "mlx5_core 0000:3b:00.0 ens1: TX timeout detected",
    ],
)
def test_texts_of_the_kernel_are_no_tags(text: str) -> None:
    assert kernel_line.is_of_kernel(f"[   38.175561] {text}")


@pytest.mark.parametrize(
    ("line", "microseconds"),
    [
        (f"[1084456.074562] {XID}", 1_084_456_074_562),
        (f"[   38.175][ T1234] {XID}", 38_175_000),
        (f"<4>[ 12.000000019]{XID}", 12_000_000),
        (f"kern  :err   : [   12.345678] {XID}", 12_345_678),
        (f"Sep  2 00:01:44 ws1 kernel: [1234.567890] {XID}", 1_234_567_890),
        (f"[ 1234.567890] gpu-1 kernel: {XID}", 1_234_567_890),
        (f"[ 1234.567890 <    0.000123 >] gpu-1 kernel: {XID}", 1_234_567_890),
        (f"[ 1234.567890 <    0.000123>] {XID}", 1_234_567_890),
        (f"kernel: [1234.567890] {XID}", 1_234_567_890),
        (f'{{"MESSAGE":"[   12.345678] {XID}"}}', 12_345_678),
        (f"4,77,12345678,-;{XID}", 12_345_678),
        (XID, None),
        (f"[1763715600.123456] {XID}", None),  # a time since 1970
        (f"[Thu Nov 28 10:00:00 2026] {XID}", None),
        (f"[  +0.000012] {XID}", None),
        (f"Nov 28 10:00:00 gpu-1 kernel: {XID} [12.345678] NVRM: ", None),
        ("[   12.345678] usb 1-1: new device", None),
    ],
)
def test_the_uptime_of_a_line(line: str, microseconds: int | None) -> None:
    told = kernel_line.uptime(line)
    assert told == (timedelta(microseconds=microseconds) if microseconds is not None else None)


@pytest.mark.parametrize(
    ("header", "latest"),
    [
        ("Dec 31 10:00:00 gpu-1 kernel: ", "2025-12-31 22:00"),
        ("Jan  2 10:00:00 gpu-1 kernel: ", "2026-01-02 22:00"),
        ("<3>Nov 29 10:00:00 gpu-1 kernel: [   12.345678] ", "2025-11-29 22:00"),
        ("[Wed Jul 31 23:00:00 2024] ", "2024-08-01 11:00"),
        ("kern  :warn  : [Wed Jul 31 23:00:00 2024] ", "2024-08-01 11:00"),
        ("Thu Nov 28 10:00:00 2024 kern.warn kernel: ", "2024-11-28 22:00"),
        ("Fri 2025-11-28 10:00:00 CEST gpu-1 kernel: ", "2025-11-28 22:00"),
        ("2025-11-28 10:00:00 gpu-1 kernel: ", "2025-11-28 22:00"),
        ("[六 11月 28 12:00:00 2025] ", "2025-11-29 00:00"),
        ("11月 28 12:00:00 gpu-1 kernel: ", "2025-11-29 00:00"),
        ("déc. 26 10:00:00 gpu-1 kernel: ", None),
        ("Feb 29 10:00:00 gpu-1 kernel: ", None),
        ("[ 1234.567890] ", None),
        ("", None),
    ],
)
def test_the_latest_time_of_a_line_without_a_zone(header: str, latest: str | None) -> None:
    read_at = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
    told = kernel_line.latest_at(header + XID, read_at=read_at)
    assert told == (datetime.fromisoformat(f"{latest}+00:00") if latest else None)


@pytest.mark.parametrize(
    "before", ["Dec 31 10:00:00 gpu-1 kernel: ", "[Wed Jul 31 23:00:00 2024] ", "2026-11-28T10:00:00Z "]
)
def test_the_header_of_a_line_with_a_time_of_the_calendar(before: str) -> None:
    assert kernel_line.header(before + XID) == before
    assert kernel_line.header(f"[ 1234.567890] {XID}") == kernel_line.header(XID) == ""
    assert kernel_line.header(f"{before}usb 1-1: new device") == ""
