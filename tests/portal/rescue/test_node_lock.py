"""At most one act in flight on a node (invariant 8): its rescue, a withdrawal, another rescue's standby take turns.

Each test does something in the middle of a call to the cluster, where another worker would.
"""

from collections.abc import Callable, Sequence

import pytest

from kcover import audit, reasons
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.engine import runner, standby_cleanup
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import lease, node_lock
from tests.codes import codes_of
from tests.portal.rescue.test_actions_standby import make
from tests.portal.rescue.test_revoke import jobs, withdraw
from tests.portal.rescue.worker_kills import Killed, kill_at
from tests.portal.rescue.world import NODE, World

__all__ = ["make"]  # the fixture

pytestmark = pytest.mark.django_db

WRITES = ("apply_node", "evict", "delete_pod", "ensure_job", "delete_job")


class Flight:
    """Which calls are under way, and what happens in their middle."""

    def __init__(self, world: World, verbs: Sequence[str] = WRITES) -> None:
        self.under_way, self.most = 0, 0
        self.after: list[tuple[str, Callable[[], object]]] = []
        for verb in verbs:
            setattr(world.kube, verb, self._flying(verb, getattr(world.kube, verb)))

    def during(self, verb: str, act: Callable[[], object]) -> None:
        """In the middle of the next call of that verb."""
        self.after.append((verb, act))

    def _flying(self, verb: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                if self.after and self.after[0][0] == verb:
                    self.after.pop(0)[1]()
                return real(*args, **more)
            finally:
                self.under_way -= 1

        return call


def workers(world: World) -> None:
    """Everything that other workers would find to do."""
    withdraw(world)
    for pk in Rescue.objects.values_list("pk", flat=True):
        services.run(pk, clock=world.clock)


def cancel(world: World) -> None:
    services.cancel(world.rescue(), actor="user:anna", reason="not now", now=world.now)


def uncordon(world: World) -> Rescue:
    return services.request(world.node(), "uncordon", actor="user:anna", reason="", now=world.now)


def asked(world: World) -> Flight:
    """A reboot whose job is on the cluster and has not run."""
    world.fault(62)
    world.until_reboot_is_asked()
    return Flight(world)


def test_inv_08_a_rescue_waits_for_a_running_withdrawal(world: World) -> None:
    flight = asked(world)
    cancel(world)

    def asked_for_and_worked_on() -> None:
        uncordon(world)
        workers(world)

    flight.during("delete_job", asked_for_and_worked_on)
    withdraw(world)
    assert (flight.after, flight.most) == ([], 1)
    assert jobs(world) == []
    assert world.rescue().state == "running"
    world.work()  # the turn was given back: it is not waited for
    assert world.rescue().state == "succeeded"
    assert not world.kube.get_node(NODE).unschedulable


def test_inv_08_a_withdrawal_waits_for_the_running_rescue(world: World) -> None:
    flight = asked(world)
    cancel(world)
    uncordon(world)
    flight.during("delete_job", lambda: workers(world))  # the uncordon calls it back itself, first of all
    world.work()
    assert (flight.after, flight.most) == ([], 1)
    withdrawn = Entry.objects.filter(verb="withdraw.done", subject__startswith="job ")
    assert withdrawn.count() == 1
    assert world.rescue().state == "succeeded"
    world.pass_time(lease.TIME.total_seconds())
    withdraw(world)
    assert queries.to_withdraw(now=world.now + lease.TIME) == []


def test_inv_08_a_request_after_a_cancel_waits_for_the_running_call(world: World) -> None:
    flight = Flight(world)

    def cut_short() -> None:
        cancel(world)
        uncordon(world)
        workers(world)

    flight.during("apply_node", cut_short)
    world.fault(62)
    world.work()
    assert (flight.after, flight.most) == ([], 1)
    assert world.node().locked_until is None  # whoever came back too late gave the turn back
    world.work()
    assert world.rescue().state == "succeeded"
    assert not world.kube.get_node(NODE).unschedulable


def test_a_rescue_that_is_ended_before_its_worker_begins_leaves_no_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call was made under the lease, and none will be."""
    world.fault(62)
    for pk in world.node().incidents.values_list("pk", flat=True):
        services.decide(pk, now=world.now)
    go_on = runner.go_on

    def cancelled_first(*args: object, **more: object) -> None:
        cancel(world)
        go_on(*args, **more)

    monkeypatch.setattr(runner, "go_on", cancelled_first)
    world.work()
    assert world.rescue().state == "cancelled"
    assert world.kube.writes == []
    assert world.node().locked_until is None


@pytest.mark.parametrize("at", ["get_node", "apply_node", "cordoned again", "before"])
def test_a_held_rescue_that_is_ended_during_a_look_leaves_no_lock(
    world: World, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody uncordoned its node; what the look had begun has its end in the ledger."""
    type(world.cluster).objects.update(ready_within=60)
    world.fault(62)
    world.until_reboot_is_asked()
    world.until("held", seconds=30)
    world.kube.uncordon(NODE)

    def ended() -> None:
        cancel(world)
        if at == "cordoned again":
            world.kube.cordon(NODE)

    flight = Flight(world, (*WRITES, "get_node"))
    world.sync()
    if at == "before":
        real = runner.check_held_node

        def cancelled(*args: object) -> None:
            cancel(world)
            real(*args)

        monkeypatch.setattr(runner, "check_held_node", cancelled)
        services.run(world.rescue().pk, clock=world.clock)
    else:
        flight.during(at.replace("cordoned again", "get_node"), ended)
    world.work()
    assert world.rescue().state == "cancelled"
    assert world.node().locked_until is None
    assert flight.after == []
    assert codes_of(world.rescue().because)[0] in ("cancelled_by", "cancelled_by_because")
    reported = Entry.objects.filter(rescue=world.rescue().pk, verb__startswith="yield.").values_list("verb", flat=True)
    assert sorted(reported) == (["yield.begun", "yield.done"] if at == "apply_node" else [])


def test_inv_08_a_lock_is_not_extended_while_the_nodes_own_rescue_runs(world: World) -> None:
    """The turn ran out, and the rescue did not wait any longer."""
    refused: list[node_lock.Busy] = []
    with node_lock.acquire(world.node(), clock=world.clock) as lock:
        world.now += lease.TIME

        def in_its_middle() -> None:
            with pytest.raises(node_lock.Busy) as busy:
                lock.renew(now=world.now)
            refused.append(busy.value)

        Flight(world).during("apply_node", in_its_middle)
        world.fault(62)
        world.work()
    assert refused[0].reason == reasons.of("node_call_in_flight", node="gpu-1")


def test_a_step_that_breaks_under_an_ended_rescue_leaves_no_lock(world: World) -> None:
    def ended_and_broken() -> None:
        cancel(world)
        raise KeyError("a mistake of ours")

    Flight(world).during("apply_node", ended_and_broken)
    world.fault(62)
    with pytest.raises(KeyError):
        world.work()
    assert world.rescue().state == "cancelled"
    assert world.node().locked_until is None


def test_a_lease_taken_with_the_decision_begins_at_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging may queue for the node and for the counts, in a storm for long."""
    of, leases = queries.Situations.of, []

    def slowly(self: queries.Situations, node: Node) -> object:
        world.now += lease.TIME / 2
        return of(self, node)

    monkeypatch.setattr(queries.Situations, "of", slowly)
    Flight(world).during("apply_node", lambda: leases.append(world.rescue().lease_until - world.now))
    world.fault(62)
    for pk in world.node().incidents.values_list("pk", flat=True):
        services.decide_and_run([pk], clock=world.clock)
    assert leases == [lease.TIME]


@pytest.mark.parametrize("at", ["list_pods", "evict"])
def test_inv_08_a_call_of_a_later_step_releases_the_lock_too(world: World, at: str) -> None:
    """The lease was renewed since the worker claimed it: with the step that ended, and before each write."""
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_pod("default", "train-1", node=NODE, labels={"app": "train"})
    flight = Flight(world, (*WRITES, "list_pods"))

    def pass_time() -> None:
        world.now += lease.TIME / 2

    flight.during("apply_node", pass_time)
    if at == "evict":
        flight.during("evict", pass_time)
    flight.during(at, lambda: cancel(world))
    world.fault(62)
    world.work()
    assert (flight.after, flight.most) == ([], 1)
    assert Rescue.objects.get().state == "cancelled"
    assert world.node().locked_until is None


@pytest.mark.parametrize("ends", ["replaced", "too late"])
def test_a_rescue_that_its_own_worker_ends_leaves_no_lock(world: World, ends: str) -> None:
    """There is no call under way: what comes next on the node need not wait."""
    world.fault(62)
    if ends == "replaced":
        world.work()
        world.kube.delete_node(NODE)
        world.sync()
        world.kube.add_node(NODE, gpus=8)
        world.sync()
    else:
        for pk in world.node().incidents.values_list("pk", flat=True):
            services.decide(pk, now=world.now)
        world.node().incidents.update(state="closed", closed_at=world.now)
    Rescue.objects.update(due_at=world.now)
    for pk in Rescue.objects.values_list("pk", flat=True):
        services.run(pk, clock=world.clock)
    assert world.rescue().state == "cancelled"
    assert world.node().locked_until is None


def test_releasing_a_lock_wakes_the_waiting_rescue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    flight, rung = asked(world), []
    cancel(world)
    flight.during("delete_job", lambda: uncordon(world))
    monkeypatch.setattr(node_lock.doorbell, "ring", lambda *call: rung.append(call))
    withdraw(world)
    waits = ("rescue.run", world.rescue().pk)
    assert rung == [waits, waits]  # when it was asked for, and now


def test_inv_08_the_lock_of_a_dead_worker_expires(world: World) -> None:
    asked(world)
    cancel(world)
    kill_at(world.kube, "delete_job", call=1, after=False)
    with pytest.raises(Killed):
        withdraw(world)
    uncordon(world)
    world.pass_time(lease.TIME.total_seconds() - 1)
    assert world.rescue().state == "running"
    world.pass_time(1)
    assert world.rescue().state == "succeeded"
    assert jobs(world) == []


def test_inv_09_an_expired_lease_is_lost_to_a_withdrawal(world: World) -> None:
    """Its worker may only be slow: the patch that it was about to make would meet the withdrawal."""
    asked(world)
    cancel(world)
    services.request(world.node(), "cordon", actor="user:anna", reason="", now=world.now)
    apply_node = world.kube.apply_node

    def slowly(name: str, wanted: port.DesiredChange, **more: object) -> object:
        def late(node: port.Node) -> port.NodeChange:
            world.now += lease.TIME
            withdraw(world)
            return wanted(node)

        world.kube.apply_node = apply_node
        return apply_node(name, late, **more)

    world.kube.apply_node = slowly
    world.work()
    assert jobs(world) == []
    failed = audit.ClusterCallFailed.of_entry(Entry.objects.get(verb="cordon.failed"))
    assert failed.because.code == "lease_lost"
    world.work()
    assert world.rescue().state == "succeeded"


class TestStandby:
    """The standby of one rescue may come to have a rescue of its own."""

    @pytest.fixture
    def world(self, make: Callable[..., World]) -> World:
        return make("spare-1")

    def test_inv_08_the_rescue_of_a_spare_waits_for_its_assignment(self, world: World) -> None:
        flight = Flight(world)

        def its_own() -> None:
            services.request(world.node("spare-1"), "cordon", actor="user:anna", reason="", now=world.now)
            for pk in Rescue.objects.filter(node__name="spare-1").values_list("pk", flat=True):
                services.run(pk, clock=world.clock)

        world.fault(62)
        on_spare(flight, world, its_own)
        world.work()
        assert (flight.after, flight.most) == ([], 1)
        assert world.rescue("spare-1").state == "running"
        world.work()
        assert world.rescue("spare-1").state == "succeeded"

    def test_inv_08_a_spare_is_put_into_service_when_its_own_rescue_is_idle(self, world: World) -> None:
        flight = Flight(world)
        rescue = promised(world)
        services.request(world.node("spare-1"), "cordon", actor="user:anna", reason="", now=world.now)
        flight.during("apply_node", lambda: services.run(rescue.pk, clock=world.clock))
        services.run(world.rescue("spare-1").pk, clock=world.clock)
        assert (flight.after, flight.most) == ([], 1)
        assert world.step("standby").why == reasons.of("node_call_in_flight", node="spare-1")

    def test_inv_08_a_spare_is_given_back_when_no_rescue_works_on_it(self, world: World) -> None:
        promised(world)
        flight = Flight(world)
        cancel(world)
        services.request(world.node("spare-1"), "cordon", actor="user:anna", reason="", now=world.now)
        flight.during("apply_node", lambda: standby_cleanup.tidy(clock=world.clock))
        services.run(world.rescue("spare-1").pk, clock=world.clock)
        assert (flight.after, flight.most) == ([], 1)
        assert standby_cleanup.tidy(clock=world.clock) == 1

    def test_inv_08_the_rescue_of_a_spare_waits_for_its_return(self, world: World) -> None:
        promised(world)
        flight = Flight(world)
        cancel(world)
        services.request(world.node("spare-1"), "cordon", actor="user:anna", reason="", now=world.now)
        flight.during("apply_node", lambda: services.run(world.rescue("spare-1").pk, clock=world.clock))
        assert standby_cleanup.tidy(clock=world.clock) == 1
        assert (flight.after, flight.most) == ([], 1)
        assert world.node("spare-1").locked_until is None
        assert world.rescue("spare-1").state == "running"

    def test_inv_08_a_fault_on_a_spare_waits_for_its_return(self, world: World) -> None:
        promised(world)
        flight = Flight(world)
        cancel(world)
        world.fault(62, node="spare-1")
        [fault] = world.node("spare-1").incidents.values_list("pk", flat=True)
        flight.during("apply_node", lambda: services.decide_and_run([fault], clock=world.clock))
        assert standby_cleanup.tidy(clock=world.clock) == 1
        assert (flight.after, flight.most) == ([], 1)
        assert world.rescue("spare-1").state == "running"

    @pytest.mark.parametrize("by", ["a rescue", "nobody's"])
    def test_inv_08_a_lock_that_expires_during_a_write_is_lost(self, world: World, by: str) -> None:
        """Reading the node took so long that somebody else came and went."""
        rescue = promised(world)
        if by == "nobody's":
            cancel(world)
        apply_node = world.kube.apply_node

        def slowly(name: str, wanted: port.DesiredChange, *, expect: Callable[[port.Node], None]) -> object:
            def late(node: port.Node) -> None:
                world.now += lease.TIME
                with node_lock.acquire(world.node("spare-1"), clock=world.clock):
                    pass
                expect(node)

            world.kube.apply_node = apply_node
            return apply_node(name, wanted, expect=late)

        world.kube.apply_node = slowly
        before = world.kube.get_node("spare-1")
        if by == "nobody's":
            assert standby_cleanup.tidy(clock=world.clock) == 0
        else:
            services.run(rescue.pk, clock=world.clock)
        assert world.kube.get_node("spare-1") == before
        failed = Entry.objects.filter(node="spare-1", verb__endswith=".failed")
        because = [audit.ClusterCallFailed.of_entry(one).because for one in failed]
        assert because.count(reasons.of("node_lock_expired", node="spare-1")) == 1


def on_spare(flight: Flight, world: World, act: Callable[[], object]) -> None:
    """In the middle of the second write to a node: the first isolates the one that failed."""
    flight.during("apply_node", lambda: flight.during("apply_node", act))


def promised(world: World) -> Rescue:
    """A rescue that waits with its standby promised, whose API server broke off before it was put into service."""
    apply_node, written = world.kube.apply_node, []

    def only_once(name: str, *args: object, **more: object) -> object:
        if name == "spare-1" and written:
            raise port.Unavailable("down")
        written.extend([name] if name == "spare-1" else [])
        return apply_node(name, *args, **more)

    world.kube.apply_node = only_once
    world.fault(62)
    world.work()
    world.kube.apply_node = apply_node
    Rescue.objects.filter(state="waiting").update(due_at=world.now)
    return world.rescue()
