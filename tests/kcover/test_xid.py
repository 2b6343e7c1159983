import mmap
import string
import tempfile
import time

import pytest
from hypothesis import given, strategies as st

from kcover.faults import xid
from kcover.faults.xid import FaultLine

LOST = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)"


def seen(line):
    fault_line = xid.parse_line(line)
    assert fault_line is not None, line
    return fault_line


# ----------------------------------------------------------------------------------------- whole lines


def test_every_field_of_a_line():
    text = "pid=1234, name=python3, Ch 00000008 caused by previous Xid 149"
    line = f"NVRM: Xid (PCI:0000:4e:00 GPU-I:05 GPU-CI:02): 45, {text}"
    assert xid.parse_line(line) == FaultLine(
        kind="xid",
        code=45,
        pci="0000:4e:00",
        pid=1234,
        process="python3",
        fatal=None,
        link=None,
        mig="GPU-I:05 GPU-CI:02",
        cause=149,
        text=text,
        line=line,
    )


def test_absent_fields_are_none():
    assert xid.parse_line("NVRM: Xid (PCI:0000:4e:00): 79\n") == FaultLine(
        kind="xid", code=79, pci="0000:4e:00", line="NVRM: Xid (PCI:0000:4e:00): 79"
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[538441.007373] ",
        "[    7.000001] ",
        "[四 7月 4 11:09:40 2024] ",
        "[Thu Jul  4 11:09:40 2024] ",
        "4,1234,538441007373,-;",
        "12,88,1,-,caller=T99;",
        "<4>[538441.007373] ",
        "Jul  4 11:09:40 gpu-0001 kernel: ",
        "7月 04 11:09:40 gpu-0001 kernel: [538441.007373] ",
        "2026-11-21T08:00:00.123456+08:00 gpu-0001 kernel: [  538441.007373] ",
        "gpu-0001 kernel: Xid watch: ",
        "\x00\ufeff",
    ],
)
def test_any_prefix_is_ignored(prefix):
    assert seen(prefix + LOST) == FaultLine(
        kind="xid",
        code=79,
        pci="0000:4e:00",
        text="pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        line=prefix + LOST,
    )
    assert seen(prefix + SWITCH) == FaultLine(
        kind="sxid",
        code=28006,
        pci="0000:c1:00.0",
        fatal=False,
        link=46,
        text="Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
        line=prefix + SWITCH,
    )


@pytest.mark.parametrize(
    ("printed", "pci", "mig"),
    [
        (" (0000:03:00)", "0000:03:00", None),
        (" (PCI:0000:4e:00)", "0000:4e:00", None),
        (" (PCI:0000:4E:00)", "0000:4e:00", None),
        (" (PCI:0000:4e:00.0)", "0000:4e:00.0", None),
        (" (0008:01:00.7)", "0008:01:00.7", None),
        (" (PCI:0000:4e:00 GPU-I:05 GPU-CI:02)", "0000:4e:00", "GPU-I:05 GPU-CI:02"),
        (" (PCI:0000:4e:00 GPU-I:05)", "0000:4e:00", "GPU-I:05"),
        (" (PCI:00010000:4e:00)", "00010000:4e:00", None),
        (" (0001:00)", "0001:00", None),
        (" (somewhere)", None, None),
        (" (PCI:0000:4e:00.9)", None, None),
        (" (PCI:0000:4e:00 and more)", None, None),
        (" (PCI:0000:4e:0g)", None, None),
        (" (" + "0" * 100 + ")", None, None),
        (" ()", None, None),
        ("", None, None),
    ],
)
def test_the_forms_of_an_address(printed, pci, mig):
    fault_line = seen(f"NVRM: Xid{printed}: 62, Channel 00000001")
    assert (fault_line.code, fault_line.pci, fault_line.mig) == (62, pci, mig)
    assert fault_line.text == "Channel 00000001"


@pytest.mark.parametrize(
    ("printed", "code", "text"),
    [
        ("62, Channel 00000001", 62, "Channel 00000001"),
        ("62,", 62, ""),
        ("62", 62, ""),
        ("62.", 62, ""),
        ("62 Channel", 62, "Channel"),
        ("62: Channel", 62, "Channel"),
        ("62; Channel", 62, "Channel"),
        ("62\tChannel", 62, "Channel"),
        ("62\r\n", 62, ""),
        ("62, Channel  \r\n", 62, "Channel"),
        ("0, x", 0, "x"),
        ("00079, x", 79, "x"),
        ("9999, not in the catalog", 9999, "not in the catalog"),
        ("2147483647, x", 2147483647, "x"),
        ("62, first\n SUBSYSTEM=pci\n DEVICE=+pci:0000:4e:00.0", 62, "first"),
    ],
)
def test_code_and_text_of_a_line_are_parsed(printed, code, text):
    fault_line = seen(f"NVRM: Xid (PCI:0000:4e:00): {printed}")
    assert (fault_line.code, fault_line.text) == (code, text)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1",
        "NVRM: GPU at PCI:0000:4e:00: GPU-8f2c1c9e-0000-0000-0000-000000000000",
        "NVRM: Xid (PCI:0000:4e:00): 2147483648, x",
        "NVRM: Xid (PCI:0000:4e:00): 00000000079, x",
        "NVRM: Xid (PCI:0000:4e:00): " + "7" * 5000,
        "NVRM: Xid (PCI:0000:4e:00): -1, x",
        "NVRM: Xid (PCI:0000:4e:00): 0x4f, x",
        "NVRM: Xid (PCI:0000:4e:00): 79a, x",
        "NVRM: Xid (PCI:0000:4e:00): 7.9, x",
        "NVRM: Xid (PCI:0000:4e:00): 7９, x",
        "NVRM: Xid (PCI:0000:4e:00): ７９, x",
        "NVRM: Xid (PCI:0000:4e:00): ٧٩, x",
        "NVRM: Xid (PCI:0000:4e:00): , x",
        "NVRM: Xid (PCI:0000:4e:00) 79, x",
        "NVRM: Xid (PCI:0000:4e:00: 79, x",
        "NVRM: Xid ((PCI:0000:4e:00)): 79, x",
        "NVRM: Xid (" + "0" * 101 + "): 79, x",
        "Xid (PCI:0000:4e:00): 79, x",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 2147483648, Fatal, Link 01 x",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): Fatal, Link 01 x",
        "the GPU has fallen off the bus, says a program",
        "NVRM: GPU 0000:4e:00.0: GPU has fallen off\nthe bus",
        "fallen off the bus NVRM: later",
        "NVRM: The NVIDIA GPU 0000:01:00.0",
        "NVRM: (PCI ID: 10de:13c2) installed in this system has",
        "a line about Xid errors",
    ],
)
def test_a_line_without_a_fault(line):
    assert xid.parse_line(line) is None
    assert list(xid.scan(line.encode())) == []
    assert list(xid.parse_lines([line])) == []


# ---------------------------------------------------------------------------------------- process part


@pytest.mark.parametrize(
    ("text", "pid", "process"),
    [
        ("pid=1234, name=python3, Ch 00000008", 1234, "python3"),
        ("pid='<unknown>', name=<unknown>, Ch 00000008", None, None),
        ("pid=<unknown>, name=<unknown>, Ch 00000008", None, None),
        ("pid=<unknown>, name='<unknown>', Ch 00000008", None, None),
        ("pid=<unknown>, Ch 00000008", None, None),
        ("pid=1234, Ch 00000008", 1234, None),
        ("pid='1234', Ch 00000008", 1234, None),
        ("pid=1234", 1234, None),
        ("pid=1234,", 1234, None),
        ("pid=1234, name=python3", 1234, "python3"),
        ("pid=1234, name=python3,", 1234, "python3"),
        ("pid=1234, name=", 1234, None),
        ("pid=1234, name=, Ch 00000008", 1234, None),
        ("name=python3, Ch 00000008", None, "python3"),
        ("name=python3", None, "python3"),
        ("pid=0, name=swapper/0, Ch 00000008", 0, "swapper/0"),
        ("pid=12345678901, name=x, Ch 00000008", None, None),
        ("pid=１２, name=x, Ch 00000008", None, None),
        ("pid=-1, name=x, Ch 00000008", None, None),
        ("pid=12x, name=x, Ch 00000008", None, None),
        ("Ch 00000008, pid=1234, name=python3", None, None),
        ("Channel name=python3", None, None),
        # 15 bytes of anything
        ("pid=1, name=tokio::runtime., Ch 00000008", 1, "tokio::runtime."),
        ("pid=1, name=Web Content (2), Ch 00000008", 1, "Web Content (2)"),
        ("pid=1, name=(sd-pam), Ch 00000008", 1, "(sd-pam)"),
        ("pid=1, name=a,b,c, Ch 00000008", 1, "a,b,c"),
        ("pid=1, name=a, b, c, Ch 00000008", 1, "a, b, c"),
        ("pid=1, name=a, b: (c) 123456, Ch 00000008", 1, "a, b: (c) 123456"[:1]),  # 16 bytes: no name of the kernel's
        ("pid=1, name=a, b: (c) 12345, Ch 00000008", 1, "a, b: (c) 12345"),
        ("pid=1, name=NVRM: Xid: 31,, Ch 00000008", 1, "NVRM: Xid: 31,"),
        ("pid=1, name=Xid (PCI:0): 5, Ch 00000008", 1, "Xid (PCI:0): 5"),
        ("pid=1, name=SXid (P): 5, x, Ch 00000008", 1, "SXid (P): 5, x"),
        ("pid=1, name=pid=2, name=3, Ch 00000008", 1, "pid=2, name=3"),
        ("pid=1, name=longer-than-a-comm, Ch 00000008", 1, "longer-than-a-comm"),
        ("pid=1, name=longer-than-a-comm-with-no-message", 1, "longer-than-a-comm-with-no-message"),
        ("pid=1, name=训练任务, Ch 00000008", 1, "训练任务"),
        ("pid=1, name=训练任务, , Ch 00000008", 1, "训练任务, "),
        ("pid=1, name=训练, 任务, 练, Ch 00000008", 1, "训练"),  # 19 bytes: the first ", " it is
        # where no opening is known, the first ", " ends the name
        ("pid=1, name=sh, something nobody knows, and more", 1, "sh"),
        # a message may have a second ", " within reach
        ("pid=1, name=sh, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS", 1, "sh"),
        ("pid=1, name=sh, GPU, more", 1, "sh"),
        # the kernel's escapes
        (r"pid=1, name=\xe8\xae\xad\xe7\xbb\x83, Ch 00000008", 1, "训练"),
        (r"pid=1, name=a\x5cb, Ch 00000008", 1, "a\\b"),
        (r"pid=1, name=\xe8\xae, Ch 00000008", 1, r"\xe8\xae"),
        (r"pid=1, name=a\x00b\x1b, Ch 00000008", 1, r"a\x00b\x1b"),
        (r"pid=1, name=\xzz, Ch 00000008", 1, r"\xzz"),
        # fifteen bytes as the kernel counts them, each printed as four
        (r"pid=1, name=, " + r"\xc3\xa4" * 6 + "x, Ch 00000008", 1, ", " + "ä" * 6 + "x"),
        (r"pid=1, name=, " + r"\xc3\xa4" * 6 + "xy, Ch 00000008", 1, None),
    ],
)
def test_the_process_part(text, pid, process):
    fault_line = seen(f"NVRM: Xid (PCI:0000:4e:00): 31, {text}")
    assert (fault_line.kind, fault_line.code, fault_line.pid, fault_line.process) == ("xid", 31, pid, process)
    assert fault_line.text == text.rstrip()


@pytest.mark.parametrize(
    "message",
    [
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_1a000000",
        "Channel ID 00000008 intr 00040000",
        "GPU has fallen off the bus.",
        "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address",
        "MMU Fault: x",
        "Row Remapper: New row (0x0000000000abcdef) marked for remapping, reset gpu to activate.",
        "Dynamic Page Retirement: New page retired",
        "An uncorrectable double bit error (DBE) has been detected",
        "DBE (double bit error)",
        "Contained: SM (0x1). RST: No, D-RST: No",
        "Uncontained: FBHUB. RST: Yes, D-RST: No",
        "Reset Channel Verif Error on 08",
        "Preemptive Removal on 08",
        "NVLink: fatal error detected on link 0(0x10000, 0x0)",
        "Timeout after 6s of waiting for RPC response from GPU0 GSP!",
        "GSP task timeout",
        "Class Error: ChId 0008",
        "Unrecoverable ECC error",
        "High single-bit ECC error rate",
        "Error while updating",
        "NETIR_LINK_EVT Fatal XC0 i0 Link 05 (0x004505c6 0x00000000)",
        "0000000f 00000000 00000000",
        "0xdead",
    ],
)
def test_a_known_message_ends_a_process_name_with_commas(message):
    fault_line = seen(f"NVRM: Xid (PCI:0000:4e:00): 31, pid=1, name=a, b c, {message}")
    assert fault_line.process == "a, b c"


# ------------------------------------------------------------------------------------------ SXid lines


@pytest.mark.parametrize(
    ("text", "fatal", "link"),
    [
        ("Fatal, Link 31 sourcetrack timeout error (First)", True, 31),
        ("Non-fatal, Link 05 LTSSM Fault Up", False, 5),
        ("Correctable, Link 00 x", False, 0),
        ("Fatal, link-less text", True, None),
        ("Non-fatal, Link x", False, None),
        ("Non-fatal, Link 12345 x", False, None),
        ("Fatal", True, None),
        ("Fatal,", True, None),
        ("FATAL, Link 7 x", True, 7),
        ("Severity 1 Engine instance 46 Sub-engine instance 00", None, None),
        ("Data {0x00140004, 0x00100000, 0x00000000}", None, None),
        ("Fatality, Link 3 x", None, None),
        ("not Fatal, Link 3 x", None, None),
        ("Link 3 Fatal, x", None, None),
    ],
)
def test_the_severity_and_the_link_of_a_switch_fault(text, fatal, link):
    fault_line = seen(f"nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 24007, {text}")
    assert (fault_line.kind, fault_line.code, fault_line.pci) == ("sxid", 24007, "0000:a9:00.0")
    assert (fault_line.fatal, fault_line.link, fault_line.text) == (fatal, link, text)


def test_a_switch_fault_with_leading_zeros_and_without_an_address():
    assert seen("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 00042, Fatal, Link 1 x").code == 42
    assert seen("nvidia-nvswitch0: SXid: 12028, Fatal, Link 1 x").pci is None


def test_an_xid_line_has_no_severity_and_a_switch_line_no_process():
    assert seen("NVRM: Xid (PCI:0000:4e:00): 149, Fatal, Link 5").fatal is None
    assert seen("NVRM: Xid (PCI:0000:4e:00): 149, Fatal, Link 5").link is None
    fault_line = seen("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 1, pid=1, name=x, caused by previous Xid 3")
    assert (fault_line.pid, fault_line.process, fault_line.cause) == (None, None, None)


def test_three_lines_of_one_switch_fault_share_their_identity():
    lines = [
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 24007, Fatal, Link 31 sourcetrack timeout error (First)",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 24007, Severity 1 Engine instance 31 Sub-engine instance 00",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 24007, Data {0x00140004, 0x00100000}",
    ]
    fault_lines = list(xid.parse_lines(lines))
    assert {(one.kind, one.code, one.pci) for one in fault_lines} == {("sxid", 24007, "0000:a9:00.0")}
    assert [one.fatal for one in fault_lines] == [True, None, None]


def test_the_leftmost_family_wins():
    nested = seen("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 24007, Fatal, NVRM: Xid (PCI:0000:4e:00): 79, x")
    assert (nested.kind, nested.code) == ("sxid", 24007)
    nested = seen("NVRM: Xid (PCI:0000:4e:00): 13, pid=1, name=SXid: 12, Ch 00000008")
    assert (nested.kind, nested.code, nested.process) == ("xid", 13, "SXid: 12")
    nested = seen("NVRM: Xid (PCI:0000:4e:00): 13, GPU 0000:5e:00.0 has fallen off the bus")
    assert (nested.code, nested.pci) == (13, "0000:4e:00")


# ---------------------------------------------------------------------------------------- the lost GPU


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("[1.0] NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", "0000:4e:00.0"),
        ("NVRM: GPU at PCI:0000:4E:00 has fallen off the bus.", "0000:4e:00"),
        (
            "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:13c2) installed in this system has fallen off the bus and",
            "0000:01:00.0",
        ),
        ("NVRM: fallen off the bus and is not responding to commands.", None),
        ("NVRM: GPU0 (10de:2330): GPU has fallen off the bus.", None),
        ("NVRM: GPU 00010000:4e:00.0: fallen off the bus", "00010000:4e:00.0"),
        ("NVRM: an Xid: GPU 0000:4e:00.0 has fallen off the bus", "0000:4e:00.0"),
    ],
)
def test_a_lost_gpu_without_a_code(line, pci):
    fault_line = seen(line)
    assert (fault_line.kind, fault_line.code, fault_line.pci) == ("xid", 79, pci)
    assert line.endswith(fault_line.text)
    assert fault_line.text
    assert fault_line.line == line
    assert (fault_line.pid, fault_line.process, fault_line.cause) == (None, None, None)


THREE_LINES = [
    "[9.1] NVRM: The NVIDIA GPU 0000:0A:00.0",
    "[9.1] NVRM: (PCI ID: 10de:13c2) installed in this system has",
    "[9.1] NVRM: fallen off the bus and is not responding to commands.",
]


def test_the_address_of_a_lost_gpu_is_taken_from_the_lines_above():
    for fault_lines in (xid.parse_lines(THREE_LINES), xid.scan("\n".join(THREE_LINES).encode())):
        assert [(one.code, one.pci, one.line) for one in fault_lines] == [(79, "0000:0a:00.0", THREE_LINES[2])]


def test_the_address_is_taken_only_from_adjacent_lines():
    apart = [THREE_LINES[0], "other", *THREE_LINES[1:]]
    unaddressed = [THREE_LINES[0], "NVRM: Xid: 79, GPU has fallen off the bus."]
    addressed = [THREE_LINES[0], "NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus."]
    for lines, pci in ((apart, None), (unaddressed, None), (addressed, "0000:4e:00.0")):
        for fault_lines in (xid.parse_lines(lines), xid.scan("\n".join(lines).encode())):
            assert [one.pci for one in fault_lines] == [pci]


# --------------------------------------------------------------------------------------------- details


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Ch 00000008 caused by previous Xid 149", 149),
        ("caused by previous Xid 31 caused by previous Xid 48.", 48),
        ("caused by previous Xid 0", 0),
        ("caused by previous Xid 99999999999", None),
        ("caused by previous Xid", None),
        ("caused by previous Xid ７", None),
        ("", None),
    ],
)
def test_the_cause(message, cause):
    assert xid.cause_of(message) == cause
    assert seen(f"NVRM: Xid (PCI:0000:4e:00): 45, {message}").cause == cause


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("GPU recovery action changed from 0x0 (None) to 0x1A (New)", 26),
        ("GPU recovery action changed from 0x0 (None) to 0x12345 (New)", None),
        ("GPU recovery action changed", None),
        ("to 0x0 (None)", None),
    ],
)
def test_the_recovery_action(message, action):
    assert xid.recovery_action(message) == action
    assert xid.is_all_clear(154, message) == (action == 0)
    assert not xid.is_all_clear(79, message)
    assert not xid.is_all_clear("word", message)


@pytest.mark.parametrize(
    ("pci", "slot"),
    [
        ("0000:4e:00", "0000:4e:00"),
        ("0000:4e:00.0", "0000:4e:00"),
        ("00000000:4E:00.0", "0000:4e:00"),
        ("00010000:4e:00.0", "10000:4e:00"),
        ("0008:01:00", "0008:01:00"),
        ("4e:00.0", "0000:4e:00"),
        ("", None),
        (None, None),
        ("GPU-1", None),
        ("0000:4e:00.9", None),
    ],
)
def test_the_slot_of_an_address(pci, slot):
    assert xid.slot(pci) == slot


# ------------------------------------------------------------------------------------------ whole logs

LOG = f"""[1.0] Linux version 6.8
[2.0] {LOST}
[2.0] NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.
[3.0] an ordinary line
[4.0] {SWITCH}
[5.0] NVRM: Xid (0000:03:00): 62, Channel 00000001"""


def test_the_faults_of_a_log_come_in_order():
    expected = [("xid", 79), ("xid", 79), ("sxid", 28006), ("xid", 62)]
    assert [(one.kind, one.code) for one in xid.parse_lines(LOG.splitlines())] == expected
    assert list(xid.scan(LOG.encode())) == list(xid.parse_lines(LOG.splitlines()))
    assert list(xid.scan(LOG.replace("\n", "\r\n").encode())) == list(xid.parse_lines(LOG.splitlines()))


def test_a_mapped_file_is_scanned_like_bytes():
    with tempfile.TemporaryFile() as file:
        file.write(LOG.encode())
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert list(xid.scan(mapped)) == list(xid.scan(LOG.encode()))


def test_a_followed_log_is_parsed_lazily():
    def follow():
        yield LOST
        raise AssertionError("the second line was asked for before the first was handed out")

    assert next(xid.parse_lines(follow())).code == 79


def test_bytes_that_are_not_utf_8_are_escaped():
    (fault_line,) = xid.scan(b"\xff NVRM: Xid (PCI:0000:4e:00): 13, pid=1, name=a\xe8b, Ch 00000008\n")
    assert fault_line.line == r"\xff NVRM: Xid (PCI:0000:4e:00): 13, pid=1, name=a\xe8b, Ch 00000008"
    assert fault_line.process == r"a\xe8b"


def test_a_line_is_returned_whole_without_its_line_end():
    for line in ("NVRM: Xid (0000:03:00): 62, X", "nvidia-nvswitch0: SXid (0000:03:00.0): 62, X", THREE_LINES[2] + "X"):
        assert seen(line + "\r\n").line == line
        assert [one.line for one in xid.scan(f"\n{line}\n".encode())] == [line]


def test_an_unpaired_surrogate_counts_as_a_byte_of_a_name():
    fault_line = seen("NVRM: Xid (PCI:0000:4e:00): 31, pid=1, name=, 123456789012\ud800, Ch 00000008")
    assert fault_line.process == ", 123456789012\ud800"


def test_lines_of_a_file_without_line_ends_are_bounded():
    data = b"x" * 10_000 + LOST.encode() + b"y" * 10_000 + LOST.encode() + b"z" * 10_000
    fault_lines = list(xid.scan(data))
    assert [one.code for one in fault_lines] == [79, 79]
    assert all(len(one.line) <= 4096 + 8192 for one in fault_lines)
    assert fault_lines[0].line.startswith("x" * 4096 + "NVRM")
    assert fault_lines[0].line.endswith("y")


# The kernel log of an H200 (driver 580.159.04, Linux 6.18): three CUDA programs of a user wrote to an address without
# memory, wrote to one that is no multiple of four, and stopped by a trap. The GPU was healthy before and after.
H200_LOG = """\
[    0.629758] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)
[    1.341923] NVRM: gpuClearFbhubPoisonIntrForBug2924523_GA100: FBHUB Interrupt detected. Clearing it.
[    3.649241] NVRM: Persistence mode is deprecated and will be removed in a future release.
[   54.289573] NVRM: GPU at PCI:0000:00:06: GPU-8cfb8e0d-a7c3-bd90-8f50-904c8de49f0c
[   54.289584] NVRM: GPU Board Serial Number: 1650000000001
[   54.289585] NVRM: Xid (PCI:0000:00:06): 31, pid=651, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: \
ENGINE GRAPHICS GPC1 GPCCLIENT_T1_6 faulted @ 0x7f00_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE
[   61.501879] NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address
[   61.503330] NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x518730=0x500000f 0x518734=0x0
[   61.504932] NVRM: Xid (PCI:0000:00:06): 13, pid=676, name=python3, Graphics Exception: channel 0x0000000a, \
Class 0000cbc0
[   68.921456] NVRM: Xid (PCI:0000:00:06): 43, pid=716, name=python3, channel 0x0000000a
"""


def test_the_log_of_a_real_gpu():
    fault_lines = list(xid.scan(H200_LOG.encode()))
    assert [(one.code, one.pid) for one in fault_lines] == [(31, 651), (13, None), (13, None), (13, 676), (43, 716)]
    assert {one.pci for one in fault_lines} == {"0000:00:06"}
    assert {one.process for one in fault_lines} == {"python3", None}


def test_an_empty_log():
    assert list(xid.scan(b"")) == []
    assert list(xid.parse_lines([])) == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (" * 80_000,
        "NVRM: Xid: " + "1" * 800_000,
        "NVRM: Xid (PCI:0000:4e:00): 13, name=" + ", " * 400_000,
        "NVRM: Xid (PCI:0000:4e:00): 13, name=" + "\\xe4" * 200_000,
        "NVRM: Xid (PCI:" + "0" * 800_000,
        "SXid (" * 80_000,
        "NVRM: " * 120_000 + "fallen off the bus",
        "NVRM: Xid (PCI:0000:4e:00): 45, " + "caused by previous Xid " * 40_000,
        "NVRM: Xid (PCI:0000:4e:00): 154, " + "recovery action changed from " * 40_000,
    ],
)
def test_parsing_time_is_bounded(line):
    """Each of them takes hours where a pattern backtracks, and milliseconds where none does.

    The steps of a pattern cannot be counted. The lines are so long that a quadratic pattern takes minutes, too."""
    started = time.process_time()
    xid.parse_line(line)
    xid.recovery_action(line)
    list(xid.scan(line.encode()))
    assert time.process_time() - started < 60


# ------------------------------------------------------------------------------------------ properties

WORDS = [
    *(
        "NVRM: Xid",
        "SXid",
        " (PCI:0000:4e:00)",
        " (",
        ")",
        ": ",
        "79",
        ", ",
        "pid=",
        "name=",
        "<unknown>",
        "'",
        "\\x",
        "e4",
    ),
    *("fallen off the bus", "NVRM: ", "Fatal", "Link 3", "caused by previous Xid ", "\n", "\r", "\0", "７", " "),
]


@given(st.text() | st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_is_parsed_without_errors(text):
    fault_line = xid.parse_line(text)
    if fault_line is not None:
        assert 0 <= fault_line.code <= xid.MAX_CODE
        assert fault_line.text in text
        assert fault_line.line in text
    xid.recovery_action(text)
    xid.slot(text)


@given(
    st.binary() | st.lists(st.sampled_from(WORDS).map(str.encode) | st.binary(max_size=3), max_size=30).map(b"".join)
)
def test_any_bytes_are_scanned_without_errors(data):
    for fault_line in xid.scan(data):
        assert fault_line.kind in ("xid", "sxid")


@given(st.lists(st.sampled_from([*LOG.splitlines(), *THREE_LINES, "ordinary", ""]), max_size=12))
def test_scanning_and_parsing_line_by_line_agree(lines):
    assert list(xid.scan("\n".join(lines).encode())) == list(xid.parse_lines(lines))


HEX = st.integers(0, 255).map("{:02x}".format)
ADDRESSES = st.builds("{:04x}:{}:{}{}".format, st.integers(0, 0xFFFF), HEX, HEX, st.sampled_from(["", ".0"]))
MESSAGES = st.sampled_from(["Ch 00000008", "GPU has fallen off the bus.", "Graphics Exception: x", "MMU Fault: y, z"])
# A name may hold anything but what reads as the beginning of a message, or as an escape.
NAMES = (
    st.text(alphabet=string.ascii_lowercase + " ,.:()[]{}/-_#ä训", min_size=1)
    .filter(lambda name: len(name.encode()) <= 15)
    .filter(lambda name: not xid._MESSAGE_START.search(name))
)


@st.composite
def _fault_lines(draw):
    pid = draw(st.none() | st.integers(0, 2**31 - 1))
    process = draw(st.none() | NAMES)
    cause = draw(st.none() | st.integers(0, xid.MAX_CODE))
    parts = [f"pid={'<unknown>' if pid is None else pid}", f"name={'<unknown>' if process is None else process}"]
    text = ", ".join([*parts, draw(MESSAGES)]) + (f" caused by previous Xid {cause}" if cause is not None else "")
    pci, mig = draw(ADDRESSES), draw(st.none() | st.just("GPU-I:05 GPU-CI:02"))
    code = draw(st.integers(0, xid.MAX_CODE))
    line = f"[1.000] NVRM: Xid (PCI:{pci}{f' {mig}' if mig else ''}): {code}, {text}"
    return FaultLine(
        kind="xid", code=code, pci=pci, pid=pid, process=process, mig=mig, cause=cause, text=text, line=line
    )


@given(_fault_lines())
def test_generated_driver_lines_are_parsed_back(fault_line):
    assert xid.parse_line(fault_line.line) == fault_line
    assert list(xid.scan(f"before\n{fault_line.line}\nafter".encode())) == [fault_line]


@pytest.mark.parametrize(
    ("line", "process", "text"),
    [
        ("NVRM: Xid (PCI:0000:4e:00): 31, pid=77,  name=python3,  Ch 00000008", "python3", "Ch 00000008"),
        ("NVRM: Xid (PCI:0000:4e:00):   31,   pid=77,   name=a, b,   MMU Fault: x", "a, b", "MMU Fault: x"),
        ("NVRM: Xid  (PCI:0000:4e:00): 31, pid=77,  name=python3", "python3", "python3"),
        ("NVRM: Xid (PCI:0000:4e:00): 31, pid=77,  name=a,  b", "a", "b"),
    ],
)
def test_runs_of_spaces_between_fields_keep_pid_and_process(line: str, process: str, text: str) -> None:
    found = xid.parse_line(line)
    assert found is not None
    assert (found.code, found.pci, found.pid, found.process) == (31, "0000:4e:00", 77, process)
    assert found.text.endswith(text)


@pytest.mark.parametrize(
    ("words", "fatal", "link"),
    [
        ("Non-fatal error, Link 3 unit", False, 3),
        ("Fatal error, Link  03 unit", True, 3),
        ("Non-fatal,  Link 3 unit", False, 3),
        ("Fatal error", True, None),
        ("Correctable error, x", False, None),
        ("Fatal errors, Link 3", None, None),
    ],
)
def test_severity_words_may_say_error(words: str, fatal: bool | None, link: int | None) -> None:
    found = xid.parse_line(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, {words}")
    assert found is not None
    assert (found.fatal, found.link) == (fatal, link)
