"""Beat sends a sweep that has work, and now and then one without."""

from typing import Any

import pytest
from celery.beat import ScheduleEntry, SchedulingError
from django.db import OperationalError

from kcover_portal.celery import app
from kcover_portal.operate import scheduler, sweeps


class Recording(scheduler.Scheduler):
    """Keeps the tasks that it would send."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sent: list[str] = []
        super().__init__(app, lazy=True, clock=lambda: self.now)

    def apply_async(self, entry: ScheduleEntry, **_more: Any) -> None:
        self.sent.append(entry.task)

    def run(self, seconds: float) -> list[tuple[float, str]]:
        """The sweeps that it sends, with the seconds after its first turn; its schedule is empty."""
        began, found = self.now, []
        while self.now - began <= seconds:
            wait = self.tick()
            found += [(self.now - began, task) for task in self.sent]
            self.sent.clear()
            self.now += wait or 0.01
        return found


def one_sweep(monkeypatch: pytest.MonkeyPatch, has_work: sweeps.Check, *, every: float = 0.5) -> None:
    only = sweeps.Sweep(task="rescue.sweep", every=every, latest=5.0, has_work=has_work)
    monkeypatch.setattr(sweeps, "SWEEPS", (only,))


def times(found: list[tuple[float, str]]) -> list[float]:
    return [round(seconds, 1) for seconds, _ in found]


def test_a_sweep_without_work_is_sent_first_and_then_after_its_latest_time(monkeypatch) -> None:
    one_sweep(monkeypatch, lambda _now: False)
    assert times(Recording().run(11)) == [0, 5, 10]


def test_a_sweep_with_work_is_sent_at_each_look(monkeypatch) -> None:
    one_sweep(monkeypatch, lambda _now: True, every=1.0)
    assert times(Recording().run(3)) == [0, 1, 2, 3]


def test_without_the_database_every_sweep_is_sent(monkeypatch) -> None:
    looks = []

    def fails(now: Any) -> bool:
        looks.append(now)
        raise OperationalError("the server closed the connection")

    one_sweep(monkeypatch, fails)
    assert times(Recording().run(2)) == [0, 0.5, 1, 1.5, 2]
    assert len(looks) == 1  # a database that hangs would otherwise hold up the schedule


@pytest.mark.django_db
def test_in_a_quiet_portal_all_sweeps_are_sent_once_at_first() -> None:
    assert sorted(task for _, task in Recording().run(4)) == sorted(sweep.task for sweep in sweeps.SWEEPS)


def test_beat_uses_this_scheduler() -> None:
    assert app.Beat().scheduler_cls == "kcover_portal.operate.scheduler:PersistentScheduler"


def test_a_task_that_cannot_be_sent_is_one_line(caplog) -> None:
    class WithoutBroker(scheduler.Scheduler):
        def apply_async(self, entry: ScheduleEntry, **_more: Any) -> None:
            raise SchedulingError("Couldn't apply scheduled task rescue.sweep: Connection refused.")

    one = WithoutBroker(app, lazy=True)
    one.apply_entry(one.Entry("rescue.sweep", "rescue.sweep", app=app))
    (record,) = caplog.records
    assert (record.exc_info, len(record.getMessage().splitlines())) == (None, 1)
