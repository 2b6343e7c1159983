"""Lanes: one cluster's hanging calls leave threads to the others, and nothing that waited for one is forgotten."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue import tasks
from kcover_portal.rescue.engine import bulkhead
from kcover_portal.rescue.models import Rescue
from tests import waiting
from tests.portal.rescue.world import CORDON, World
from tests.waiting import HANG_SECONDS


def test_a_cluster_that_hangs_leaves_threads_to_the_others():
    made, go_on, done = bulkhead.Bulkhead(4), threading.Event(), []

    def hangs(number):
        def work():
            assert go_on.wait(HANG_SECONDS)
            done.append(number)

        return work

    other = threading.Event()
    with ThreadPoolExecutor(4) as threads:
        try:
            for number in range(20):
                threads.submit(made.run, 1, hangs(number), lanes=2)
            threads.submit(made.run, 2, other.set, lanes=2)
            assert other.wait(HANG_SECONDS), "the other cluster waits for the one that hangs"
        finally:
            go_on.set()
    assert sorted(done) == list(range(20))  # what had waited was taken on by the two that were in the lane


def test_where_there_is_one_cluster_it_has_all_threads_but_the_sweeps():
    made, inside, go_on = bulkhead.Bulkhead(4), threading.Semaphore(0), threading.Event()

    def work():
        inside.release()
        assert go_on.wait(HANG_SECONDS)

    with ThreadPoolExecutor(4) as threads:
        try:
            running = [threads.submit(made.run, 0, work, lanes=1) for _ in range(8)]
            for _ in range(3):
                assert inside.acquire(timeout=HANG_SECONDS)
            waiting.until(lambda: sum(one.done() for one in running) == 5, "the fourth thread to leave the rest")
            assert not inside.acquire(blocking=False)
        finally:
            go_on.set()
    for one in running:
        one.result()
    for _ in range(5):  # what had waited was taken on
        assert inside.acquire(blocking=False)


def test_a_failure_frees_its_place():
    made, begun, go_on, done = bulkhead.Bulkhead(1), threading.Event(), threading.Event(), []

    def fails():
        begun.set()
        assert go_on.wait(HANG_SECONDS)
        raise ValueError("this one")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(made.run, 1, fails, lanes=1)
        assert begun.wait(HANG_SECONDS)
        made.run(1, lambda: done.append("waited"), lanes=1)
        assert done == []
        go_on.set()
        with pytest.raises(ValueError, match="this one"):
            first.result(HANG_SECONDS)
    assert done == ["waited"]
    made.run(1, lambda: done.append("later"), lanes=1)
    assert done == ["waited", "later"]


def test_a_lane_has_a_bounded_length():
    made, begun, go_on, done = bulkhead.Bulkhead(1), threading.Event(), threading.Event(), []

    def first():
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(made.run, 1, first, lanes=1)
        assert begun.wait(HANG_SECONDS)
        for number in range(bulkhead.MAX_WAITING + 5):
            made.run(1, lambda number=number: done.append(number), lanes=1)
        go_on.set()
    assert done == list(range(bulkhead.MAX_WAITING))  # the sweep rings again for the rest


@pytest.mark.django_db
def test_a_task_takes_the_lane_of_its_rows_cluster(monkeypatch):
    world = World(policy=CORDON)
    other = Cluster.objects.create(name="c2", created_at=world.now, kubeconfig="fake")
    made, begun, go_on = bulkhead.Bulkhead(2), threading.Event(), threading.Event()
    monkeypatch.setattr(tasks, "cluster_lanes", made)
    monkeypatch.setattr(tasks, "COUNT_INTERVAL_SECONDS", 0.0)
    world.fault()
    [incident] = world.node().incidents.all()

    def hangs():
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    with ThreadPoolExecutor(1) as threads:
        try:
            threads.submit(made.run, world.cluster.pk, hangs, lanes=2)
            assert begun.wait(HANG_SECONDS)
            tasks.decide(incident.pk)
            assert not Rescue.objects.exists()  # its cluster's lane is taken: it waits there
        finally:
            made.drop_waiting()  # the rows of this test are seen by this thread only
            go_on.set()
    with ThreadPoolExecutor(1) as threads:
        begun.clear()
        go_on.clear()
        try:
            threads.submit(made.run, other.pk, hangs, lanes=2)
            assert begun.wait(HANG_SECONDS)
            tasks.decide(incident.pk)
            assert world.kube.get_node("gpu-1").unschedulable
        finally:
            go_on.set()
    world.uninstall()
