"""Kernel log records to faults."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest

from agents.probes.log import kmsg, repeats
from kcover import wire
from kcover.faults.fault import Fault

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def record(text, *, after=0.0, facility=0, sequence=None):
    return kmsg.Record(text=text, at=NOW + timedelta(seconds=after), facility=facility, sequence=sequence)


def counts(faults):
    return [(fault.kind, fault.code, fault.pci, fault.count) for fault in faults]


def test_one_line_is_one_fault_with_all_its_fields():
    found = repeats.faults([record("usb 1-1: new device"), record(XID_79, facility=1, sequence=7)], now=NOW)
    assert found == [
        Fault(
            kind="xid",
            code=79,
            pci="0000:4e:00",
            message=XID_79,
            seen_at=NOW,
            source="kmsg",
            sequence=7,
            drill=True,
        )
    ]


def test_headers_of_records():
    header, text = kmsg.split_header("12,1234,5678,-;NVRM: Xid")
    assert (header, text) == (kmsg.Header(facility=1, sequence=1234, usec=5678), "NVRM: Xid")
    assert kmsg.split_header("[ 12.3] a, 1,2,3,-;b")[0] is None
    assert kmsg.split_header("１,2,3,-;full width")[0] is None


def test_the_second_line_about_a_lost_gpu_is_the_same_fault():
    plain = "NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus."
    assert counts(repeats.faults([record(XID_79), record(plain)], now=NOW)) == [("xid", 79, "0000:4e:00", 1)]
    assert counts(repeats.faults([record(plain)], now=NOW)) == [("xid", 79, "0000:4e:00.0", 1)]


def test_the_three_lines_of_an_sxid_are_one_fault():
    lines = [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 12 sourcetrack timeout",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Severity 1 Engine instance 12 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Data {0x00000000, 0x00000000}",
    ]
    assert counts(repeats.faults([record(line) for line in lines], now=NOW)) == [("sxid", 24007, "0000:c1:00.0", 1)]


LOST = "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned"
MUST_RESET = (
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned"
)
INIT = "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"


@pytest.mark.parametrize(
    ("line", "code", "pci"),
    [
        (LOST, "gpu_lost", None),
        (LOST.replace("NVRM: ", "NVRM: GPU 0000:4E:00.0: "), "gpu_lost", "0000:4e:00.0"),
        (MUST_RESET, "gpu_reset_required", None),
        (INIT, "gpu_init_failed", "0000:5d:00.0"),
        ("NVRM: RmInitAdapter failed! (0x26:0x56:1096)", "gpu_init_failed", None),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "gpu_init_failed", None),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            "peermem_invalid_context",
            None,
        ),
    ],
)
def test_a_line_of_the_driver_without_an_xid_is_a_fault_of_its_own(line, code, pci):
    [found] = repeats.faults([record(line), record(line, after=1)], now=NOW)
    assert (found.kind, found.code, found.pci, found.count) == ("other", code, pci, 2)
    [drill] = repeats.faults([record(line, facility=1)], now=NOW)
    assert drill.drill


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Assertion failed: (status == NV_OK) || (status == NV_ERR_GPU_IS_LOST) @ kernel_channel.c:2827",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
        "NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClient=0xc1d1a616; status=0x00000062",
        "train: [NV_ERR_GPU_IS_LOST]",
        "mlx5_core 0000:c8:00.0 eth2: TX timeout detected",
    ],
)
def test_other_lines_of_the_driver_are_no_faults(line):
    assert repeats.faults([record(line)], now=NOW) == []


PROBE = "NVRM: The NVIDIA probe routine failed for 1 device(s)."


@pytest.mark.parametrize(
    "before",
    [
        (
            "NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:13bb)",
            "NVRM: installed in this system is not supported by the",
            "NVRM: NVIDIA 550.54.15 driver release.",
            "nvidia: probe of 0000:05:00.0 failed with error -1",
        ),
        (
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
            "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:05:00.0)",
        ),
    ],
)
def test_a_card_that_the_driver_cannot_run_is_no_fault(before):
    """The line comes back at each boot: a rule that reboots for it would do so for ever."""
    assert repeats.faults([record(line) for line in (*before, PROBE)], now=NOW) == []
    found = repeats.faults([record(line) for line in (*before, INIT)], now=NOW + timedelta(minutes=1))
    assert counts(found) == [("other", "gpu_init_failed", "0000:5d:00.0", 1)]


@pytest.mark.parametrize("order", [(0.0, 1.0), (1.0, 0.0)])
def test_lines_about_a_gpu_with_an_xid_79_add_no_fault(order):
    xid_at, line_at = order
    lines = sorted((record(XID_79, after=xid_at), record(LOST, after=line_at)), key=lambda one: one.at)
    assert counts(repeats.faults(lines, now=NOW)) == [("xid", 79, "0000:4e:00", 1)]
    assert counts(repeats.faults([record(XID_79), record(MUST_RESET)], now=NOW)) == [("xid", 79, "0000:4e:00", 1)]


def test_the_lines_about_another_gpu_or_of_another_time_count():
    found = counts(repeats.faults([record(XID_79), record(INIT)], now=NOW))
    assert found == [("xid", 79, "0000:4e:00", 1), ("other", "gpu_init_failed", "0000:5d:00.0", 1)]
    found = counts(repeats.faults([record(XID_79), record(LOST, after=6)], now=NOW))
    assert found[1] == ("other", "gpu_lost", None, 1)
    xid_31 = XID_79.replace("79", "31").replace("GPU has fallen off the bus", "MMU Fault")
    assert len(repeats.faults([record(xid_31), record(LOST)], now=NOW)) == 2


def test_a_stream_of_lines_after_an_xid_79_stays_silent():
    windows = repeats.RepeatWindows()
    told = []
    for second in range(0, 30, 3):
        lines = [record(XID_79)] if second == 0 else [record(LOST, after=second)]
        told += windows.fold(kmsg.faults_of(lines), now=NOW + timedelta(seconds=second))
    assert counts(told) == [("xid", 79, "0000:4e:00", 1)]


def test_a_line_that_a_user_logged_is_no_fault_of_a_gpu():
    plain = kmsg.Record(text=f"Nov 28 10:00:00 gpu-1 me: {LOST}", at=NOW, is_plain=True)
    kernels = kmsg.Record(text=f"Nov 28 10:00:00 gpu-1 kernel: [   14.500] {LOST}", at=NOW, is_plain=True)
    assert counts(kmsg.faults_of([plain, kernels])) == [("other", "gpu_lost", None, 1)]


def test_a_machine_check_that_was_not_corrected_is_a_fault_of_the_node():
    line = "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400"
    lines = [
        "mce: [Hardware Error]: TSC 0 ADDR 1ffff",
        line,
        line.replace("be0", "9c0"),
        line.replace("CPU 2", "CPU 3"),
    ]
    found = repeats.faults([record(line, sequence=number) for number, line in enumerate(lines)], now=NOW)
    (fault,) = found
    assert (fault.kind, fault.code, fault.pci, fault.message) == ("other", "mce", None, line)
    assert (fault.source, fault.count, fault.records) == ("kmsg", 2, ((1, 1), (3, 3)))
    (drill,) = repeats.faults([record(line, facility=1)], now=NOW)
    assert drill.drill


def test_a_flood_of_machine_checks_is_reported_once_a_window_also_after_a_restart():
    line = "{7}[Hardware Error]: event severity: fatal"
    windows, sent = repeats.RepeatWindows(), []
    for second in range(11):
        found = kmsg.faults_of([record(line, after=second)] * 1000)
        sent.append(windows.fold(found, now=NOW + timedelta(seconds=second)))
        windows = repeats.RepeatWindows(json.loads(json.dumps(windows.state())))
    assert [second for second, faults in enumerate(sent) if faults] == [0, 5, 10]
    assert sum(fault.count for fault in itertools.chain(*sent, windows.close())) == 11_000


def test_a_storm_goes_at_once_and_then_once_a_window_and_nothing_of_it_is_lost():
    windows = repeats.RepeatWindows()
    sent = []
    for second in range(21):
        lines = kmsg.faults_of([record(XID_79, after=second)] * 10)
        sent.append(windows.fold(lines, now=NOW + timedelta(seconds=second)))
    assert counts(sent[0]) == [("xid", 79, "0000:4e:00", 10)]
    assert [second for second, faults in enumerate(sent) if faults] == [0, 5, 10, 15, 20]
    assert sum(fault.count for fault in itertools.chain(*sent, windows.close())) == 210


def test_gpus_codes_and_drills_are_kept_apart():
    other_gpu, other_code = XID_79.replace("4e", "5d"), XID_79.replace("79,", "62,")
    found = repeats.faults([record(XID_79), record(other_gpu), record(other_code), record(XID_79, facility=1)], now=NOW)
    assert len(found) == 4
    assert [fault.drill for fault in found] == [False, False, False, True]


def test_equal_faults_a_minute_apart_are_two_even_when_read_at_once():
    found = repeats.faults([record(XID_79), record(XID_79, after=60)], now=NOW + timedelta(minutes=9))
    assert counts(found) == [("xid", 79, "0000:4e:00", 1)] * 2


def test_held_repeats_survive_a_restart():
    windows = repeats.RepeatWindows()
    windows.fold(kmsg.faults_of([record(XID_79)]), now=NOW)
    assert windows.fold(kmsg.faults_of([record(XID_79, after=1, sequence=9)]), now=NOW + timedelta(seconds=1)) == []
    again = repeats.RepeatWindows(windows.state())
    (held,) = again.fold([], now=NOW + timedelta(seconds=5))
    assert (held.count, held.sequence, held.message) == (1, 9, XID_79)
    assert repeats.RepeatWindows([{"opened": "nonsense"}, {}]).state() == []


def test_a_fault_lists_the_records_it_stands_for():
    windows = repeats.RepeatWindows()
    (first,) = windows.fold(kmsg.faults_of([record(XID_79, sequence=number) for number in (4, 5, 9)]), now=NOW)
    assert (first.sequence, first.count, first.records) == (4, 3, ((4, 5), (9, 9)))
    for number in (11, 12, 20):
        windows.fold(kmsg.faults_of([record(XID_79, after=1, sequence=number)]), now=NOW + timedelta(seconds=1))
        windows = repeats.RepeatWindows(json.loads(json.dumps(windows.state())))  # a restart
    (held,) = windows.fold([], now=NOW + timedelta(seconds=5))
    assert (held.sequence, held.count, held.records) == (20, 3, ((11, 12), (20, 20)))
    (alone,) = repeats.faults([record(XID_79, sequence=30)], now=NOW)
    assert (alone.sequence, alone.records) == (30, ())


def test_a_line_with_further_details_is_no_record_of_its_own():
    plain = "NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus."
    (found,) = repeats.faults([record(XID_79, sequence=1), record(plain, sequence=2)], now=NOW)
    assert (found.count, found.records) == (1, ())


def test_the_records_of_a_storm_are_reported_in_few_ranges():
    lines = [record(XID_79, sequence=number * number) for number in range(2000)]
    (found,) = repeats.faults(lines, now=NOW)
    assert found.count == 2000
    assert len(found.records) == wire.MAX_RECORDS
    assert (found.records[0][0], found.records[-1][1]) == (0, 1999 * 1999)


def test_a_clock_set_back_holds_no_window_open():
    windows = repeats.RepeatWindows()
    windows.fold(kmsg.faults_of([record(XID_79)] * 2), now=NOW)
    windows.fold(kmsg.faults_of([record(XID_79, after=1)]), now=NOW)
    assert counts(windows.fold([], now=NOW - timedelta(days=1))) == [("xid", 79, "0000:4e:00", 1)]


def test_a_flood_of_different_faults_is_bounded():
    windows = repeats.RepeatWindows()
    lines = [record(f"NVRM: Xid (PCI:0000:4e:00): {code}, x") for code in range(3 * repeats.MAX_WINDOWS)]
    assert len(windows.fold(kmsg.faults_of(lines), now=NOW)) == len(lines)
    assert len(windows.state()) == repeats.MAX_WINDOWS


def test_messages_are_cut():
    (found,) = repeats.faults([record(XID_79 + "x" * 10_000)], now=NOW)
    assert len(found.message) == kmsg.MAX_MESSAGE_CHARS


ACTION = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from {} to {}"
CLEAR = ACTION.format("0x1 (GPU Reset Required)", "0x0 (None)")
REBOOT = ACTION.format("0x0 (None)", "0x2 (Node Reboot Required)")
RESET = ACTION.format("0x0 (None)", "0x1 (GPU Reset Required)")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([CLEAR, REBOOT], [(REBOOT, 1)]),
        ([REBOOT, CLEAR], [(REBOOT, 1)]),
        ([CLEAR, REBOOT, CLEAR, REBOOT], [(REBOOT, 2)]),
        ([CLEAR, CLEAR], []),
        ([RESET, REBOOT], [(RESET, 1), (REBOOT, 1)]),
        ([REBOOT, RESET, RESET], [(REBOOT, 1), (RESET, 2)]),
    ],
)
def test_an_all_clear_is_no_fault_and_hides_none(lines, told):
    found = repeats.faults([record(line, after=number) for number, line in enumerate(lines)], now=NOW)
    assert [(fault.message, fault.count) for fault in found] == told


LINK = "NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK {} XC1 i0 Link 17 (0x04084507 0x0"
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20001, {}"
CAUSED = XID_79.replace("79", "62") + ", caused by previous Xid 13"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LINK.format("Nonfatal"), LINK.format("Fatal")),
        (SWITCH.format("Non-fatal, Link 3 x"), SWITCH.format("Fatal, Link 3 x")),
        (XID_79.replace("79", "62"), CAUSED),
    ],
)
@pytest.mark.parametrize("gap", [0.0, 2.0])
def test_lines_that_weigh_differently_are_not_folded(one, other, gap):
    for lines in ([one, other], [other, one]):
        windows = repeats.RepeatWindows()
        sent = []
        for number, line in enumerate(lines):
            at = NOW + timedelta(seconds=number * gap)
            sent += windows.fold(kmsg.faults_of([record(line, after=number * gap)]), now=at)
            windows = repeats.RepeatWindows(json.loads(json.dumps(windows.state())))  # a restart
        assert [(fault.message, fault.count) for fault in sent] == [(line, 1) for line in lines]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
@pytest.mark.parametrize("word", ["Fatal", "Non-fatal"])
def test_the_lines_of_an_sxid_are_one_fault_in_any_order(order, word):
    lines = [
        SWITCH.format(f"{word}, Link 12 x"),
        SWITCH.format("Severity 1 Engine instance 12 Sub-engine instance 00"),
        SWITCH.format("Data {0x00000000, 0x00000000}"),
    ]
    [fault] = repeats.faults([record(lines[number]) for number in order], now=NOW)
    assert (fault.count, fault.message) == (1, lines[0])


@pytest.mark.parametrize(
    "text", [XID_79, "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400"]
)
@pytest.mark.parametrize(
    ("before", "is_fault"),
    [
        ("", True),
        ("Sep 12 00:01:44 ws1 kernel: ", True),
        ("Sep 12 00:01:44 ws1 alice: ", False),
        ("Sep 12 00:01:44 ws1 kernel[77]: ", False),
        ("2026-11-21T08:00:00+00:00 ws1 root: kernel: ", False),
    ],
)
def test_the_text_of_a_user_in_a_plain_log_is_no_fault(text, before, is_fault):
    plain = kmsg.Record(text=before + text, at=NOW, is_plain=True)
    assert len(kmsg.faults_of([plain])) == is_fault


def test_a_user_does_not_name_the_gpu_that_is_lost():
    lines = [
        "Sep 12 00:01:44 ws1 alice: NVRM: The NVIDIA GPU 0000:01:00.0",
        "Sep 12 00:01:44 ws1 alice: NVRM: (PCI ID: 10de:2330) installed in this system has",
        "Sep 12 00:01:44 ws1 kernel: NVRM: fallen off the bus and is not responding to commands.",
    ]
    [fault] = kmsg.faults_of([kmsg.Record(text=line, at=NOW, is_plain=True) for line in lines])
    assert fault.pci is None


@pytest.mark.parametrize(
    "text",
    [
        "process '/tmp/NVRM: Xid (PCI:0000:4e:00): 79, x' started with executable stack",
        "process '/tmp/NVRM: GPU at PCI:0000:4e:00: GPU has fallen off the bus.' started with executable stack",
        "usb 1-1: Product: NVRM: Xid (PCI:0000:4e:00): 79, pid=1",
        "ext4: Unknown parameter 'NVRM: GPU 0000:4e:00.0: RmInitAdapter failed!'",
        "process '/tmp/mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400' started",
        "device eth0: nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 24",
    ],
)
def test_quoted_text_of_a_user_is_no_fault(text: str) -> None:
    assert kmsg.faults_of([record(text)]) == []
    own = text[text.index(next(word for word in ("NVRM", "mce:", "nvidia-nvs") if word in text)) :]
    assert len(kmsg.faults_of([record(own)])) == 1
