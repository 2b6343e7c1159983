"""``python -m agents scan``."""

import json
import subprocess
import sys

LOG = """\
[    1.0] usb 1-1: new device
[   12.3] NVRM: Xid (PCI:0000:4E:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[   13.0] NVRM: Xid (0000:03:00): 62, Channel 00000001
[   14.0] NVRM: Xid (PCI:0000:5d:00 GPU-I:05 GPU-CI:02): 45, pid=4242, name=my proc, Ch 8, caused by previous Xid 149
[   15.0] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 12 sourcetrack timeout
[   15.5] NVRM: Xid (PCI:0000:4e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)
[   16.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module
"""


def scan(*arguments, **how):
    return subprocess.run([sys.executable, "-m", "agents", "scan", *arguments], capture_output=True, check=False, **how)


def found(ended):
    assert (ended.returncode, ended.stderr) == (0, b"")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_saved_log(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(LOG)
    faults = found(scan(str(path)))
    keys = ("kind", "code", "pci", "pid", "process", "fatal")
    assert [tuple(fault[key] for key in keys) for fault in faults] == [
        ("xid", 79, "0000:4e:00", None, None, None),
        ("xid", 62, "0000:03:00", None, None, None),
        ("xid", 45, "0000:5d:00", 4242, "my proc", None),
        ("sxid", 24007, "0000:c1:00.0", None, None, True),
    ]
    assert [fault["line"] for fault in faults] == LOG.splitlines()[1:5]
    assert faults[2]["cause"] == 149


def test_machine_checks_in_their_place_among_the_xids(tmp_path):
    path = tmp_path / "kern.log"
    uncorrected = "[   14.5] mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400"
    lines = LOG.splitlines()
    lines[4:4] = [uncorrected, uncorrected.replace("be0", "9c0"), "[   14.6] mce: [Hardware Error]: TSC 0 ADDR 1ffff"]
    path.write_text("\n".join(lines))
    faults = found(scan(str(path)))
    assert [fault["code"] for fault in faults] == [79, 62, 45, "mce", 24007]
    assert {key: value for key, value in faults[3].items() if value is not None} == {
        "kind": "other",
        "code": "mce",
        "line": uncorrected,
    }
    assert found(scan("-", input=path.read_bytes())) == faults


def test_lines_of_the_driver_without_an_xid(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text("[    1.0] NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0xffff:2477)\n" + LOG)
    faults = found(scan(str(path)))
    assert [(fault["code"], fault["pci"]) for fault in faults[:2]] == [
        ("gpu_init_failed", "0000:5d:00.0"),
        (79, "0000:4e:00"),
    ]


def test_standard_input_gives_the_same(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(LOG)
    assert found(scan("-", input=LOG.encode())) == found(scan(str(path)))


def test_a_log_larger_than_a_block_and_a_line_larger_than_one():
    noise = b"x" * 99 + b"\n"
    data = LOG.encode() + noise * 60_000 + b"y" * 10_000_000 + b"\n" + LOG.encode()
    assert [fault["code"] for fault in found(scan("-", input=data))] == [79, 62, 45, 24007] * 2


def test_a_log_without_faults_prints_no_rows(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    assert found(scan(str(path))) == found(scan("-", input=b"\xff\x00 noise")) == []


def test_a_log_that_is_not_there():
    ended = scan("/nonexistent")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr == b"scan: /nonexistent: No such file or directory\n"


def test_a_reader_that_has_seen_enough(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(LOG * 20_000)
    ended = subprocess.run(
        f"{sys.executable} -m agents scan {path} | head -n 1", shell=True, capture_output=True, check=False
    )
    assert (json.loads(ended.stdout)["code"], ended.stderr) == (79, b"")
