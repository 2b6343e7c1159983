"""kcover's preflight reports on the node's disk: each is sent once, and nothing else on the disk is."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from agents.host.store import MemoryStore
from agents.outbox.preflight_files import MAX_AGE_SECONDS, MAX_FILE_BYTES, PreflightFiles
from agents.uplink.http import HttpUplink

pytestmark = pytest.mark.real_clock("the kernel gives files their times")
REPORT = {"workload": "train", "workload_size": 2, "node_name": "gpu-1", "batches": []}


class Disk:
    def __init__(self, folder, portal):
        self.folder, self.portal = folder / "preflight", portal
        self.store = MemoryStore()
        self.now = datetime.now(UTC) + timedelta(seconds=60)
        self.uplink = None
        self.restart()

    def restart(self):
        self.close()
        self.uplink = HttpUplink(
            url=self.portal.url, node="gpu-1", token=lambda: "kca_x", store=self.store, clock=self.clock
        )
        self.files = PreflightFiles(self.folder, node="gpu-1", store=self.store, uplink=self.uplink, clock=self.clock)

    def close(self):
        if self.uplink is not None:
            self.uplink.close()

    def clock(self):
        return self.now

    def write(self, content, name="train-0.json", namespace="ml"):
        path = self.folder / namespace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def sent(self):
        self.files.run_round()
        found, self.portal.preflights[:] = [*self.portal.preflights], []
        return found


@pytest.fixture
def disk(tmp_path, portal):
    disk = Disk(tmp_path, portal)
    yield disk
    disk.close()


def test_a_report_is_sent_once_across_restarts(disk):
    assert disk.sent() == []  # no folder
    disk.write(REPORT)
    assert disk.sent() == [{"namespace": "ml", "report": REPORT}]
    assert disk.sent() == []
    disk.restart()
    assert disk.sent() == []
    disk.write({**REPORT, "workload_size": 4})
    assert [body["report"]["workload_size"] for body in disk.sent()] == [4]


def test_the_file_name_names_a_workload_that_the_report_does_not_name(disk):
    disk.write({**REPORT, "workload": ""}, name="big-job-12.json", namespace="team-a")
    (body,) = disk.sent()
    assert (body["namespace"], body["workload"]) == ("team-a", "big-job")


def test_an_incomplete_file_waits_and_an_old_file_is_skipped(disk):
    path = disk.write(REPORT)
    disk.now = datetime.fromtimestamp(path.stat().st_mtime, UTC) + timedelta(seconds=1)
    assert disk.sent() == []
    disk.now += timedelta(seconds=2)
    assert len(disk.sent()) == 1
    old = disk.now.timestamp() - MAX_AGE_SECONDS - 10
    os.utime(disk.write(REPORT, name="older-0.json"), (old, old))
    assert disk.sent() == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not valid JSON"),
        ("[" * 60_000, "not valid JSON"),
        ("[1]", "not a JSON object"),
        ({**REPORT, "node_name": "gpu-2"}, "'gpu-2', not gpu-1"),
        ({**REPORT, "log": "x" * MAX_FILE_BYTES}, "larger than"),
    ],
)
def test_a_bad_file_is_named_once_and_stops_no_other(disk, caplog, content, why):
    disk.write(content, name="a-0.json")
    disk.write(REPORT)
    assert len(disk.sent()) == 1
    assert disk.sent() == []
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "ml/a-0.json" in warning.getMessage()
    assert why in warning.getMessage()


def test_links_pipes_and_other_names_are_not_read(disk, tmp_path, caplog):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(REPORT))
    disk.write("", name="notes.txt")
    disk.write(REPORT, namespace="No_Namespace")
    (disk.folder / "ml/a-0.json").symlink_to(secret)
    (disk.folder / "ml/b-0.json").hardlink_to(disk.folder / "ml/notes.txt")
    os.mkfifo(disk.folder / "ml/c-0.json")
    (disk.folder / "linked").symlink_to(disk.folder / "ml", target_is_directory=True)
    (disk.folder / "ml/d-0.json").mkdir()
    assert disk.sent() == []
    assert [record.getMessage() for record in caplog.records if "ml/b-0.json" not in record.getMessage()] == []


def test_a_refused_report_is_not_sent_again_and_an_unanswered_one_is_retried(disk, portal):
    disk.write(REPORT)
    portal.preflight_answers = [(400, {"detail": "no pod"})]
    assert len(disk.sent()) == 1
    assert disk.sent() == []
    disk.write(REPORT, name="other-0.json")
    portal.preflight_answers = [(503, {}), (503, {})]
    pauses = [disk.files.run_round() for _ in range(2)]
    assert 2.5 <= pauses[0] <= 5 <= pauses[1] <= 10
    assert len(disk.sent()) == 3
    assert disk.sent() == []


def test_a_report_on_which_the_portal_fails_stops_no_other(disk, portal):
    disk.write(REPORT, name="a-0.json")
    portal.preflight_answers = [(500, {}), (202, {}), (500, {}), (500, {})]
    disk.now += timedelta(seconds=1)
    disk.write(REPORT, name="b-0.json")
    assert [len(disk.sent()) for _ in range(4)] == [2, 1, 1, 0]
