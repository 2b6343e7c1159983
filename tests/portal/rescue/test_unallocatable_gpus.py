"""GPUs that pods cannot get: a fault once it lasts, and no healed node while there are such GPUs."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import unallocatable_gpus
from kcover_portal.kube.wire import nodes as wire
from kcover_portal.rescue.engine import silent_agents
from kcover_portal.rescue.models import Rescue
from tests.codes import code_of
from tests.portal.rescue.world import World

MINUTE = timedelta(minutes=1)
HUGE = "18446744073709551615"


@pytest.mark.parametrize(
    ("capacity", "allocatable", "expected"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, (8, 1)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "0"}, (8, 8)),
        ({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}, (8, 0)),
        ({"nvidia.com/gpu": "8"}, {"cpu": "7"}, (8, 0)),
        ({"nvidia.com/gpu": "8"}, None, (8, 0)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": HUGE}, (8, 0)),
        ({"nvidia.com/gpu": HUGE}, {"nvidia.com/gpu": "7"}, (0, 0)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "-1"}, (8, 0)),
        ({"amd.com/gpu": "8", "cpu": "4"}, {"amd.com/gpu": "5", "cpu": "1"}, (8, 3)),
        ({"metax-tech.com/gpu": "4"}, {"metax-tech.com/gpu": "5"}, (4, 0)),
    ],
)
def test_the_allocatable_gpus_of_a_node_are_read(capacity: Any, allocatable: Any, expected: tuple[int, int]) -> None:
    status = {"capacity": capacity, "allocatable": allocatable, "nodeInfo": {"containerRuntimeVersion": "cri-o://1.30"}}
    node = msgspec.convert({"metadata": {"name": "gpu-1"}, "status": status}, wire.NodeObject).value()
    assert (node.gpus, node.unallocatable, node.runtime) == (*expected, "cri-o")


def show(world: World, allocatable: int, name: str = "gpu-1") -> None:
    """The cluster shows so many GPUs that pods can get."""

    def change(node: Any) -> None:
        node["status"]["allocatable"] = {"nvidia.com/gpu": str(allocatable)}

    world.kube.objects.edit("Node", "", name, change)
    world.sync()


def found(world: World) -> list[tuple[str, str]]:
    Cluster.objects.update(watched_at=world.now)
    silent_agents.check_all(now=world.now)
    rows = Incident.objects.filter(code=unallocatable_gpus.CODE).order_by("pk")
    return [(row.state, code_of(row.because)) for row in rows]


def test_a_difference_that_lasts_is_a_fault(db: None) -> None:
    world = World(policy="")
    show(world, 7)
    Node.objects.update(ready_since=world.now - MINUTE)
    assert found(world) == []
    world.pass_time(4 * 60)
    show(world, 6)  # not another fault
    assert found(world) == []
    world.pass_time(60)
    assert found(world) == [("open", "gpus_unallocatable")]
    row = Incident.objects.get()
    assert (row.because["params"], row.is_user_fault) == ({"missing": 2, "count": 8}, False)
    world.pass_time(60)
    assert len(found(world)) == 1
    show(world, 8)
    assert found(world) == [("closed", "gpus_unallocatable")]
    show(world, 7)
    assert found(world) == [("closed", "gpus_unallocatable")]
    world.uninstall()


def test_a_node_that_has_just_come_up_is_given_time(db: None) -> None:
    world = World(policy="")
    show(world, 0)
    Node.objects.update(unallocatable_since=world.now - 9 * MINUTE, ready_since=world.now - MINUTE)
    assert found(world) == []
    Node.objects.update(ready_since=world.now - 6 * MINUTE)
    assert found(world) == [("open", "gpus_unallocatable")]
    world.uninstall()


@pytest.mark.parametrize("comes_back", [True, False])
def test_inv_38_a_node_is_not_healed_while_pods_cannot_get_all_gpus(db: None, comes_back: bool) -> None:
    world = World()
    world.fault()
    world.until_reboot_is_asked()
    show(world, 7)
    world.reboot()
    for _ in range(13):
        world.pass_time(60)
        world.report()
        show(world, 7 if not comes_back else 8)
        world.work()
    rescue = Rescue.objects.get()
    if comes_back:
        assert (rescue.state, rescue.outcome) == ("succeeded", "healed")
    else:
        assert rescue.outcome != "healed"
        assert rescue.why.code == "gpus_still_unallocatable"
    world.uninstall()
