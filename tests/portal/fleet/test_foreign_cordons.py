"""Cordons by others: when they began and ended, beside those of the portal, and in the history of a node."""

from datetime import timedelta

from kcover.nodes.node_history import NODE, Out
from kcover_portal.fleet.models import ForeignCordon
from kcover_portal.fleet.services import foreign_cordons
from kcover_portal.runtime.services import retention
from kcover_portal.shared_reads import node_history
from tests.portal.rescue.world import CORDON, World


def cordons(world: World) -> list[tuple[str, bool]]:
    rows = ForeignCordon.objects.order_by("pk").values_list("node__name", "ended_at")
    return [(name, ended is not None) for name, ended in rows]


def test_a_cordon_by_others_is_kept_from_its_start_to_its_end_and_shown(db):
    world = World(policy=CORDON, nodes=3)
    try:
        world.fault(62, node="gpu-1")  # the portal cordons this one
        world.work()
        world.kube.cordon("gpu-2")
        world.sync()
        assert world.kube.get_node("gpu-1").unschedulable
        for _ in range(2):
            foreign_cordons.look(now=world.now)
        assert cordons(world) == [("gpu-2", False)]
        began = world.now
        world.now = began + timedelta(hours=3)
        world.kube.cordon("gpu-3")
        world.kube.uncordon("gpu-2")
        world.sync()
        foreign_cordons.look(now=world.now)
        assert cordons(world) == [("gpu-2", True), ("gpu-3", False)]
        [lane, *_gpus] = node_history.of(world.node("gpu-2"), now=world.now).lanes
        assert [(one.lane, one.why, one.since, one.until) for one in lane.spans] == [
            (NODE, Out.OTHERS, began, world.now)
        ]
        assert foreign_cordons.prune(now=world.now + retention.time(ForeignCordon)) == 0
        assert foreign_cordons.prune(now=world.now + retention.time(ForeignCordon) + timedelta(seconds=1)) == 1
        assert cordons(world) == [("gpu-3", False)]
    finally:
        world.uninstall()
