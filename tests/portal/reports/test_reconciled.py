"""Reports agree with the audit log: an engine runs a random history, and both are counted independently."""

import contextlib
import random
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from kcover import audit
from kcover.reports.records import By
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.reports import records, reliability
from kcover_portal.reports.records import Part
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.world import CORDON, HEAL, World

pytestmark = pytest.mark.django_db
NODES = ("gpu-1", "gpu-2", "gpu-3")
ISOLATE, RETURN = ("cordon.done",), ("uncordon.done", "release.done")


def live(world: World, chance: random.Random, rounds: int) -> None:
    """A history with faults, repairs, people and other systems."""
    for _ in range(rounds):
        node = chance.choice(NODES)
        match chance.randrange(8):
            case 0 | 1:
                world.fault(chance.choice((62, 79)), node=node)
            case 2:
                world.reboot(node)
            case 3:
                verb = chance.choice(("cordon", "uncordon", "release"))
                with contextlib.suppress(services.RescueRefused):
                    services.request(world.node(node), verb, actor="user:ann", reason="so", now=world.now)
            case 4:
                world.kube.uncordon(node)
                world.sync()
                services.reconcile(now=world.now)
            case 5:
                for rescue in Rescue.objects.filter(node__name=node, state__in=("held", "waiting", "running")):
                    with contextlib.suppress(services.RescueRefused):
                        services.cancel(rescue, actor="user:ann", reason="so", now=world.now)
        world.pass_time(chance.randrange(1, 300))


def isolated_in_the_ledger(node: str, *, since: datetime, until: datetime) -> timedelta:
    """The time between the answers of calls that isolated and returned the node."""
    found, begun = timedelta(0), None
    entries: Iterable[Entry] = Entry.objects.filter(node=node, at__lt=until).order_by("sequence")
    for entry in entries:
        act = audit.from_entry(entry)
        if not isinstance(act, audit.ClusterCallDone) or not isinstance(act.answer, audit.NodePatched):
            continue
        if entry.verb in ISOLATE and begun is None:
            begun = entry.at
        elif entry.verb in RETURN and begun is not None and not act.answer.after.unschedulable:
            found += max(timedelta(0), entry.at - max(begun, since))
            begun = None
    return found + (timedelta(0) if begun is None else until - max(begun, since))


@pytest.mark.parametrize("seed", [11])
def test_isolations_rescues_and_faults_agree_with_the_audit_log(seed: int) -> None:
    world = World(policy=HEAL, nodes=3)
    try:
        policies.apply(CORDON.replace('"62"', '"79"'), author="test", reason="", now=world.now)
        began = world.now
        live(world, random.Random(seed), 40)
        middle, everything = began + (world.now - began) / 2, Scope(True, frozenset(), {})
        for since, until in ((began, world.now), (middle, world.now), (began, middle)):
            found = records.read(Part(everything), since=since, until=until)
            for name in NODES:
                pk = Node.objects.get(name=name).pk
                mine = (one.time.within(since, until) for one in found.isolations if one.node == pk)
                assert sum(mine, timedelta(0)) == isolated_in_the_ledger(name, since=since, until=until), name
            report = reliability.reliability(everything, None, By.CODE, reliability.Period(since, until))
            opened = Incident.objects.filter(opened_at__gte=since, opened_at__lt=until)
            assert report.now.total.faults == sum(row.faults for row in report.rows) == opened.count()
            ended = Entry.objects.filter(verb__in=("rescue.succeeded", "rescue.failed"), at__gte=since, at__lt=until)
            by_hand = Rescue.objects.filter(origin=Rescue.Origin.MANUAL).values("pk")
            assert report.now.total.ended == ended.exclude(rescue__in=by_hand).count()
            assert sum((row.gpu_time for row in report.phases), timedelta(0)) == report.now.total.gpu_time
        whole = records.read(Part(everything), since=began, until=world.now).isolations
        assert len(whole) > 5
        assert {one.time.until is None for one in whole} == {True, False}
    finally:
        world.uninstall()
