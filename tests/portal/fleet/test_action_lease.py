"""Leader election between portals: whatever fails and however clocks run, two of them never act together."""

import contextlib
import itertools
import random
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover import audit
from kcover_portal.console.reads import mode_banner
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import action_lease
from kcover_portal.fleet.services.cluster_settings import set_cluster
from kcover_portal.kube import connections, port, rights
from kcover_portal.ledger.models import Entry
from kcover_portal.operate import lease_watch
from kcover_portal.rescue.models import Rescue
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 27, 8, tzinfo=UTC)
CALLS = ("lease_holder", "claim_lease")


class Portal:
    """One portal's watch, with a wall clock of its own. Its database is a row of the same table."""

    def __init__(self, name: str, kube: FakeCluster, *, skew: float = 0.0) -> None:
        self.seconds, self.skew = 0.0, skew
        self.row = Cluster.objects.create(name=name, created_at=START, kubeconfig="fake", action_lease=True)
        self.uninstall = connections.install(self.row.pk, kube)
        self.start()

    def start(self) -> None:
        """A new process: nothing of the old one is left."""
        self.election = action_lease.Election(self.row, clock=self.clock, monotonic=lambda: self.seconds)

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.seconds + self.skew)

    def take_part(self) -> None:
        with contextlib.suppress(port.KubeError):
            self.election.take_part()

    def acts(self) -> bool:
        self.row.refresh_from_db(fields=("acts_until", "lease_holder", "decision_change"))
        return self.row.acts_until is not None and self.clock() < self.row.acts_until

    def pass_time(self, seconds: float, *, every: float = 2.0) -> None:
        for _ in range(int(seconds / every)):
            self.seconds += every
            self.take_part()


@pytest.fixture
def kube() -> FakeCluster:
    made = FakeCluster(clock=lambda: START)
    made.add_namespace(rights.LEASE_NAMESPACE)
    return made


@pytest.fixture
def two(kube: FakeCluster) -> Any:
    made = Portal("first", kube), Portal("second", kube, skew=-3600.0)
    yield made
    for one in made:
        one.uninstall()


def together(*portals: Portal, seconds: float, every: float = 2.0) -> None:
    for _ in range(int(seconds / every)):
        for one in portals:
            one.pass_time(every, every=every)
        assert sum(one.acts() for one in portals) <= 1


def test_one_portal_acts_and_the_other_takes_over_after_its_death(two: tuple[Portal, Portal]) -> None:
    first, second = two
    together(first, second, seconds=action_lease.GRACE_SECONDS - 2)
    assert not first.acts()  # a holder before it may still have a call under way
    together(first, second, seconds=4)
    assert (first.acts(), second.acts()) == (True, False)
    assert second.row.lease_holder == first.election.identity
    died = second.seconds
    while not second.acts():
        second.pass_time(2)
        first.seconds += 2
        assert not (first.acts() and second.acts())
    moved = audit.ActionLeaseMoved.VERB
    (taken,) = Entry.objects.filter(cluster="first", verb=moved)
    assert taken.data == {"cluster": "first", "before": "", "holder": first.election.identity, "own": True}
    owners = Entry.objects.filter(cluster="second", verb=moved).order_by("sequence")
    assert [entry.data["own"] for entry in owners] == [False, True]
    waited = second.seconds - died
    assert action_lease.LEASE_SECONDS + action_lease.GRACE_SECONDS <= waited <= 102
    first.pass_time(4)
    assert not first.acts()


def test_a_portal_that_leaves_releases_the_lease_after_its_pending_calls(two: tuple[Portal, Portal]) -> None:
    first, second = two
    together(first, second, seconds=90)
    first.election.leave()
    assert not first.acts()
    released = Entry.objects.filter(cluster="first", verb=audit.ActionLeaseMoved.VERB).latest("sequence")
    assert (released.data["before"], released.data["holder"]) == (first.election.identity, "")
    second.take_part()
    assert second.election.identity == Cluster.objects.get(name="second").lease_holder
    assert not second.acts()
    second.pass_time(action_lease.GRACE_SECONDS)
    assert second.acts()


def test_faults_are_decided_again_after_a_renewal_that_came_late(two: tuple[Portal, Portal]) -> None:
    first, _ = two
    first.pass_time(90)
    assert first.acts()
    change = first.row.decision_change
    first.pass_time(20)
    first.row.refresh_from_db()
    assert first.row.decision_change == change
    first.pass_time(action_lease.ACT_SECONDS, every=action_lease.ACT_SECONDS)
    first.row.refresh_from_db()
    assert first.row.decision_change != change


@pytest.mark.parametrize("mode", [{"mode": "shadow"}, {"mode": "paused"}, {"acted_on_by": "kcover"}, {"mode": None}])
def test_a_portal_that_may_not_act_does_not_hold_the_lease(
    two: tuple[Portal, Portal], kube: FakeCluster, mode: dict[str, Any], settings: Any
) -> None:
    first, _ = two
    if mode == {"mode": None}:
        settings.KCOVER_MODE, mode = "shadow", {}
    Cluster.objects.filter(pk=first.row.pk).update(**mode)
    first.pass_time(90)
    assert kube.lease_holder(rights.LEASE_NAMESPACE, action_lease.LEASE) is None
    settings.KCOVER_MODE = "enforce"
    Cluster.objects.filter(pk=first.row.pk).update(mode="enforce", acted_on_by="")
    first.pass_time(90)
    assert first.acts()
    Cluster.objects.filter(pk=first.row.pk).update(mode="paused")
    first.take_part()
    assert not first.acts()
    held = kube.lease_holder(rights.LEASE_NAMESPACE, action_lease.LEASE)
    assert held is not None
    assert held.holder == ""


FAILURES = (
    port.Conflict("409"),
    port.Unavailable("429", retry_after=1.0),
    port.Unavailable("500"),
    port.Unavailable("cut", ambiguous=True),
    port.RefusedByServer("403"),
)


@pytest.mark.parametrize(("call", "after"), [*itertools.product(CALLS, (False, True))])
def test_the_election_survives_each_failure_of_each_call(
    two: tuple[Portal, Portal], kube: FakeCluster, call: str, after: bool
) -> None:
    """``after``: the API server did it, and its answer was lost."""
    first, second = two
    for failure in FAILURES:
        together(first, second, seconds=110, every=5)
        real = getattr(kube, call)

        def failing(*given: Any, real: Any = real, failure: port.KubeError = failure) -> Any:
            if after:
                real(*given)
            raise failure

        setattr(kube, call, failing)
        together(first, second, seconds=6)  # shorter than the holder may act
        assert first.acts() or second.acts()
        together(first, second, seconds=20)
        assert not first.acts()
        assert not second.acts()
        setattr(kube, call, real)
    together(first, second, seconds=110)
    assert first.acts() != second.acts()


def test_no_two_act_together_through_a_thousand_rounds_of_trouble(kube: FakeCluster) -> None:
    rng = random.Random(7)
    portals = [Portal(f"p{number}", kube, skew=rng.uniform(-1e5, 1e5)) for number in range(3)]
    acted = set()
    frozen = dict.fromkeys(portals, 0)
    for _ in range(1000):
        for one in portals:
            one.seconds += 2
            if frozen[one]:
                frozen[one] -= 1
            elif rng.random() < 0.01:
                one.start()
            elif rng.random() < 0.02:
                frozen[one] = rng.randrange(40)  # its process hangs, or its network is away
            else:
                one.take_part()
        acting = [one.row.name for one in portals if one.acts()]
        assert len(acting) <= 1
        acted.update(acting)
    assert acted == {"p0", "p1", "p2"}
    for one in portals:
        one.uninstall()


def test_without_the_lease_the_portal_runs_in_shadow_and_names_the_holder() -> None:
    world = World(policy=CORDON)
    try:
        set_cluster(world.cluster, {"action_lease": True}, actor="user:root", reason="", now=world.now)
        Cluster.objects.update(lease_holder="other-host_1")
        assert queries.mode_now(world.cluster)[0] == "shadow"
        world.fault(62)
        world.work()
        assert not Rescue.objects.exists()
        assert world.kube.writes == []
        world.cluster.refresh_from_db()
        assert "other-host_1" in mode_banner._why(world.cluster)
        Cluster.objects.update(acts_until=timezone.now() + timedelta(hours=1))
        assert queries.mode_now(world.cluster)[0] == "enforce"
        world.cluster.refresh_from_db()
        assert mode_banner._why(world.cluster) == ""
    finally:
        world.uninstall()


def test_the_action_lease_is_off_by_default() -> None:
    assert not Cluster().action_lease
    assert queries.own_mode(Cluster(mode="enforce")) == "enforce"


class Once(threading.Event):
    """Stops after one round."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.django_db(transaction=True)  # the watch closes connections that are in a transaction
def test_the_watch_takes_part_and_releases_the_lease_when_it_stops(
    two: tuple[Portal, Portal], kube: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = two
    lease_watch.LeaseWatch(first.row, clock=first.clock, stop=Once()).run()
    held = kube.lease_holder(rights.LEASE_NAMESPACE, action_lease.LEASE)
    assert held is not None
    assert (held.holder, held.transitions) == ("", 0)

    def away(*_: object) -> None:
        raise port.Unavailable("away")

    kube.lease_holder = away
    lease_watch.LeaseWatch(first.row, clock=first.clock, stop=Once()).run()
    assert [line.levelname for line in caplog.records if line.name == lease_watch.__name__] == ["WARNING"]
