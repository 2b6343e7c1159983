"""What the portal had to do over a day: sampled by a task, shown on the page *System*."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.console.reads import load_charts
from kcover_portal.fleet.models import Cluster
from kcover_portal.operate import load_samples
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import LoadSample
from kcover_portal.runtime.services import counters
from kcover_portal.sources.models import Source
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
INTERVAL = runtime.INTERVAL


def lines(name: str, now: datetime) -> dict[str, list[float | None]]:
    [chart] = [one for one in load_charts.of(now=now) if one.name == name]
    return {label: list(values) for label, values in chart.lines}


def test_rates_are_told_between_samples(now: datetime) -> None:
    cluster = Cluster.objects.create(name="c1", created_at=now)
    source = Source.objects.create(name="am", cluster=cluster, kind="alertmanager", created_at=now)
    load_samples.take(now=now)
    assert load_charts.of(now=now) == []
    counters.add("ingest", {"reports": 1_000, "limited": 5, "failed": 10})
    Source.objects.filter(pk=source.pk).update(accepted=50)
    load_samples.take(now=now + INTERVAL)
    later = now + 2 * INTERVAL
    Source.objects.filter(pk=source.pk).update(accepted=20)  # as if one had been deleted
    load_samples.take(now=later)
    assert lines("load-reports", later) == {"stored": [200.0, 0.0], "refused": [3.0, 0.0]}
    assert lines("load-events", later) == {"taken": [10.0, None], "not taken": [0.0, 0.0]}


def test_a_gap_has_no_rate(now: datetime) -> None:
    load_samples.take(now=now)
    counters.add("ingest", {"reports": 1_000})
    load_samples.take(now=now + 4 * INTERVAL)
    load_samples.take(now=now + 5 * INTERVAL)
    assert lines("load-reports", now + 5 * INTERVAL) == {"stored": [0.0], "refused": [0.0]}


def test_due_work_is_counted_with_its_wait(make: Any) -> None:
    world: World = make(nodes=1)
    load_samples.take(now=world.now)
    world.fault(79)
    world.now += timedelta(seconds=300)
    load_samples.take(now=world.now)
    assert lines("load-due", world.now) == {"rescues": [0, 0], "faults": [0, 1]}
    assert lines("load-waited", world.now) == {"wait": [0.0, 300.0]}


def test_a_day_is_kept(now: datetime) -> None:
    for number in range(300):
        load_samples.take(now=now + number * INTERVAL)
        load_samples.take(now=now + number * INTERVAL)
    last = now + 299 * INTERVAL
    assert LoadSample.objects.count() == 288
    kept = [last - number * INTERVAL for number in range(288)]
    assert [one.at for one in runtime.load_samples(now=last)] == kept[::-1]


def test_who_sees_one_cluster_does_not_see_the_load_of_all(person: Any, now: datetime) -> None:
    cluster = Cluster.objects.create(name="c1", created_at=now)
    for number in (1, 0):
        load_samples.take(now=timezone.now() - number * INTERVAL)
    whole, part = person("viewer"), person("viewer", cluster=cluster)
    assert 'id="load-title"' in whole.get("/system/").content.decode()
    assert [one.name for one in whole.get("/system/load/").context["charts"]] == [
        *("load-reports", "load-events", "load-due", "load-waited")
    ]
    assert 'id="load-title"' not in part.get("/system/").content.decode()
    assert part.get("/system/load/").status_code == 403
