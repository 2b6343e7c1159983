"""iperf's ring on check runs: the pairs of each step, nodes that are left out, nodes that leave the ring."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, Command, Node
from kcover_portal.fleet.services import node_selection
from tests.codes import code_of
from tests.portal.rescue import agents
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
REMAPPED = {"name": "remapped", "device": "GPU-0", "status": "pass", "value": 0.0}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=4)
    for number in range(1, 5):
        made.report(node=f"gpu-{number}")
        Node.objects.filter(name=f"gpu-{number}").update(address=f"10.0.0.{number}")
    yield made
    made.uninstall()


def begin(world: World, *names: str, checks: tuple[str, ...] = ("iperf",), **more: Any) -> CheckRun:
    nodes = node_selection.nodes(world.cluster, hosts=names)
    run = check_runs.begin(world.cluster, nodes, checks=checks, actor="user:ann", now=world.now, **more)
    return advance(world, run)


def advance(world: World, run: CheckRun) -> CheckRun:
    check_runs.advance(run.pk, now=world.now)
    run.refresh_from_db()
    return run


def asked() -> dict[str, Command]:
    """What is on offer, by node."""
    return {one.node.name: one for one in Command.objects.filter(state="offered").select_related("node")}


def sends() -> dict[str, str]:
    return {name: command.args["partner"] for name, command in asked().items()}


def answer(world: World, *but: str, rate: float = 90.0) -> None:
    """Every node that is asked sends as it should, but for these."""
    for name, command in asked().items():
        if name not in but:
            found = [{"name": "iperf", "device": one, "status": "pass", "value": rate} for one in command.args["hosts"]]
            served = {"name": "iperf", "device": "server", "status": "pass", "value": rate}
            agents.answers(world, command, checks=[*found, served])


def reported(run: CheckRun, node: str) -> list[tuple[str, str, float | None]]:
    return [(one["device"], one["status"], one["value"]) for one in run.targets.get(node__name=node).results]


def test_a_ring_proceeds_step_by_step_and_reports_every_partner(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", "gpu-3", traffic=check_runs.Traffic(clients=2, port=6000))
    assert sends() == {"gpu-1": "gpu-2", "gpu-2": "gpu-3", "gpu-3": "gpu-1"}
    assert asked()["gpu-1"].args == {
        "checks": ["iperf"],
        "hosts": ["10.0.0.2"],
        "partner": "gpu-2",
        "serve": 2,
        "port": 6000,
        "ports": 2,
        "clients": 1,
        "seconds": 5,
        "wait": 30,
        "idle": True,
    }
    answer(world, "gpu-3")
    assert (advance(world, run).done, sends()) == (0, {"gpu-3": "gpu-1"})  # nobody begins before all are done
    answer(world)
    advance(world, run)
    assert sends() == {"gpu-1": "gpu-3", "gpu-2": "gpu-1", "gpu-3": "gpu-2"}
    answer(world, rate=40.0)
    advance(world, run)
    assert (run.state, run.done, run.wrong, Command.objects.count()) == ("finished", 3, 0, 6)
    assert reported(run, "gpu-1") == [("gpu-2", "pass", 90.0), ("gpu-3", "pass", 40.0)]
    assert reported(run, "gpu-2") == [("gpu-3", "pass", 90.0), ("gpu-1", "pass", 40.0)]
    assert {tuple(turn.statuses) for turn in run.targets.all()} == {("Ok",)}


def test_advancing_a_ring_repeatedly_sends_each_command_once(world: World) -> None:
    run = begin(world)
    for _ in range(3):
        advance(world, run)
    assert Command.objects.count() == 4


def test_the_other_checks_come_first(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", checks=("iperf", "remapped"))
    assert {name: one.args["checks"] for name, one in asked().items()} == {"gpu-1": ["remapped"], "gpu-2": ["remapped"]}
    agents.answers(world, asked()["gpu-1"], checks=[REMAPPED])
    advance(world, run)
    assert list(asked()) == ["gpu-2"]
    agents.answers(world, asked()["gpu-2"], checks=[REMAPPED])
    advance(world, run)
    answer(world)
    assert advance(world, run).state == "finished"
    assert reported(run, "gpu-1") == [("GPU-0", "pass", 0.0), ("gpu-2", "pass", 90.0)]


def test_a_node_without_an_address_is_skipped_with_a_reason(world: World) -> None:
    Node.objects.filter(name="gpu-2").update(address="")
    run = begin(world, "gpu-1", "gpu-2", "gpu-3")
    turn = run.targets.get(node__name="gpu-2")
    assert (turn.state, turn.statuses, turn.results[0]["status"]) == ("done", ["Not checked"], "skipped")
    assert "no address (InternalIP)" in turn.results[0]["message"]
    assert sends() == {"gpu-1": "gpu-3", "gpu-3": "gpu-1"}


def test_a_single_node_is_not_measured(world: World) -> None:
    Agent.objects.filter(node__name="gpu-2").update(seen_at=world.now - timedelta(hours=1))
    run = begin(world, "gpu-1", "gpu-2")
    assert (run.state, Command.objects.count()) == ("finished", 0)
    assert "no other node" in run.targets.get(node__name="gpu-1").results[0]["message"]
    assert run.targets.get(node__name="gpu-2").statuses == ["Connection to Server Failed"]
    run = begin(world, "gpu-1", checks=("iperf", "remapped"))
    agents.answers(world, asked()["gpu-1"], checks=[REMAPPED])
    assert (advance(world, run).state, run.targets.get().statuses) == ("finished", ["Ok"])


def test_no_pod_that_uses_gpus_is_disturbed(world: World) -> None:
    world.kube.add_pod("ml", "train-0", node="gpu-2", gpus=8)
    run = begin(world, "gpu-1", "gpu-2", "gpu-3", "gpu-4")
    assert run.targets.get(node__name="gpu-2").results[0]["message"] == "the pod ml/train-0 holds GPUs"
    assert sends() == {"gpu-1": "gpu-3", "gpu-3": "gpu-4", "gpu-4": "gpu-1"}
    second = begin(world, "gpu-1", "gpu-3")
    assert second.targets.get(node__name="gpu-1").results[0]["message"] == f"check run {run.pk} is using its GPUs"
    assert second.state == "finished"


def test_a_node_that_does_not_answer_leaves_the_ring_and_the_others_continue(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", "gpu-3", "gpu-4")
    for name in ("gpu-1", "gpu-3"):
        agents.answers(
            world,
            asked()[name],
            checks=[
                {"name": "iperf", "device": one, "status": "pass", "value": 9.0} for one in asked()[name].args["hosts"]
            ],
        )
    no_partner = {"name": "iperf", "device": "10.0.0.1", "status": "error", "message": "unable to connect"}
    agents.answers(world, asked()["gpu-4"], checks=[no_partner])
    world.now += timedelta(minutes=3)  # gpu-2 says nothing
    fleet.expire_commands(now=world.now)
    for number in (1, 3, 4):
        world.report(node=f"gpu-{number}")
    advance(world, run)
    gone = run.targets.get(node__name="gpu-2")
    assert (gone.state, code_of(gone.note)) == ("silent", "no_answer_in_time")
    assert sends() == {"gpu-1": "gpu-3", "gpu-3": "gpu-1"}  # step 2: gpu-4 was to send to gpu-2 and to be sent to by it
    answer(world)
    advance(world, run)
    assert sends() == {"gpu-1": "gpu-4", "gpu-3": "", "gpu-4": "gpu-3"}
    assert (asked()["gpu-1"].args["serve"], asked()["gpu-3"].args["hosts"]) == (0, [])
    answer(world)
    assert advance(world, run).state == "finished"
    assert reported(run, "gpu-4") == [("gpu-1", "error", None), ("gpu-3", "pass", 90.0)]
    assert run.targets.get(node__name="gpu-4").statuses == ["IPERF Aborted"]


def test_a_node_without_iperf_leaves_and_its_partner_is_not_blamed(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", "gpu-3")
    why = "iperf3 is not on this node: install iperf3"
    agents.answers(world, asked()["gpu-2"], checks=[{"name": "iperf", "status": "skipped", "message": why}])
    in_vain = {"name": "iperf", "device": "10.0.0.2", "status": "error", "message": "unable to connect to server"}
    agents.answers(world, asked()["gpu-1"], checks=[in_vain])
    answer(world)
    advance(world, run)
    turn = run.targets.get(node__name="gpu-2")
    assert (turn.state, turn.statuses, turn.results[0]["message"]) == ("done", ["Not checked"], why)
    assert sends() == {"gpu-1": "gpu-3", "gpu-3": ""}
    answer(world)
    assert advance(world, run).state == "finished"
    first, second = run.targets.get(node__name="gpu-1").results
    assert (first["status"], second["status"]) == ("skipped", "pass")
    assert first["message"] == "gpu-2 has left the ring: unable to connect to server"
    assert run.targets.get(node__name="gpu-1").statuses == ["Ok"]


def test_an_agent_that_refuses_leaves_and_silence_about_a_partner_is_an_error(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", "gpu-3")
    agents.answers(world, asked()["gpu-2"], status="refused", message="this agent has no check 'iperf'")
    agents.answers(world, asked()["gpu-1"], checks=[])
    answer(world)
    advance(world, run)
    assert run.targets.get(node__name="gpu-2").statuses == ["IPERF Aborted"]
    assert run.targets.get(node__name="gpu-2").results[0]["because"]["code"] == "check_not_run"
    assert reported(run, "gpu-1") == [("gpu-2", "error", None)]
    assert sends() == {"gpu-1": "gpu-3", "gpu-3": ""}


def test_a_batch_is_a_ring(world: World) -> None:
    run = begin(world, batch=2)
    assert sends() == {"gpu-1": "gpu-2", "gpu-2": "gpu-1"}
    answer(world)
    advance(world, run)
    advance(world, run)  # the pods of the next batch are asked for in a round of their own
    assert sends() == {"gpu-3": "gpu-4", "gpu-4": "gpu-3"}
    answer(world)
    assert (advance(world, run).state, run.done) == ("finished", 4)


def test_rings_have_a_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcover_portal.checks.services.iperf_rings.MAX_RING_NODES", 3)
    assert [turn.batch for turn in begin(world).targets.all()] == [0, 0, 1, 1]  # as even as they can be
    with pytest.raises(check_runs.CheckRunRefused, match="at most 3 nodes"):
        begin(world, batch=4)
    assert begin(world, checks=("remapped",), batch=4).total == 4


def test_a_stopped_ring_sends_no_command(world: World) -> None:
    run = begin(world)
    answer(world, "gpu-4")
    advance(world, run)
    check_runs.stop(run, actor="user:bo", reason="", now=world.now)
    assert not asked()
    assert {turn.state for turn in run.targets.all()} == {"stopped"}
    check_runs.advance(run.pk, now=world.now)
    assert Command.objects.count() == 4


def tell(world: World, **addresses: dict[str, str]) -> None:
    """The nodes tell the addresses of their interfaces; nodes without any skip the check."""
    for name, command in asked().items():
        told = addresses[name.replace("-", "_")]
        found = [
            {"name": "iperf", "device": device, "status": "pass", "unit": "address", "message": address}
            for device, address in told.items()
        ]
        agents.answers(world, command, checks=found or [{"name": "iperf", "status": "skipped", "message": "none"}])


def test_the_data_plane_has_a_ring_for_each_common_interface(world: World) -> None:
    traffic = check_runs.Traffic(clients=4, streams=3, plane="data")
    run = begin(world, "gpu-1", "gpu-2", "gpu-3", traffic=traffic)
    assert asked()["gpu-1"].args["addresses_without"] == ["10.0.0.1"]
    tell(
        world,
        gpu_1={"ib0": "10.1.0.1", "ib1": "10.2.0.1", "ib2": "10.3.0.1"},
        gpu_2={"ib0": "10.1.0.2", "ib1": "10.2.0.2"},
        gpu_3={"ib0": "10.1.0.3", "ib1": "10.2.0.3", "net1-0": "10.4.0.3"},
    )
    seen = []
    while asked() or run.state == "running":
        run = advance(world, run)
        for name, command in sorted(asked().items()):
            args = command.args
            seen.append((name, args["partner"], *args["hosts"], args["bind"], args["ports"], args["clients"]))
        answer(world)
    assert seen == [
        ("gpu-1", "gpu-2 ib0", "10.1.0.2", "10.1.0.1", 2, 3),
        ("gpu-2", "gpu-3 ib0", "10.1.0.3", "10.1.0.2", 2, 3),
        ("gpu-3", "gpu-1 ib0", "10.1.0.1", "10.1.0.3", 2, 3),
        ("gpu-1", "gpu-3 ib0", "10.1.0.3", "10.1.0.1", 2, 3),
        ("gpu-2", "gpu-1 ib0", "10.1.0.1", "10.1.0.2", 2, 3),
        ("gpu-3", "gpu-2 ib0", "10.1.0.2", "10.1.0.3", 2, 3),
        ("gpu-1", "gpu-2 ib1", "10.2.0.2", "10.2.0.1", 2, 3),
        ("gpu-2", "gpu-3 ib1", "10.2.0.3", "10.2.0.2", 2, 3),
        ("gpu-3", "gpu-1 ib1", "10.2.0.1", "10.2.0.3", 2, 3),
        ("gpu-1", "gpu-3 ib1", "10.2.0.3", "10.2.0.1", 2, 3),
        ("gpu-2", "gpu-1 ib1", "10.2.0.1", "10.2.0.2", 2, 3),
        ("gpu-3", "gpu-2 ib1", "10.2.0.2", "10.2.0.3", 2, 3),
    ]
    assert reported(run, "gpu-1") == [
        (f"{partner} {interface}", "pass", 90.0) for interface in ("ib0", "ib1") for partner in ("gpu-2", "gpu-3")
    ]


def test_a_node_without_data_interfaces_leaves_and_the_others_go_on(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", "gpu-3", traffic=check_runs.Traffic(plane="data"))
    tell(world, gpu_1={"ib0": "10.1.0.1"}, gpu_2={}, gpu_3={"ib0": "10.1.0.3"})
    run = advance(world, run)
    assert sends() == {"gpu-1": "", "gpu-3": "gpu-1 ib0"}
    assert reported(run, "gpu-2") == [("", "skipped", None)]


@pytest.mark.parametrize("address", ["127.0.0.1", "224.0.0.1", "0.0.0.0", "-B", "fe80::1", ""])
def test_no_node_makes_the_others_send_to_such_an_address(world: World, address: str) -> None:
    run = begin(world, "gpu-1", "gpu-2", traffic=check_runs.Traffic(plane="data"))
    tell(world, gpu_1={"ib0": "10.1.0.1"}, gpu_2={"ib0": address})
    run = advance(world, run)
    assert (asked(), run.state) == ({}, "finished")
    for node in ("gpu-1", "gpu-2"):
        [result] = run.targets.get(node__name=node).results
        assert (result["status"], code_of(result["because"])) == ("skipped", "ring_without_interface")
