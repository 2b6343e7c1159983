"""The agent's core without threads or a clock: the log is a ring in memory, the portal is a list."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from agents import config
from agents.agent import Agent
from agents.commands.journal import Outcome
from agents.host import store
from agents.outbox import reports
from agents.outbox.spool import Spool
from agents.probes.log import sources
from agents.uplink.protocol import PortalFailed, ReportDeferred, ReportMalformed, UplinkError
from kcover import wire
from kcover.faults.fault import Command, Fault, Gpu, Inventory

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
GPU = Gpu(index=0, uuid="GPU-aaaaaaaa", pci="0000:4e:00", model="H100")


class Portal:
    def __init__(self):
        self.reports = []
        self.errors = []
        self.commands = ()

    def post_report(self, body):
        report = wire.decode(body)
        assert report.rejected == ()
        self.reports.append(report.report)
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return wire.Answer(accepted=len(report.report.faults), commands=self.commands)

    def fetch_peers(self):
        return ()

    def poll_commands(self, *, wait):
        return self.commands

    def close(self):
        pass

    def take(self):
        taken, self.reports = self.reports, []
        return taken


class Bench:
    """A node whose clock, log, devices and boot are in the test's hand."""

    def __init__(self, *, max_batches=1000):
        self.now = START
        self.boot_id = "boot-1"
        self.inventory = Inventory(driver="580", kernel="6.8", gpus=(GPU,))
        self.ring = sources.MemoryLog()
        self.portal = Portal()
        self.store = store.MemoryStore()
        self.rebooted = 0
        self.max_batches = max_batches
        self.start()

    def start(self, *, ring=None):
        self.agent = Agent(
            config.Config(node="gpu-1"),
            sources=[ring or self.ring],
            clock=lambda: self.now,
            boot_id=lambda: self.boot_id,
            inventory=lambda: self.inventory,
            uplink=self.portal,
            spool=Spool(self.store, max_batches=self.max_batches),
            executor=self,
            rng=random.Random(1),
        )

    def reboot(self, args):
        self.rebooted += 1

    def reset_gpu(self, args):
        return Outcome(status="done")

    def run_check(self, args, *, expires_at):
        return Outcome(status="refused", message="none here")

    def log(self, text=XID_79, **how):
        self.ring.write(text, at=self.now, **how)

    def step(self, seconds=0.0):
        """Everything an agent does, once; the reports it sent."""
        self.now += timedelta(seconds=seconds)
        self.agent.observe(self.now)
        self.agent.inspect(self.now)
        while self.agent.report_once(self.now):
            pass
        self.agent.execute_commands()
        while self.agent.report_once(self.now):
            pass
        return self.portal.take()


@pytest.fixture
def bench():
    return Bench()


def faults(reports):
    return [(fault.code, fault.count) for report in reports for fault in report.faults]


def test_the_first_reports_have_checks_and_inventory(bench):
    first, second = bench.step()
    assert (first.node, first.boot_id, first.version) == ("gpu-1", "boot-1", 1)
    assert [(check.name, check.status) for check in first.checks] == [("kernel_log", "pass")]
    assert second.inventory == bench.inventory


def test_a_log_that_was_rotated_away_before_it_was_read_is_reported(bench, tmp_path):
    path = tmp_path / "kern.log"
    path.write_text("quiet\n")
    bench.start(ring=sources.LogFile(path))
    bench.step()
    path.unlink()
    path.write_text(f"{XID_79}\n")
    (check,) = bench.step(1)[0].checks
    assert faults(bench.step(1)) == [(79, 1)]
    assert (check.name, check.status) == ("kernel_log", "warn")
    assert "is gone" in check.message
    assert [one.status for sent in bench.step(601) for one in sent.checks] == ["pass"]
    bench.agent.close()


def test_heartbeats_are_empty_and_as_often_as_wanted(bench):
    bench.step()
    sent = [report for _ in range(300) for report in bench.step(1)]
    assert 10 <= len(sent) <= 11
    assert {(report.inventory, report.faults, report.checks) for report in sent} == {(None, (), ())}
    assert len({report.batch_id for report in sent}) == len(sent)


def test_a_fault_goes_at_once_with_its_gpu(bench):
    bench.step()
    bench.log()
    bench.log(facility=1)
    (report,) = bench.step(1)
    assert [(fault.code, fault.drill, fault.sequence, fault.gpu_uuid) for fault in report.faults] == [
        (79, False, 0, "GPU-aaaaaaaa"),
        (79, True, 1, "GPU-aaaaaaaa"),
    ]
    assert bench.step(1) == []


def test_a_changed_inventory_goes_at_once_and_once(bench):
    bench.step()
    bench.inventory = Inventory(driver="580", kernel="6.8")
    assert [report.inventory for report in bench.step(1)] == [bench.inventory]
    assert bench.step(1) == []


def test_an_unacknowledged_report_is_sent_again_with_the_same_batch_id(bench):
    bench.step()
    bench.log()
    bench.portal.errors = [UplinkError("503"), UplinkError("503")]
    sent = bench.step(1) + bench.step(1) + bench.step(1) + bench.step(2) + bench.step(2)
    assert faults(sent) == [(79, 1)] * 3
    assert len({report.batch_id for report in sent}) == 1
    assert len({report.sent_at for report in sent}) == 3


def test_retry_after_is_honoured(bench):
    bench.step()
    bench.log()
    bench.portal.errors = [UplinkError("429", retry_after=20)]
    assert len(bench.step(1)) == 1
    assert [bench.step(1) for _ in range(19)] == [[]] * 19
    assert faults(bench.step(6)) == [(79, 1)]


def test_a_long_outage_keeps_every_fault(bench):
    bench.step()
    bench.portal.errors = [UplinkError("down")] * 10_000
    for minute in range(100):
        bench.log(XID_79.replace(" 79,", f" {minute},"))
        bench.step(60)
    bench.portal.errors = []
    sent = bench.step(60) + bench.step(60)
    assert [code for code, _ in faults(sent)] == list(range(100))


def test_a_refused_report_does_not_delay_the_others(bench):
    bench.log()
    bench.portal.errors = [ReportDeferred("413")]
    bench.step()
    bench.log(XID_79.replace(" 79,", " 62,"))
    sent = bench.step(2)
    assert sent[0].faults == ()  # a heartbeat goes in between
    assert faults(sent) == [(62, 1), (79, 1)] or faults(sent) == [(79, 1), (62, 1)]


def test_a_malformed_report_is_dropped(bench):
    bench.step()
    bench.log()
    bench.portal.errors = [ReportMalformed("400")]
    assert faults(bench.step(1)) == [(79, 1)]
    assert [faults([report]) for _ in range(40) for report in bench.step(1)] == [[]]


def test_heartbeats_go_between_a_backlog(bench):
    bench.step()
    bench.portal.errors = [UplinkError("down")] * 100
    for code in range(5):
        bench.log(XID_79.replace(" 79,", f" {code},"))
        bench.step(1)
    bench.portal.errors = []
    sent = bench.step(60)
    assert [[fault.code for fault in report.faults] for report in sent] == [[], [0], [1], [2], [3], [4]]


def test_a_restart_repeats_no_fault_and_misses_none(bench):
    bench.log()
    bench.step()
    bench.log("nothing to see")
    bench.log(XID_79.replace(" 79,", " 62,"))
    ring = sources.MemoryLog()
    for text in (XID_79, "nothing to see", XID_79.replace(" 79,", " 62,")):
        ring.write(text, at=bench.now)
    bench.start(ring=ring)
    assert faults(bench.step(1)) == [(62, 1)]


def test_unsent_faults_survive_a_restart_with_their_batch_and_boot(bench):
    bench.step()
    bench.log()
    bench.portal.errors = [UplinkError("down")]
    (lost,) = bench.step(1)
    bench.boot_id = "boot-2"
    bench.start(ring=sources.MemoryLog())
    sent = bench.step(10)
    assert (sent[0].batch_id, sent[0].boot_id, faults(sent)) == (lost.batch_id, "boot-1", [(79, 1)])
    assert sent[-1].boot_id == "boot-2"


def test_repeats_within_the_window_are_counted_across_a_restart(bench):
    bench.log()
    bench.step()
    bench.log()
    bench.log()
    assert faults(bench.step(1)) == []
    bench.agent.close()
    ring = sources.MemoryLog()
    for _ in range(3):
        ring.write(XID_79, at=START)
    bench.start(ring=ring)
    assert faults(bench.step(5)) == [(79, 2)]


@pytest.mark.parametrize("restart", [True, False])
def test_repeats_of_an_earlier_boot_are_not_reported_in_the_next_boot(bench, restart):
    """They would be a new fault after the reboot that mended the node."""
    bench.log()
    bench.step()
    bench.log()
    assert faults(bench.step(1)) == []
    bench.boot_id = "boot-2"
    bench.ring.reboot()
    if restart:
        bench.agent.close()
        bench.start()
    assert faults(bench.step(60)) == []
    bench.log()
    assert faults(bench.step(1)) == [(79, 1)]


def test_a_gap_in_the_log_is_reported(bench):
    bench.ring = sources.MemoryLog(size=5)
    bench.start()
    bench.step()
    for _ in range(12):
        bench.log("chatter")
    (report,) = bench.step(1)
    assert [(check.status, check.value, check.unit) for check in report.checks] == [("warn", 7.0, "records")]
    later = [report for _ in range(700) for report in bench.step(1) if report.checks]
    assert [check.status for report in later for check in report.checks] == ["pass"]


def test_an_unreadable_log_is_reported_and_faults_continue_when_it_is_readable():
    class Broken(sources.MemoryLog):
        error = PermissionError(13, "Permission denied", "/dev/kmsg")

        def read(self, *, boot_id, now):
            if self.error:
                raise self.error
            return super().read(boot_id=boot_id, now=now)

    bench = Bench()
    bench.ring = Broken()
    bench.start()
    assert [check.message for report in bench.step() for check in report.checks] == ["Permission denied: /dev/kmsg"]
    assert [check for report in bench.step(5) for check in report.checks] == []
    bench.ring.error = None
    bench.log()
    sent = bench.step(1)
    assert faults(sent) == [(79, 1)]
    assert [check.status for report in sent for check in report.checks] == ["pass"]


def test_a_full_spool_leaves_the_log_unread_and_goes_on_later():
    bench = Bench(max_batches=2)
    bench.portal.errors = [UplinkError("down")] * 30
    for code in range(10):
        bench.log(XID_79.replace(" 79,", f" {code},"))
        bench.step(1)
    assert bench.agent.spool.full
    bench.portal.errors = []
    sent = bench.step(60) + bench.step(1) + bench.step(1)
    assert sorted(code for code, _ in faults(sent)) == list(range(10))


def probe_fault(bench, code=48, **how):
    return Fault(kind="xid", code=code, pci="0000:4e:00", source="nvml", seen_at=bench.now, **how)


def test_findings_are_counted_while_the_spool_is_full_and_reported_later():
    bench = Bench(max_batches=2)
    bench.portal.errors = [UplinkError("down")] * 30
    for code in range(3):
        bench.log(XID_79.replace(" 79,", f" {code},"))
        bench.step(1)
    full = bench.agent.spool.waiting
    for _ in range(500):
        bench.agent.record((), [probe_fault(bench), probe_fault(bench, 63, count=2)], bench.now)
    assert bench.agent.spool.waiting == full
    assert not bench.agent.caught_up
    bench.portal.errors = []
    sent = bench.step(60) + bench.step(1) + bench.step(1)
    assert sorted(faults(sent)) == [(0, 1), (1, 1), (2, 1), (48, 500), (63, 1000)]
    assert bench.agent.caught_up


def test_faults_that_did_not_fit_the_spool_survive_a_restart():
    bench = Bench(max_batches=1)
    bench.log()
    bench.portal.errors = [UplinkError("down")] * 30
    bench.step()
    assert bench.agent.spool.full
    bench.agent.record((), [probe_fault(bench)] * 3, bench.now)
    bench.agent.close()
    bench.portal.errors = []
    bench.start(ring=sources.MemoryLog())
    assert (48, 3) in faults(bench.step(60))


@pytest.mark.parametrize(
    ("error", "alive"), [(UplinkError("502"), True), (PortalFailed("500"), True), (PortalFailed("500"), False)]
)
def test_a_report_that_always_breaks_the_portal_delays_no_other(error, alive):
    class Breaking(Portal):
        def post_report(self, body):
            answer = super().post_report(body)
            if any(fault.code == 79 for fault in self.reports[-1].faults):
                raise error
            return answer

    bench = Bench()
    bench.portal = Breaking()
    bench.start()
    if alive:
        bench.step()
    bench.log()
    bench.step(1)
    bench.log(XID_79.replace(" 79,", " 62,"))
    sent = [report for _ in range(200) for report in bench.step(1)]
    assert (62, 1) in faults(sent)
    assert sum(not report.faults for report in sent) > 1  # heartbeats
    before = faults(sent).count((79, 1))
    assert faults([report for _ in range(60) for report in bench.step(1)]).count((79, 1)) > 0 < before  # still tried


def test_many_faults_go_in_several_reports(bench):
    for code in range(100):
        bench.log(XID_79.replace(" 79,", f" {code},") + "\\" * 5000)
    sent = bench.step()
    assert [code for code, _ in faults(sent)] == list(range(100))
    assert max(len(report.faults) for report in sent) == reports.FAULTS_PER_REPORT


def test_a_clock_set_forward_a_day_and_back_repeats_no_fault(bench):
    bench.step()
    bench.log()
    assert faults(bench.step(1)) == [(79, 1)]
    bench.log()  # within the window of the first: held, to be told with its count
    assert faults(bench.step(1)) == []
    assert faults(bench.step(86_400)) == [(79, 1)]
    bench.log(XID_79.replace(" 79,", " 62,"))
    assert faults(bench.step(-86_400)) == [(62, 1)]
    assert [faults(bench.step(5)) for _ in range(20)] == [[]] * 20


def test_a_clock_set_back_a_day_suppresses_no_report(bench):
    bench.step()
    bench.portal.errors = [UplinkError("down")]
    bench.log()
    bench.step(1)
    sent = bench.step(-86_400)
    assert faults(sent) == [(79, 1)]
    assert sum(len(bench.step(1)) for _ in range(31)) >= 1


def command(kind, **args):
    expires_at = START + timedelta(hours=1)
    return Command(id=f"c-{kind}", kind=kind, args=args, created_at=START, expires_at=expires_at)


def test_commands_in_an_answer_are_executed_and_reported_once(bench):
    bench.portal.commands = (command("run_check"),)
    sent = bench.step()
    assert [(result.id, result.status) for report in sent for result in report.command_results] == [
        ("c-run_check", "refused")
    ]
    assert bench.step(1) == []
    again = [result.status for _ in range(31) for report in bench.step(1) for result in report.command_results]
    assert again[:1] == ["refused"]  # still offered, so told again, but with a heartbeat


def test_results_are_reported_until_they_are_acknowledged(bench):
    bench.step()
    bench.agent.offer([command("reset_gpu")])
    bench.portal.errors = [UplinkError("down")]
    sent = bench.step(1) + bench.step(2) + bench.step(2)
    assert [result.status for report in sent for result in report.command_results] == ["done", "done"]


def test_a_reboot_result_is_reported_by_the_next_boot(bench):
    bench.step()
    bench.agent.offer([command("reboot", boot_id="boot-1")])
    assert [result for report in bench.step(1) for result in report.command_results] == []
    assert bench.rebooted == 1
    bench.boot_id = "boot-2"
    bench.ring.reboot()
    bench.start()
    bench.agent.offer([command("reboot", boot_id="boot-1")])
    sent = bench.step(90)
    assert [(report.boot_id, result.status) for report in sent for result in report.command_results] == [
        ("boot-2", "done")
    ]
    assert bench.rebooted == 1


def test_a_boot_id_that_changes_under_a_running_agent(bench):
    bench.log()
    bench.step()
    bench.agent.offer([command("reboot", boot_id="boot-1")])
    bench.step(1)
    bench.boot_id = "boot-2"
    bench.ring.reboot()
    bench.log(XID_79.replace(" 79,", " 62,"))
    sent = bench.step(1)
    assert faults(sent) == [(62, 1)]
    assert {report.boot_id for report in sent} == {"boot-2"}
    assert [result.status for report in sent for result in report.command_results] == ["done"]
