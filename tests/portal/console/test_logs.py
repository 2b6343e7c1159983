"""The analysis of any kernel log, pasted or as a file, with any bytes."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from kcover_portal.console.reads import logs as reads
from kcover_portal.console.views import logs
from tests.portal.rescue.world import World

LOG = """\
[  101.1] NVRM: Xid (PCI:0000:4e:00): 62, pid='<unknown>', name=<unknown>, 2027(2090) 00000000 00000000
[  101.2] NVRM: Xid (PCI:0000:4e:00): 31, pid=4412, name=python3, Ch 00000008, intr 10000000. MMU Fault
[  101.3] NVRM: Xid (PCI:0000:4e:00): 31, pid=4412, name=python3, Ch 00000008, intr 10000000. MMU Fault
[  102.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 24 egress non-posted PRIV error
[  103.1] NVRM: Xid (PCI:0000:03:00): 4711, who knows
"""
PATH = "/incidents/log/"


def text(response) -> str:
    return response.content.decode()


def test_each_fault_of_a_log_is_listed_once_with_meaning_remedy_and_rule(person, world: World):
    page = text(person("viewer").post(PATH, {"text": LOG, "node": "gpu-1"}))
    assert "4 faults" in page
    assert "2 lines" in page
    assert "python3" in page
    assert "application fault" in page
    assert "Not in the catalog." in page
    assert 'href="/policies/heal/?revision=1">heal#1</a>' in page
    assert "Rules were matched against the labels of gpu-1." in page


def test_a_file_may_hold_any_bytes(person, world: World):
    data = b"\x00\xff\xfe garbage\n" + LOG.encode() + b"\x80" * 50
    page = text(person("viewer").post(PATH, {"file": SimpleUploadedFile("kern.log", data)}))
    assert "4 faults" in page


def test_a_log_without_faults_is_reported_as_such(person, world: World):
    assert "No fault in this log" in text(person("viewer").post(PATH, {"text": "all is well"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Paste a log or choose a file."),
        ({"text": ""}, "Paste a log or choose a file."),
        ({"text": LOG, "node": "none-such"}, "No node with this name."),
    ],
)
def test_an_unreadable_log_is_refused_with_a_reason(person, world: World, given: dict, said: str):
    response = person("viewer").post(PATH, given)
    assert response.status_code == 422
    assert said in text(response)


def test_a_file_that_is_too_large_is_refused(person, world: World, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 10)
    response = person("viewer").post(PATH, {"file": SimpleUploadedFile("kern.log", b"x" * 11)})
    assert response.status_code == 422
    assert "larger than 32 MiB" in text(response)


def test_markup_in_a_log_stays_text(person, world: World):
    page = text(person("viewer").post(PATH, {"text": "NVRM: Xid (PCI:0000:4e:00): 62, <script>alert(1)</script>"}))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_fault_kinds_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(reads, "MAX_FAULTS_SHOWN", 2)
    seen, left_out, _ = reads.read(LOG.encode())
    assert ([(one.kind, one.code, one.count) for one in seen], left_out) == ([("xid", 62, 1), ("xid", 31, 2)], 2)


@pytest.mark.parametrize(("count", "is_cut"), [(5, False), (6, True)])
def test_a_log_is_read_up_to_a_number_of_lines_with_faults(monkeypatch, count: int, is_cut: bool):
    monkeypatch.setattr(reads, "MAX_LINES", 5)
    line = b"NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\nnothing\n"
    [seen], left_out, cut = reads.read(line * count)
    assert (seen.count, left_out, cut) == (5, 0, is_cut)
