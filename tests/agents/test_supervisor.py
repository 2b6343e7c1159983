"""The agent as a process: a real log file, a real portal, real signals."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from agents.outbox.retries import jittered_delay
from kcover.faults.fault import Command

pytestmark = pytest.mark.slow

XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
XID_62 = "NVRM: Xid (0000:03:00): 62, Channel 00000001\n"


class Node:
    def __init__(self, folder, portal):
        self.folder, self.portal = folder, portal
        self.log = folder / "kern.log"
        self.log.touch()
        self.boot_id = folder / "boot_id"
        self.boot_id.write_text("boot-1\n")
        self.rebooted = folder / "rebooted"
        self.processes = []

    def start(self, **environ):
        next_boot = f"echo boot-2 > {self.boot_id}.new; mv {self.boot_id}.new {self.boot_id}"
        settings = {
            "NODE_NAME": "gpu-1",
            "KCOVER_AGENT_URL": self.portal.url,
            "KCOVER_AGENT_TOKEN": "kca_x",
            "KCOVER_AGENT_KMSG": str(self.log),
            "KCOVER_AGENT_BOOT_ID": str(self.boot_id),
            "KCOVER_AGENT_SPOOL": str(self.folder / "spool"),
            "KCOVER_AGENT_INTERVAL": "0.5",
            "KCOVER_AGENT_LISTEN": "none",
            "KCOVER_AGENT_REBOOT_COMMAND": f"sh -c 'echo again >> {self.rebooted}; {next_boot}'",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "agents"], env=os.environ | settings | environ, stderr=subprocess.PIPE
        )
        self.processes.append(process)
        return process

    def spooled_faults(self):
        """How many batches with faults wait on the disk; one may be written or deleted meanwhile."""
        batches = (self.folder / "spool/batches").glob("*.json")
        return sum('"faults":[{' in batch.read_text() for batch in batches)

    def write(self, text):
        with self.log.open("a") as log:
            log.write(text)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stderr.close()


@pytest.fixture
def node(tmp_path, portal):
    node = Node(tmp_path, portal)
    yield node
    node.close()


def test_a_line_in_the_log_arrives(node, portal):
    lock = node.folder / "checks.lock"
    node.start(KCOVER_AGENT_CHECK_LOCK=str(lock))
    portal.wait_for(lambda: any(report.inventory for report in portal.reports))
    assert lock.is_file()  # long before its first check: jobs that check before they begin may not make it
    node.write(XID_79)
    portal.wait_for(lambda: portal.faults)
    (fault,) = portal.faults
    assert (fault.kind, fault.code, fault.pci, fault.message) == ("xid", 79, "0000:4e:00", XID_79.strip())


def test_lines_from_before_the_start_are_read_and_heartbeats_follow(node, portal):
    node.write(XID_79 + XID_62)
    node.start()
    portal.wait_for(lambda: len(portal.reports) >= 5)
    assert [fault.code for fault in portal.faults] == [79, 62]
    assert len({report.batch_id for report in portal.reports}) == len(portal.reports)


def test_kill_between_spool_and_post_loses_nothing_and_sends_the_same_batch_again(node, portal):
    portal.answers = [(503, {})] * 1000
    node.write(XID_79)
    first = node.start()
    portal.wait_for(lambda: portal.faults)
    node.write(XID_62)
    portal.wait_for(lambda: node.spooled_faults() == 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (before,) = {report.batch_id for report in portal.reports if report.faults}
    portal.reports.clear()
    portal.answers.clear()
    node.start()
    portal.wait_for(lambda: len(portal.faults) >= 2 and portal.reports[-1].faults == ())
    carrying = [report for report in portal.reports if report.faults]
    assert [[fault.code for fault in report.faults] for report in carrying] == [[79], [62]]
    assert carrying[0].batch_id == before


def test_an_answer_that_is_lost_after_the_commit_is_the_same_batch_again(node, portal):
    portal.cut = 2
    node.write(XID_79)
    node.start()
    portal.wait_for(lambda: portal.cut == 0 and portal.reports[-1].faults == ())
    carrying = [report for report in portal.reports if report.faults]
    assert len(carrying) == 3
    assert len({report.batch_id for report in carrying}) == 1


def test_sigterm_ends_the_agent_cleanly_and_the_next_one_continues(node, portal):
    node.write(XID_79)
    first = node.start()
    portal.wait_for(lambda: portal.faults)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 0
    assert b"Traceback" not in first.stderr.read()
    node.write(XID_62)
    node.start()
    portal.wait_for(lambda: any(fault.code == 62 for fault in portal.faults))
    # The signal may come before the answer to the first report: then the next agent sends the same batch again.
    batches = {report.batch_id: report.faults for report in portal.reports if report.faults}
    assert [fault.code for faults in batches.values() for fault in faults] == [79, 62]


def test_sigterm_ends_the_agent_where_another_thread_receives_it(node, portal):
    agent = node.start()
    portal.wait_for(lambda: portal.reports)
    threads = [int(path.name) for path in pathlib.Path(f"/proc/{agent.pid}/task").iterdir()]
    another = next(thread for thread in sorted(threads) if thread != agent.pid)
    assert ctypes.CDLL(None).tgkill(agent.pid, another, signal.SIGTERM) == 0
    assert agent.wait(timeout=60) == 0


def test_a_reboot_command_is_executed_once_and_reported_by_the_next_boot(node, portal):
    now = datetime.now(UTC)
    expires_at = now + timedelta(minutes=5)
    portal.commands = [
        Command(id="c1", kind="reboot", args={"boot_id": "boot-1"}, created_at=now, expires_at=expires_at)
    ]
    node.start()
    portal.wait_for(lambda: portal.results)
    reports = [report for report in portal.reports if report.command_results]
    assert [(report.boot_id, report.command_results[0].status) for report in reports[:1]] == [("boot-2", "done")]
    assert node.rebooted.read_text() == "again\n"


def test_two_agents_do_not_share_a_spool(node, portal):
    node.start()
    portal.wait_for(lambda: portal.reports)
    second = node.start()
    assert second.wait(timeout=60) == 75  # not 2, after which systemd would never start it again
    assert b"another agent is using this folder" in second.stderr.read()


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"KCOVER_AGENT_URL": ""}, b"KCOVER_AGENT_URL"),
        ({"KCOVER_AGENT_TOKEN": ""}, b"KCOVER_AGENT_TOKEN"),
        ({"KCOVER_AGENT_INTERVAL": "never"}, b"KCOVER_AGENT_INTERVAL"),
        ({"KCOVER_AGENT_BOOT_ID": "/nonexistent"}, b"KCOVER_AGENT_BOOT_ID"),
    ],
)
def test_an_invalid_setting_ends_the_agent_at_start(node, environ, name):
    process = node.start(**environ)
    assert process.wait(timeout=60) == 2
    assert name in process.stderr.read()


def test_agents_that_failed_together_retry_at_different_times():
    pauses = {jittered_delay(None, 30.0) for _ in range(20)}
    assert all(15 <= pause <= 30 for pause in pauses)
    bidden = {jittered_delay(60.0, 0.5) for _ in range(20)}
    assert all(60 <= pause <= 65 for pause in bidden)
    assert len(pauses) > 10 < len(bidden)
