"""Checks on a timer."""

from datetime import UTC, datetime, timedelta

from agents.checks.runner import Runner
from agents.schedule import Round, Schedule
from kcover.fault import Check

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Fixed:
    about_node = True

    def __init__(self, name, *, status="pass"):
        self.name, self.status, self.asked = name, status, []

    def invasive(self, args):
        return False

    def run(self, args):
        self.asked.append(dict(args))
        return [Check(name=self.name, status=self.status)]


class Node:
    def __init__(self, *rounds, checks):
        self.seconds, self.told = 0.0, []
        self.schedule = Schedule(
            rounds,
            runner=Runner(checks, in_use=list),
            keep=self.keep,
            clock=lambda: START + timedelta(seconds=self.seconds),
            monotonic=lambda: self.seconds,
        )

    def keep(self, checks, faults, now):
        self.told.append(([check.name for check in checks], [fault.code for fault in faults]))

    def turn(self, *, at):
        self.seconds = at
        pause = self.schedule.turn()
        told, self.told = self.told, []
        return told, pause


def test_light_ones_often_heavy_ones_seldom():
    light, heavy = Fixed("remapped"), Fixed("dcgm", status="fail")
    node = Node(
        Round(names=("remapped",), every=3600, first=30, args={}),
        Round(names=("dcgm",), every=14_400, first=300, args={"r": 3}),
        checks=(light, heavy),
    )
    assert node.turn(at=0) == ([], 30)
    assert node.turn(at=30) == ([(["remapped"], [])], 60)
    assert node.turn(at=299) == ([], 1)
    assert node.turn(at=300) == ([(["dcgm"], ["dcgm"])], 60)
    assert node.turn(at=3630)[0] == [(["remapped"], [])]
    assert heavy.asked == [{"r": 3}]
    assert node.turn(at=14_700)[0] == [(["remapped"], []), (["dcgm"], ["dcgm"])]


def test_nothing_on_the_timer():
    assert Node(Round(names=(), every=1, first=0, args={}), checks=()).turn(at=100) == ([], 60)
