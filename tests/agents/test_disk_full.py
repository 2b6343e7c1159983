"""A spool on a full disk: the kernel returns ENOSPC, and no fault is lost."""

import json
import signal
import subprocess
import urllib.request

import psutil
import pytest

from agents.host import store
from agents.outbox.spool import Spool
from tests.agents.small_disk import SmallDisk
from tests.agents.test_spool import ids, report
from tests.agents.test_supervisor import XID_62, XID_79, Node

pytestmark = pytest.mark.slow

XID_48 = "NVRM: Xid (PCI:0000:4e:00): 48, pid='<unknown>', name=<unknown>, double bit ECC error\n"


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = SmallDisk(folder)
    yield disk
    disk.close()


@pytest.fixture
def folder(disk):
    folder = store.FolderStore(disk.path / "spool")
    yield folder
    folder.close()


def test_batches_without_faults_make_room_for_batches_with_faults(disk, folder):
    spool = Spool(folder)
    for number in range(3):
        spool.append(report(f"check-{number}", faults=0), mark={"at": number})
    disk.fill()
    spool.append(report("a"), mark={"at": 10})
    assert (spool.unwritten, spool.dropped) == (0, 1)
    again = Spool(folder)  # as after a crash right now
    assert again.mark == {"at": 10}
    assert ids(again) == ["check-1", "check-2", "a"]


def test_with_nothing_to_drop_it_goes_on_in_memory_and_is_stored_once_there_is_room(disk, folder):
    spool = Spool(folder)
    spool.append(report("a"), mark={"at": 1})
    disk.fill()
    spool.append(report("check", faults=0), mark={"at": 2})
    spool.append(report("b"), mark={"at": 3})
    spool.save()
    assert (spool.waiting, spool.unwritten, spool.dropped, spool.full) == (3, 2, 0, False)
    assert Spool(folder).mark == {"at": 1}  # after a crash the lines of b are read again
    disk.empty()
    spool.save()
    assert spool.unwritten == 0
    again = Spool(folder)
    assert again.mark == {"at": 3}
    assert ids(again) == ["a", "check", "b"]


def test_the_room_that_a_sent_batch_leaves_is_for_faults_first(disk, folder):
    spool = Spool(folder)
    spool.append(report("a"), mark={"at": 1})
    disk.fill()
    spool.append(report("check", faults=0), mark={"at": 2})
    spool.append(report("b"), mark={"at": 3})
    spool.acknowledge("a")
    assert (spool.unwritten, spool.dropped) == (1, 0)
    again = Spool(folder)
    assert again.mark == {"at": 3}
    assert ids(again) == ["b"]


def test_an_agent_on_a_full_disk_reports_everything_once_and_recovers(disk, tmp_path, portal):
    node = Node(tmp_path, portal)
    try:
        process = node.start(KCOVER_AGENT_SPOOL=str(disk.path / "spool"), KCOVER_AGENT_LISTEN="127.0.0.1:0")
        portal.wait_for(lambda: len(portal.reports) >= 3 and health(process)["spooled"] == 0)
        portal.answers = [(503, {})] * 1000
        disk.fill()
        node.write(XID_79 + XID_62)
        portal.wait_for(lambda: portal.faults and health(process)["unwritten"] >= 1)
        portal.answers = []
        portal.wait_for(lambda: reported(portal) == [79, 62] and health(process)["spooled"] == 0)
        disk.empty()
        portal.answers = [(503, {})] * 1000
        node.write(XID_48)
        portal.wait_for(lambda: health(process)["spooled"] >= 1)
        assert health(process)["unwritten"] == 0
        portal.answers = []
        portal.wait_for(lambda: health(process)["spooled"] == 0)
        assert reported(portal) == [79, 62, 48]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        said = process.stderr.read()
        assert b"kept in memory: [Errno 28] No space left on device" in said
        assert b"Traceback" not in said
    finally:
        node.close()


def reported(portal):
    """The codes of all faults, each batch once."""
    batches = {report.batch_id: report for report in list(portal.reports)}
    return [fault.code for report in batches.values() for fault in report.faults]


def health(process: subprocess.Popen):
    """What the agent says of itself."""
    listening = [one.laddr.port for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
    with urllib.request.urlopen(f"http://127.0.0.1:{listening[0]}/healthz", timeout=60) as answer:
        return json.loads(answer.read())
