"""Commands are executed at most once, across crashes and reboots."""

import errno
import json
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents.commands import executor
from agents.commands.journal import LANES, REBOOT_GRACE, Journal, Outcome
from agents.host import store
from kcover import wire
from kcover.faults.fault import Check, Command

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Node:
    """An executor that notes what it was asked."""

    def __init__(self, *, outcome=None, crash=False):
        self.asked = []
        self.outcome = outcome
        self.crash = crash
        self.error = None

    def _do(self, verb, args):
        self.asked.append((verb, dict(args)))
        if self.crash:
            raise KeyboardInterrupt
        if self.error:
            raise self.error
        return self.outcome

    def reboot(self, args):
        return self._do("reboot", args)

    def reset_gpu(self, args):
        return self._do("reset_gpu", args) or Outcome(status="done")

    def run_check(self, args, *, expires_at):
        return self._do("run_check", args) or Outcome(status="done", output={"rows": 0})


def command(kind="reset_gpu", *, id="c1", args=None, lives=timedelta(minutes=5)):
    return Command(id=id, kind=kind, args=args or {}, created_at=NOW, expires_at=NOW + lives)


def reported(journal, *, now=NOW, boot_id="boot-1", resend=False):
    return [(result.id, result.status) for result in journal.results(now=now, boot_id=boot_id, resend=resend)]


def work(journal, *, now=NOW, boot_id="boot-1"):
    return journal.execute(clock=lambda: now, boot_id=boot_id)


def test_a_command_offered_repeatedly_is_executed_once():
    node, disk = Node(), store.MemoryStore()
    journal = Journal(disk, node)
    assert journal.offer([command(args={"pci": "0000:4e:00"}), command()])
    assert work(journal) == 1
    assert not journal.offer([command()])
    assert work(journal) == 0
    assert node.asked == [("reset_gpu", {"pci": "0000:4e:00"})]
    assert reported(journal) == reported(journal) == [("c1", "done")]
    journal.acknowledge(["c1"], now=NOW)
    assert reported(journal) == []
    again = Journal(disk, node)
    assert not again.offer([command()])  # offered again: the portal lacks the result
    assert work(again) == 0
    assert reported(again) == []
    assert reported(again, resend=True) == [("c1", "done")]
    assert len(node.asked) == 1


def test_a_waiting_command_is_not_reported_as_new():
    """Else a long poll would come back at once, again and again, for as long as the first one takes."""
    journal = Journal(store.MemoryStore(), Node())
    assert journal.offer([command("run_check"), command("run_check", id="c2")])
    assert not journal.offer([command("run_check"), command("run_check", id="c2")])
    assert journal.offer([command("run_check", id="c2"), command("run_check", id="c3")])


def test_a_reboot_does_not_wait_for_a_reset_that_hangs():
    began, release, rebooted = threading.Event(), threading.Event(), threading.Event()

    class Hung(Node):
        def reset_gpu(self, args):
            began.set()
            release.wait(60)
            return Outcome(status="refused")

        def reboot(self, args):
            rebooted.set()

    journal = Journal(store.MemoryStore(), Hung())
    journal.offer([command("reset_gpu"), command("reboot", id="c2")])
    threads = [
        threading.Thread(target=journal.execute, kwargs={"clock": lambda: NOW, "boot_id": "boot-1", "lanes": (lane,)})
        for lane in LANES
    ]
    for thread in threads:
        thread.start()
    assert began.wait(60)
    assert rebooted.wait(60)
    release.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kind", ["reset_gpu", "run_check"])
def test_an_executor_that_breaks_ends_its_command_and_no_other(kind):
    node = Node()
    node.error = AttributeError("'list' object has no attribute 'get'")
    journal = Journal(store.MemoryStore(), node)
    journal.offer([command(kind), command(kind, id="c2")])
    assert work(journal) == 2
    assert reported(journal) == [("c1", "failed"), ("c2", "failed")]
    assert "no attribute 'get'" in journal.results(now=NOW, boot_id="boot-1")[0].message


def test_a_reboot_that_fails_in_the_middle_may_have_been_requested():
    node = Node()
    node.error = RuntimeError("broken pipe")
    journal = Journal(store.MemoryStore(), node)
    journal.offer([command("reboot")])
    assert work(journal) == 0
    assert reported(journal) == []
    assert reported(journal, boot_id="boot-2") == [("c1", "done")]


def test_findings_that_cannot_be_kept_do_not_take_the_result_with_them():
    def full(checks, faults, now):
        raise OSError(errno.ENOSPC, "No space left on device")

    found = Outcome(status="done", message="fail", checks=(Check(name="dcgm", status="fail"),))
    journal = Journal(store.MemoryStore(), Node(outcome=found), sink=full)
    journal.offer([command("run_check")])
    assert work(journal) == 1
    (result,) = journal.results(now=NOW, boot_id="boot-1")
    assert result.status == "done"
    assert "No space left" in result.message


def test_an_expired_command_is_not_executed():
    node = Node()
    journal = Journal(store.MemoryStore(), node)
    journal.offer([command(lives=timedelta())])
    work(journal)
    assert (reported(journal), node.asked) == ([("c1", "expired")], [])


def test_a_command_cut_short_by_a_crash_is_not_repeated():
    disk, node = store.MemoryStore(), Node(crash=True)
    journal = Journal(disk, node)
    journal.offer([command()])
    with pytest.raises(KeyboardInterrupt):
        work(journal)
    node.crash = False
    again = Journal(disk, node)
    assert not again.offer([command()])
    assert work(again) == 0
    assert (reported(again), len(node.asked)) == ([("c1", "failed")], 1)


def test_a_command_that_cannot_be_recorded_is_not_executed():
    class Full(store.MemoryStore):
        def write(self, name, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    node = Node()
    journal = Journal(Full(), node)
    journal.offer([command("reboot")])
    work(journal)
    assert (reported(journal), node.asked) == ([("c1", "refused")], [])


def test_a_reboot_is_done_when_the_boot_id_has_changed():
    node, disk = Node(), store.MemoryStore()
    journal = Journal(disk, node)
    journal.offer([command("reboot", args={"boot_id": "boot-1"})])
    assert work(journal) == 0
    assert reported(journal) == []
    again = Journal(disk, node)  # the agent came back before the node went down
    again.offer([command("reboot", args={"boot_id": "boot-1"})])
    assert work(again) == 0
    assert reported(again) == []
    after = Journal(disk, node)
    (result,) = after.results(now=NOW + timedelta(minutes=3), boot_id="boot-2")
    assert (result.status, result.output) == ("done", {"boot_id": "boot-2", "before": "boot-1"})
    assert len(node.asked) == 1


def test_a_reboot_of_another_boot_is_refused():
    node = Node()
    journal = Journal(store.MemoryStore(), node)
    journal.offer([command("reboot", args={"boot_id": "boot-0"})])
    work(journal)
    assert (reported(journal), node.asked) == ([("c1", "refused")], [])


def test_a_reboot_that_cannot_be_requested_or_never_happens_has_failed():
    journal = Journal(store.MemoryStore(), Node(outcome=Outcome(status="failed", message="exit status 1")))
    journal.offer([command("reboot")])
    work(journal)
    assert reported(journal) == [("c1", "failed")]
    journal = Journal(store.MemoryStore(), Node())
    journal.offer([command("reboot")])
    work(journal)
    assert reported(journal, now=NOW + REBOOT_GRACE - timedelta(seconds=1)) == []
    assert reported(journal, now=NOW + REBOOT_GRACE) == [("c1", "failed")]


def test_a_damaged_journal_entry_is_set_aside():
    disk = store.MemoryStore()
    disk.write("commands/x.json", b'{"id": 1}')
    assert reported(Journal(disk, Node())) == []
    assert disk.names("aside") == ["aside/commands-x.json"]


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_command_whose_journal_entry_is_damaged_is_not_done_again(restarts):
    disk, node = store.MemoryStore(), Node()
    journal = Journal(disk, node)
    journal.offer([command()])
    work(journal)
    (name,) = disk.names("commands")
    disk.write(name, disk.read(name)[:20])
    for _ in range(restarts):
        journal = Journal(disk, node)
    journal.offer([command(), command(id="c2")])
    work(journal)
    assert reported(journal) == [("c1", "failed"), ("c2", "done")]
    assert len(node.asked) == 2
    assert sorted(reported(Journal(disk, node))) == [("c1", "failed"), ("c2", "done")]


def test_acknowledged_results_are_deleted_after_a_week():
    disk = store.MemoryStore()
    journal = Journal(disk, Node())
    journal.offer([command()])
    work(journal)
    journal.acknowledge(["c1"], now=NOW)
    assert len(disk.names("commands")) == 1
    journal.acknowledge([], now=NOW + timedelta(days=8))
    assert disk.names("commands") == []


def test_accumulated_results_are_split_over_reports_and_all_reported():
    """100 results of 64 KiB are more than the wire takes: one report of them would never be taken."""
    journal = Journal(store.MemoryStore(), Node(outcome=Outcome(status="done", output={"words": "é" * 10_000})))
    names = [f"c{number}" for number in range(40)]
    journal.offer([command("run_check", id=name) for name in names])
    work(journal)
    seen = []
    while results := journal.results(now=NOW, boot_id="boot-1"):
        heartbeat = wire.Report(
            node="gpu-1", boot_id="b", batch_id="1", agent="1", sent_at=NOW, command_results=results
        )
        assert len(json.dumps(wire.encode(heartbeat))) < wire.MAX_BYTES
        journal.acknowledge([result.id for result in results], now=NOW)
        seen += [result.id for result in results]
    assert seen == names


def test_the_output_of_an_acknowledged_result_is_kept_on_disk_only():
    node, disk = Node(outcome=Outcome(status="done", output={"words": ["many"]})), store.MemoryStore()
    journal = Journal(disk, node)
    journal.offer([command("run_check")])
    work(journal)
    journal.acknowledge(["c1"], now=NOW)
    for one in (journal, Journal(disk, node)):
        (entry,) = one._entries.values()
        assert entry.result.output == {}  # a week of outputs in memory would be megabytes
        one.offer([command("run_check")])  # the portal lost it
        (result,) = one.results(now=NOW, boot_id="boot-1", resend=True)
        assert result.output == {"words": ["many"]}


def host(*words):
    return executor.HostExecutor(reboot_command=words)


def test_the_host_runs_the_reboot_command_without_a_shell(tmp_path):
    mark = tmp_path / "rebooted; true"
    assert host("touch", str(mark)).reboot({}) is None
    assert mark.exists()
    failed = host(sys.executable, "-c", "import sys; sys.exit('not today')").reboot({})
    assert (failed.status, failed.message) == ("failed", "exit status 1: not today")
    assert host("/nonexistent/reboot").reboot({}).status == "failed"
    assert host("sh", "-c", "kill -TERM $$").reboot({}) is None  # what happens while a node goes down


def test_the_host_resets_a_gpu_with_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = host().reset_gpu({"gpu_uuid": "GPU-12345678"})
    assert (refused.status, refused.message) == ("refused", "nvidia-smi is not installed on this node")
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "reset $*"\n')
    tool.chmod(0o755)
    done = host().reset_gpu({"gpu_uuid": "GPU-12345678"})
    assert (done.status, done.message) == ("done", "reset --gpu-reset -i GPU-12345678")
    assert host().reset_gpu({"index": 0}).message == "reset --gpu-reset -i 0"
    tool.write_text("#!/bin/sh\necho in use >&2\nexit 3\n")
    assert host().reset_gpu({"pci": "0000:4e:00"}).output == {"rc": 3}
    for args in ({}, {"pci": "--all"}, {"index": "0 1"}):
        assert host().reset_gpu(args).status == "refused"


def test_checks_are_refused_with_a_reason():
    assert host().run_check({"name": "pciebw"}).message == "this agent has no check 'pciebw'"
