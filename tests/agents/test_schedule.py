"""Checks on a timer."""

from datetime import UTC, datetime, timedelta

from agents.checks.check_runner import CheckRunner
from agents.checks.schedule import CheckSchedule, ScheduledChecks
from kcover.faults.fault import Check

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Fixed:
    failure_is_node_fault = True

    def __init__(self, name, *, status="pass"):
        self.name, self.status, self.asked = name, status, []

    def invasive(self, args):
        return False

    def run(self, args):
        self.asked.append(dict(args))
        return [Check(name=self.name, status=self.status)]


class Node:
    def __init__(self, *rounds, checks):
        self.seconds, self.reported = 0.0, []
        self.schedule = CheckSchedule(
            rounds,
            runner=CheckRunner(checks, gpu_users=list),
            sink=self.keep,
            clock=lambda: START + timedelta(seconds=self.seconds),
            monotonic=lambda: self.seconds,
        )

    def keep(self, checks, faults, now):
        self.reported.append(([check.name for check in checks], [fault.code for fault in faults]))

    def turn(self, *, at):
        self.seconds = at
        pause = self.schedule.run_due()
        reported, self.reported = self.reported, []
        return reported, pause


def test_light_checks_run_often_and_heavy_checks_rarely():
    light, heavy = Fixed("remapped"), Fixed("dcgm", status="fail")
    node = Node(
        ScheduledChecks(names=("remapped",), interval_seconds=3600, first_after_seconds=30, args={}),
        ScheduledChecks(names=("dcgm",), interval_seconds=14_400, first_after_seconds=300, args={"r": 3}),
        checks=(light, heavy),
    )
    assert node.turn(at=0) == ([], 30)
    assert node.turn(at=30) == ([(["remapped"], [])], 60)
    assert node.turn(at=299) == ([], 1)
    assert node.turn(at=300) == ([(["dcgm"], ["dcgm"])], 60)
    assert node.turn(at=3630)[0] == [(["remapped"], [])]
    assert heavy.asked == [{"r": 3}]
    assert node.turn(at=14_700)[0] == [(["remapped"], []), (["dcgm"], ["dcgm"])]


def test_a_timer_without_checks_runs_none():
    assert Node(ScheduledChecks(names=(), interval_seconds=1, first_after_seconds=0, args={}), checks=()).turn(
        at=100
    ) == ([], 60)
