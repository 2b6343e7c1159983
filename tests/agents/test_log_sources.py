"""Following logs: real files, a real pipe, a ring."""

import errno
import json
import os
import pathlib
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from agents.probes.log import kmsg, sources
from agents.probes.log.kmsg import MAX_LINE_BYTES, Record
from tests.waiting import HANG_SECONDS

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def read(source, boot_id="boot-1"):
    records, lost, more = [], 0, True
    position = {}
    while more:
        chunk = source.read(boot_id=boot_id, now=NOW)
        records += chunk.records
        lost, more, position = lost + chunk.lost, chunk.more, chunk.position
    return [record.text for record in records], lost, json.loads(json.dumps(position))


def texts(source, boot_id="boot-1"):
    return read(source, boot_id)[0]


def reported(source):
    """The lines, and what it says of those that may be missing."""
    lines, gaps, more = [], [], True
    while more:
        chunk = source.read(boot_id="boot-1", now=NOW)
        lines += [record.text for record in chunk.records]
        gaps, more = gaps + [chunk.gap] * bool(chunk.gap), chunk.more
    return lines, gaps


def rotate(path, *names):
    """As logrotate does: the last of ``names`` goes, each of the others becomes the next, the log the first."""
    for older, newer in zip(reversed(names), [*reversed(names[:-1]), path.name], strict=True):
        if path.with_name(newer).exists():
            path.with_name(newer).rename(path.with_name(older))


def at(path, text, seconds):
    """A file that was written to last so many seconds after some moment."""
    path.write_text(text)
    os.utime(path, (1_790_000_000 + seconds,) * 2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kern.log"


@pytest.fixture
def file(path):
    source = sources.LogFile(path)
    yield source
    source.close()


def resumed(path, position):
    source = sources.LogFile(path)
    source.resume(position)
    return source


def test_a_file_is_read_from_its_start_and_then_followed(path, file):
    path.write_text("a\nb\n")
    assert texts(file) == ["a", "b"]
    assert texts(file) == []
    with path.open("a") as log:
        log.write("c\nhalf")
    assert texts(file) == ["c"]
    with path.open("a") as log:
        log.write(" and half\n")
    assert texts(file) == ["half and half"]


def test_a_file_that_is_not_there_yet(path, file):
    with pytest.raises(FileNotFoundError):
        file.read(boot_id="b", now=NOW)
    path.write_text("a\n")
    assert texts(file) == ["a"]


def test_a_rotation_loses_no_line(path, file):
    path.write_text("a\n")
    assert texts(file) == ["a"]
    with path.open("a") as log:
        log.write("b\nlast, without an end")
    path.rename(path.with_name("kern.log.1"))
    path.write_text("c\n")
    assert texts(file) == ["b", "last, without an end", "c"]


def test_three_rotations_between_two_looks_lose_no_line(path, file):
    names = ("kern.log.1", "kern.log.2", "kern.log.3")
    path.write_text("a\n")
    assert texts(file) == ["a"]
    rotate(path, *names)
    path.write_text("middle\n")
    rotate(path, *names)
    path.write_text("second\nhalf")
    rotate(path, *names)
    path.write_text("c\n")
    assert reported(file) == (["middle", "second", "half", "c"], [])


def test_files_that_are_named_by_the_day_come_in_their_order(path, file):
    at(path, "a\n", 0)
    texts(file)
    path.rename(path.with_name("kern.log-20261120"))
    at(path.with_name("kern.log-20261122"), "later\n", 2)
    at(path.with_name("kern.log-20261121"), "middle\n", 1)
    at(path.with_name("kern.log-20261119"), "from before, copied just now\n", 9)
    at(path.with_name("kern.log.bak"), "nobody's\n", 9)
    at(path, "c\n", 3)
    assert reported(file) == (["middle", "later", "c"], [])


def test_a_file_that_was_compressed_before_it_was_read_is_reported(path, file):
    at(path, "a\n", 0)
    texts(file)
    path.rename(path.with_name("kern.log.3"))
    at(path.with_name("kern.log.2.gz"), "packed", 1)
    at(path.with_name("kern.log.1"), "later\n", 2)
    path.write_text("c\n")
    lines, (gap,) = reported(file)
    assert (lines, gap) == (["later", "c"], "kern.log.2.gz: compressed before it was read to its end")


def test_a_file_that_was_read_before_its_compression_is_no_gap(path, file):
    at(path, "a\n", 0)
    _, _, position = read(file)
    path.unlink()
    at(path.with_name("kern.log.1.gz"), "packed", 0)
    path.write_text("c\n")
    again = resumed(path, position)
    assert reported(again) == (["c"], [])
    assert reported(file) == (["c"], [])
    again.close()


def test_a_missing_file_is_reported_and_the_following_files_are_read(path, file):
    at(path, "a\n", 0)
    _, _, position = read(file)
    path.unlink()
    at(path.with_name("kern.log.1"), "middle\n", 1)
    at(path, "c\n", 2)
    again = resumed(path, position)
    for source in (file, again):
        lines, (gap,) = reported(source)
        assert (lines, "is gone" in gap) == (["middle", "c"], True)
    again.close()


def test_resuming_a_file_that_was_rotated_twice_meanwhile(path, file):
    path.write_text("a\n")
    _, _, position = read(file)
    with path.open("a") as log:
        log.write("b\n")
    rotate(path, "kern.log.1", "kern.log.2")
    path.write_text("middle\n")
    rotate(path, "kern.log.1", "kern.log.2")
    path.write_text("c\n")
    again = resumed(path, position)
    assert reported(again) == (["b", "middle", "c"], [])
    again.close()


def test_a_copy_made_before_the_log_was_emptied_is_read_to_its_end(path, file):
    """logrotate's copytruncate."""
    path.write_text("a\n")
    _, _, position = read(file)
    path.with_name("kern.log.1").write_text("a\nb\n")
    path.write_text("")
    path.write_text("c, and more than there was\n")
    again = resumed(path, position)
    for source in (file, again):
        assert reported(source) == (["b", "c, and more than there was"], [])
    again.close()


def test_a_log_that_was_emptied_may_have_held_more(path, file):
    path.write_text("a\nb\n")
    texts(file)
    path.write_text("c\n")
    assert reported(file) == (["c"], ["the log was truncated, perhaps before it was read to its end"])


def test_a_rotation_in_the_midst_of_a_look_is_looked_at_again(path, file, monkeypatch):
    path.write_text("a\n")
    texts(file)
    rotate(path, "kern.log.1", "kern.log.2")
    path.write_text("middle\n")
    opened = os.open

    def rotating(*asked):
        monkeypatch.setattr(os, "open", opened)
        rotate(path, "kern.log.1", "kern.log.2")
        path.write_text("c\n")
        return opened(*asked)

    monkeypatch.setattr(os, "open", rotating)
    assert reported(file) == ([], [])
    assert reported(file) == (["middle", "c"], [])


def test_lines_written_to_a_renamed_file_are_read_until_its_writer_moves_on(path, file):
    path.write_text("a\n")
    assert texts(file) == ["a"]
    with path.open("a") as log:
        path.rename(path.with_name("kern.log.1"))
        path.touch()
        assert texts(file) == []
        log.write("b\n")
    assert texts(file) == ["b"]
    path.write_text("c\n")
    assert reported(file) == (["c"], [])


def test_truncation_starts_over_even_when_the_file_has_grown_again(path, file):
    path.write_text("a\nb\nc\n")
    assert texts(file) == ["a", "b", "c"]
    path.write_text("d\n")
    assert texts(file) == ["d"]
    path.write_text("e\nf\ng\nh\n")
    assert texts(file) == ["e", "f", "g", "h"]


def test_a_change_of_the_file_wakes_a_waiting_reader(path, file):
    path.write_text("a\n")
    texts(file)
    writer = threading.Timer(0.1, path.write_text, ("a\nb\n",))
    writer.start()
    started = time.monotonic()
    file.wait(4 * HANG_SECONDS)
    assert time.monotonic() - started < HANG_SECONDS
    writer.join()
    assert texts(file) == ["b"]
    started = time.monotonic()
    file.wait(0.3)
    assert time.monotonic() - started > 0.25


def test_a_file_that_cannot_be_read_is_no_reason_to_hurry(path, file):
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        file.read(boot_id="b", now=NOW)
    started = time.monotonic()
    file.wait(0.3)
    assert time.monotonic() - started > 0.25


def test_resuming_a_file(path, file):
    path.write_text("a\nb\nhal")
    _, _, position = read(file)
    with path.open("a") as log:
        log.write("f\nc\n")
    assert texts(resumed(path, position)) == ["half", "c"]


def test_resuming_a_file_that_was_rotated_meanwhile(path, file):
    path.write_text("a\n")
    _, _, position = read(file)
    with path.open("a") as log:
        log.write("b\n")
    path.rename(path.with_name("kern.log.1"))
    path.write_text("c\n")
    assert texts(resumed(path, position)) == ["b", "c"]


def test_another_file_with_the_same_inode_number_is_read_from_its_start(path, file):
    path.write_text("a\nb\n")
    _, _, position = read(file)
    path.write_text("other\nlines\n")  # the same inode, other content
    assert texts(resumed(path, position)) == ["other", "lines"]


def test_invalid_positions_start_from_the_beginning(path):
    path.write_text("a\n")
    assert texts(resumed(path, {"inode": "x"})) == ["a"]
    assert texts(resumed(path, {"inode": 1, "offset": 10**9, "head": [0, 0]})) == ["a"]


BOOT = "Nov 21 08:00:00 gpu-1 kernel: [    0.000000] Linux version 6.8.0-48-generic (buildd@lcy02)"


@pytest.mark.parametrize(
    "first",
    [
        BOOT,
        BOOT.replace("[    0.000000] ", ""),
        BOOT.replace("000] ", "000][    T0] "),
        "[    0.000000] Linux version 6.8",
        "5,0,0,-;Linux version 6.8",
    ],
)
def test_lines_of_an_earlier_boot_are_not_read_in_the_next(path, file, first):
    path.write_text("read\n")
    _, _, position = read(file)
    with path.open("a") as log:
        log.write(f"NVRM: Xid (PCI:0000:4e:00): 79\n{first}\nsaid: Linux version 1\nnew\n")
    text = first.partition(";")[2] or first
    assert texts(resumed(path, position), "boot-2") == [text, "said: Linux version 1", "new"]
    assert texts(resumed(path, position))[0] == "NVRM: Xid (PCI:0000:4e:00): 79"  # the same boot


def test_files_of_an_earlier_boot_are_not_read_in_the_next(path, file):
    path.write_text("read\n")
    _, _, position = read(file)
    with path.open("a") as log:
        log.write("NVRM: Xid (PCI:0000:4e:00): 79\n")
    rotate(path, "kern.log.1")
    path.write_text(f"NVRM: Xid (PCI:0000:4e:00): 62\n{BOOT}\nnew\n")
    assert texts(resumed(path, position), "boot-2") == [BOOT, "new"]


@pytest.mark.parametrize("end", ["\n", " half"])
def test_a_boot_without_a_boot_line_begins_with_the_next_line(path, file, end):
    path.write_text(f"{BOOT}\nread\n")  # the boot that was read, not this one
    _, _, position = read(file)
    with path.open("a") as log:
        log.write(f"NVRM: Xid (PCI:0000:4e:00): 79{end}")
    source = resumed(path, position)
    chunk = source.read(boot_id="boot-2", now=NOW)
    assert (chunk.records, chunk.gap) == (
        (),
        "the machine has rebooted, and no line of the log shows where: its earlier content was skipped",
    )
    with path.open("a") as log:
        log.write("rest\nnew\n" if end != "\n" else "new\n")
    (_, _, later) = found = read(source, "boot-2")
    assert (found[0], later["boot_id"]) == (["new"], "boot-2")
    assert reported(resumed(path, {**later, "boot_id": "boot-1"})) == ([], [])


def test_a_log_that_was_never_read_is_read_from_the_last_boot_on(path, file):
    noise = "x" * 99 + "\n"
    path.write_text(f"{BOOT}\nold\n" + noise * 30_000 + f"old\n{BOOT}\n" + noise * 30_000)
    assert texts(file) == [BOOT, *[noise.strip()] * 30_000]


@pytest.mark.parametrize("before", range((1 << 20) - 90, (1 << 20) + 1, 9))
def test_a_boot_line_is_found_anywhere_in_a_block(path, before):
    path.write_text(f"{'x' * 99}\n{BOOT}\n{'y' * (before - 1)}\n")
    with path.open() as log:
        assert sources.boot.last_boot_offset(log.fileno()) == 100


def test_a_line_without_end_is_bounded_and_the_next_line_is_read(path, file):
    path.write_bytes(b"start" + b"x" * 10_000_000 + b" NVRM: Xid (PCI:0000:4e:00): 79, tail\nnext\n")
    found = texts(file)
    assert [text[:5] for text in found] == ["start", "next"]
    assert len(found[0]) <= MAX_LINE_BYTES


def test_the_rest_of_a_long_line_is_no_line_after_a_restart_either(path, file):
    path.write_bytes(b"y" * (3 << 20))
    _, _, position = read(file)
    with path.open("ab") as log:
        log.write(b"tail\nnext\n")
    assert texts(resumed(path, position)) == ["next"]


def test_binary_noise(path, file):
    path.write_bytes(b"\x00\xff\xfe\nNVRM: \xe9\n\n")
    assert texts(file) == ["\x00\\xff\\xfe", "NVRM: \\xe9", ""]


def test_a_saved_device_log_keeps_facility_and_sequence(path, file):
    path.write_text("12,5,77,-;NVRM: drill\n3,6,78,-;NVRM: kernel\n")
    assert file.read(boot_id="b", now=NOW).records == (
        Record(text="NVRM: drill", at=NOW, facility=1, sequence=5),
        Record(text="NVRM: kernel", at=NOW, facility=0, sequence=6),
    )


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        ("[  899.000000] ", [79]),
        ("[  902.500000] ", []),
        ("[1235733.431527] ", []),
        ("Nov 21 08:00:00 gpu-1 kernel: [1235733.431527] ", []),
        ("Nov 21 08:00:00 gpu-1 kernel: ", [79]),
        (f"{NOW - timedelta(seconds=899):%Y-%m-%dT%H:%M:%S.%f+00:00} gpu-1 kernel: ", [79]),
        # A clock that was put forward after the start printed earlier times.
        (f"{NOW - timedelta(seconds=910):%Y-%m-%dT%H:%M:%S.%f+00:00} gpu-1 kernel: ", [79]),
        (f"{NOW - timedelta(seconds=920):%Y-%m-%dT%H:%M:%S.%f+00:00} gpu-1 kernel: ", []),
        (f"<3>1 {NOW - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ} gpu-1 kernel - - - [  899.000000] ", []),
        ("4,7,899000000,-;", [79]),
        ("4,7,1235733431527,-;", []),
    ],
)
def test_a_line_whose_kernel_ran_longer_than_the_machine_is_no_fault_of_this_boot(path, before, codes):
    """A system log that writes again what it kept, after the first lines of the next boot."""
    path.write_text(f"{BOOT}\n{before}NVRM: Xid (PCI:0000:4e:00): 79, pid=1\n")
    source = sources.LogFile(path, uptime=lambda: 900.0)
    chunk = source.read(boot_id="boot-2", now=NOW)
    source.close()
    assert [fault.code for fault in kmsg.faults_of(chunk.records)] == codes


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def device(path, *, position=None, uptime=100.0):
    source = sources.KmsgDevice(path, uptime=lambda: uptime)
    if position:
        source.resume(position)
    source.read(boot_id="boot-1", now=NOW)  # opens it, so that a writer can
    return source


def write(path, text):
    handle = os.open(path, os.O_WRONLY)
    os.write(handle, text.encode())
    os.close(handle)


def test_device_records(pipe):
    source = device(pipe)
    write(
        pipe, "6,10,40000000,-;NVRM: hello \\xe9\n SUBSYSTEM=pci\n DEVICE=+pci:0000:4e:00.0\n12,11,99000000,-;drill\n"
    )
    chunk = source.read(boot_id="boot-1", now=NOW)
    assert chunk.records == (
        Record(text="NVRM: hello \\xe9", at=NOW - timedelta(seconds=60), facility=0, sequence=10),
        Record(text="drill", at=NOW - timedelta(seconds=1), facility=1, sequence=11),
    )
    assert chunk.position == {"boot_id": "boot-1", "sequence": 11}
    source.close()


def test_a_gap_in_the_sequence_is_counted(pipe):
    source = device(pipe)
    write(pipe, "6,10,1,-;a\n6,15,1,-;b\n")
    assert read(source)[:2] == (["a", "b"], 4)
    source.close()


def test_records_lost_to_an_overrun_of_the_ring_are_counted(pipe, monkeypatch):
    """The kernel says EPIPE once, and EINVAL for a record larger than the buffer, which only a real ring does."""
    source = device(pipe)
    write(pipe, "6,10,1,-;a\n")
    assert texts(source) == ["a"]
    write(pipe, "6,500,1,-;b\n")
    troubles, real = [errno.EPIPE, errno.EINVAL], os.read
    monkeypatch.setattr(os, "read", lambda *asked: real(*asked) if not troubles else _fail(troubles.pop(0)))
    assert read(source)[:2] == (["b"], 489)
    source.close()


def _fail(number):
    raise OSError(number, os.strerror(number))


def test_a_device_goes_on_after_its_position_in_the_same_boot_only(pipe):
    lines = "6,10,1,-;a\n6,11,1,-;b\n6,12,1,-;c\n"
    source = device(pipe, position={"boot_id": "boot-1", "sequence": 11})
    write(pipe, lines)
    assert read(source)[:2] == (["c"], 0)
    source.close()
    source = device(pipe, position={"boot_id": "boot-0", "sequence": 11})
    write(pipe, lines)
    assert read(source)[:2] == (["a", "b", "c"], 0)
    source.close()


def test_a_record_of_the_device_wakes_a_waiting_reader(pipe):
    source = device(pipe)
    writer = threading.Timer(0.1, write, (pipe, "6,1,1,-;a\n"))
    writer.start()
    started = time.monotonic()
    source.wait(4 * HANG_SECONDS)
    assert time.monotonic() - started < HANG_SECONDS
    writer.join()
    assert texts(source) == ["a"]
    source.close()


def test_the_kernels_own_device():
    """Where this machine lets us: the ring is read to its end, and a second reader starts where the first ended."""
    path = pathlib.Path("/dev/kmsg")
    if not os.access(path, os.R_OK):
        pytest.skip("/dev/kmsg is not readable here")
    first = sources.KmsgDevice(path)
    try:
        _, _, position = read(first)
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error}")
    finally:
        first.close()
    second = sources.KmsgDevice(path)
    second.resume(position)
    assert len(texts(second)) < 1000
    second.close()


def test_the_log_source_is_chosen_by_the_kind_of_file(tmp_path, pipe):
    assert isinstance(sources.source_for(pipe), sources.KmsgDevice)
    assert isinstance(sources.source_for(tmp_path / "absent"), sources.LogFile)
    assert isinstance(sources.source_for(pathlib.Path("/dev/kmsg-absent")), sources.KmsgDevice)


def test_a_ring_in_memory():
    ring = sources.MemoryLog(size=3)
    ring.write("a", at=NOW)
    assert read(ring)[:2] == (["a"], 0)
    for text in "bcdef":
        ring.write(text, at=NOW, facility=1)
    found, lost, position = read(ring)
    assert (found, lost) == (["d", "e", "f"], 2)
    again = sources.MemoryLog()
    again.write("a", at=NOW)
    again.resume(position)
    assert texts(again, boot_id="boot-2") == ["a"]
    ring.reboot()
    ring.write("first of the next boot", at=NOW)
    assert texts(ring, boot_id="boot-2") == ["first of the next boot"]
