"""Invariants 13 and 14 on the engine: a worker dies at every write and every call; everything is delivered twice."""

import itertools
import os
import traceback
from multiprocessing.pool import Pool

import pytest
from django.db import connection, transaction

from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import lease
from tests.invariants.conftest import DATABASES
from tests.invariants.observed_cluster import ObservedCluster
from tests.invariants.testbed import Killed
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import HEAL, NODE, World
from tests.share import in_share

pytestmark = pytest.mark.django_db
PARTS = 40  # of the boundaries, each a test, so that workers share them
SHARES = 8  # a run has an eighth of the parts; the commit chooses which
PIPE_BYTES = 50_000  # less than a pipe holds


class Mortal(World):
    """A world whose workers die once, at the boundary with this number: a write to the database, a call, its answer."""

    def __init__(self, *, dies_at: int) -> None:
        super().__init__(policy=HEAL, fake=ObservedCluster)
        self.left, self.died = dies_at, False
        self.boots = [self.kube.get_node(NODE).boot_id]
        for number in range(2):
            self.kube.add_pod("default", f"train-{number}", node=NODE, labels={"app": "train"})

    def work(self) -> None:
        self.kube.moment = lambda *_call: self._boundary()
        try:
            with connection.execute_wrapper(self._sql):
                super().work()
        except Killed:
            self.now += lease.TIME
        finally:
            self.kube.moment = lambda *_call: None

    def heal(self) -> Rescue:
        """The whole story; the machine does what jobs ask, and its agent reports."""
        self.fault(62)
        for _ in range(60):
            self.work()
            for job in self.kube.objects.list("Job"):
                if not job.get("status"):
                    self.kube.finish_job(job["metadata"]["namespace"], job["metadata"]["name"])
                    self.boots.append(self.kube.reboot(NODE))
            self.kube.heard.setdefault((NODE, self.boots[-1]), []).append(self.now)
            self.report()
            found = Rescue.objects.first()
            if found is not None and found.state in ("succeeded", "failed", "cancelled", "held"):
                return found
            self.pass_time(3)
        raise AssertionError("it never ends")

    def _sql(self, execute, sql, *rest):
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self._boundary()
        return execute(sql, *rest)

    def _boundary(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.died = True
            raise Killed


def parts(*, in_memory: bool) -> list[int]:
    """The parts of this run. One in five of each share is on the database of the tests."""
    shared = [part for part in range(PARTS) if in_share(part, shares=SHARES)]
    return [part for part in shared if bool(part // SHARES % DATABASES) is in_memory]


def die_everywhere(part: int) -> None:
    """A story for each boundary of this part, each with a death there."""
    for at in itertools.count(part + 1, PARTS):
        print(f"boundary {at}")  # pytest shows it with a failure
        with transaction.atomic():
            world = Mortal(dies_at=at)
            must_be_healed(world, world.heal())
            world.uninstall()
            connection.run_on_commit.clear()
            transaction.set_rollback(True)
        if not world.died:
            assert at > 50  # there are so many, or this has stopped looking
            return


def must_be_healed(world: Mortal, rescue: Rescue) -> None:
    assert (rescue.state, rescue.outcome, rescue.marks) == ("succeeded", "healed", {})
    assert not world.kube.get_node(NODE).unschedulable
    assert Incident.objects.get().state == "closed"
    assert len(world.boots) == 2, world.boots
    asked = [call.name for call in world.kube.called("evict")]
    assert len(asked) == len(set(asked)) == 2, asked
    assert len(world.kube.objects.list("Job")) == 1
    assert ledger.verify("c1").intact


class Forked(Mortal):
    """A story that nobody interrupts. At each boundary of a part a fork of the process goes on with a dead worker.

    What came before a boundary runs once for all of them. Only a database in memory can be forked.
    """

    def __init__(self, part: int) -> None:
        super().__init__(dies_at=0)
        self.part, self.failures = part, list[str]()
        self.told = -1  # where a fork writes what went wrong

    def _boundary(self) -> None:
        self.left -= 1
        if self.died or (-self.left - 1) % PARTS != self.part:
            return
        heard, told = os.pipe()
        process = os.fork()
        if process == 0:
            self.died, self.told = True, told
            raise Killed
        os.close(told)
        with os.fdopen(heard) as pipe:
            failure = pipe.read()
        _, status = os.waitpid(process, 0)
        if failure or status:
            self.failures.append(f"boundary {-self.left}: status {status}: {failure}")


def die_in_memory(part: int) -> tuple[int, list[str]]:
    """Returns the number of boundaries, and what went wrong after deaths at those of this part."""
    with transaction.atomic():
        world, failure = Forked(part), ""
        try:
            must_be_healed(world, world.heal())
        except Exception:
            failure = traceback.format_exc()
        if world.died:
            os.write(world.told, failure.encode()[-PIPE_BYTES:])
            os._exit(0)
        world.uninstall()
        connection.run_on_commit.clear()
        transaction.set_rollback(True)
    return -world.left, [*world.failures, *filter(None, [failure])]


@pytest.mark.parametrize("part", parts(in_memory=False))
def test_inv_13_a_worker_that_dies_at_any_boundary_does_not_change_the_outcome(part: int) -> None:
    die_everywhere(part)


@pytest.mark.parametrize("part", parts(in_memory=True))
def test_inv_13_a_worker_that_dies_in_memory_does_not_change_the_outcome(soak_process: Pool, part: int) -> None:
    """The other boundaries."""
    boundaries, failures = soak_process.apply(die_in_memory, (part,))
    assert failures == []
    assert boundaries > 50


def test_inv_14_repeated_and_lost_messages_repeat_no_call(world: World) -> None:
    """The broker delivers each message again, to a worker that finds the work done; and forgets every later one."""
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)

    def twice() -> None:
        for _ in range(2):
            for pk in Incident.objects.values_list("pk", flat=True):
                services.decide_and_run([pk], clock=world.clock)
            for pk in Rescue.objects.values_list("pk", flat=True):
                services.run(pk, clock=world.clock)
                services.run(pk, clock=world.clock)

    for _ in range(8):
        twice()
        world.pass_time()
    world.reboot()
    for _ in range(15):
        twice()
        world.pass_time()
    assert world.rescue().outcome == "healed"
    assert Rescue.objects.count() == 1
    assert len(world.kube.called("evict")) == 1
    assert len(world.kube.called("ensure_job")) == 1
    assert isinstance(world.kube, FakeCluster)
