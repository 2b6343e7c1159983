"""Invariants 2, 8, 29, 45 with many threads on a real database, each with a connection of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection, transaction

from kcover import reasons
from kcover.faults.fault import Fault
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Decision, Rescue
from tests import waiting
from tests.portal.rescue.world import CORDON, HEAL, NODE, PCI, World
from tests.portal.row_locks import another_session_waits

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread"),
]
OFF = {"storm": {"enabled": False}, "rate": {"enabled": False}}
TOGETHER = 6


@pytest.fixture
def make(make: Callable[..., World]) -> Callable[..., World]:
    def world(policy: str, *, nodes: int = 1, **guards: object) -> World:
        one = make(policy, nodes=nodes)
        cluster_settings.set_guards(one.cluster, {**OFF, **guards}, actor="test", reason="", now=one.now)
        return one

    return world


def at_once(acts: Sequence[Callable[[], object]]) -> list[object]:
    """Runs all of them in the same moment; their answers, or the exceptions that they raised."""
    start = Barrier(len(acts))

    def run(act: Callable[[], object]) -> object:
        start.wait(60)
        try:
            return act()
        except services.RescueRefused as refusal:
            return refusal
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_inv_02_one_batch_delivered_concurrently_counts_once(make: Callable[..., World]) -> None:
    world = make(CORDON)
    batch = "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11"
    fault = Fault(kind="xid", code=62, pci="0000:4e:00", source="kmsg", sequence=7)
    boot = world.kube.get_node(NODE).boot_id
    answers = at_once([lambda: world.report(fault, batch=batch, boot_id=boot)] * TOGETHER)
    assert sorted(answer.accepted for answer in answers) == [0] * (TOGETHER - 1) + [1]
    assert Incident.objects.get().count == 1


def test_inv_08_concurrent_decisions_open_one_rescue(make: Callable[..., World]) -> None:
    world = make(HEAL)
    for slot in range(TOGETHER):
        world.fault(62, pci=f"0000:{slot:02x}:00")
    due = list(Incident.objects.values_list("pk", flat=True))
    at_once([lambda pk=pk: services.decide(pk, now=world.now) for pk in due])
    assert Rescue.objects.count() == 1
    assert Decision.objects.filter(answer="hold").count() == TOGETHER - 1


def test_inv_08_one_worker_at_a_time_works_on_a_rescue(make: Callable[..., World]) -> None:
    world = make(HEAL)
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    [rescue] = [services.decide(pk, now=world.now) for pk in Incident.objects.values_list("pk", flat=True)]
    for _ in range(6):
        at_once([lambda: services.run(rescue.pk, clock=world.clock)] * TOGETHER)
        world.now += timedelta(seconds=6)  # in all longer than a reboot waits for evidence
        world.kube.finish_deletions()
    assert len(world.kube.called("evict")) == 1
    assert len(world.kube.called("ensure_job")) == 1


@pytest.mark.parametrize(("limit", "isolated"), [(2, 2), ("50%", 3)])
def test_inv_29_simultaneous_faults_isolate_no_more_than_the_limit(
    make: Callable[..., World], limit: int | str, isolated: int
) -> None:
    world = make(CORDON, nodes=TOGETHER, breaker={"enabled": True, "limit": limit})
    for number in range(1, TOGETHER + 1):
        world.fault(62, node=f"gpu-{number}")
    due = list(Incident.objects.values_list("pk", flat=True))
    at_once([lambda pk=pk: services.decide_and_run([pk], clock=world.clock) for pk in due])
    cordoned = [node.name for node in world.kube.list_nodes().items if node.unschedulable]
    assert len(cordoned) == isolated
    assert Decision.objects.filter(answer="hold").count() == TOGETHER - isolated


def test_inv_45_concurrent_approvals_cause_one_execution(make: Callable[..., World]) -> None:
    world = make(
        HEAL.replace("rescue.ksyun.com", "kcover.io").replace("priority: 10", "priority: 10\n      mode: approve")
    )
    world.fault(62)
    world.work()
    rescue = world.rescue()
    answers = at_once(
        [lambda n=n: services.approve(rescue, actor=f"user:{n}", reason="", now=world.now) for n in range(TOGETHER)]
    )
    assert sum(isinstance(answer, Rescue) for answer in answers) == 1
    assert Approval.objects.count() == 1
    world.until_reboot_is_asked()
    assert len(world.kube.called("ensure_job")) == 1


class Closing:
    """A fault that a person closes, and a source that tells the same line late, each in a thread of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.fault(62)
        self.row = Incident.objects.get()
        world.now += timedelta(seconds=3)

    def close(self) -> None:
        why = reasons.with_why("node_taken_back", "looked at", by="user:ada")
        asked_at = self.row.last_at + timedelta(seconds=1)
        incidents.close([self.row.pk], because=why, actor="user:ada", before=asked_at, now=self.world.now)

    def tell(self) -> None:
        at = self.row.last_at
        one = {"kind": "xid", "code": 62, "pci": PCI, "source": "loki", "witness": "loki", "severity": "fatal"}
        seen = incidents.SourceFault(**one, seen_at=at, earliest=at)
        incidents.ingest_observed("loki", [(self.world.node(), seen)], [], now=self.world.now)

    def one_after_the_other(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """The second act has read the incident, and waits for its row while the first is done."""

        def run() -> None:
            try:
                second()
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                first()
                other = pool.submit(run)
                waiting.until(lambda: other.done() or another_session_waits(), "an act that waits for the row")
            other.result(60)


@pytest.mark.parametrize("is_told_first", [False, True])
def test_inv_55_a_late_line_that_meets_the_closing_of_its_incident_is_not_new(
    make: Callable[..., World], *, is_told_first: bool
) -> None:
    one = Closing(make(CORDON))
    acts = (one.tell, one.close) if is_told_first else (one.close, one.tell)
    one.one_after_the_other(*acts)
    found = Incident.objects.get()
    assert (found.state, found.count) == ("closed", 2)
