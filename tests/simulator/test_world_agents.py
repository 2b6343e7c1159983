"""Real agents over virtual machines, reporting over HTTP to a stub portal in the real wire format."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from simulator import server
from simulator.world import machine, nodes, world
from simulator.world.pace import Timings

from .portal import StubPortal

SELDOM_SECONDS = 3600.0  # longer than any test waits: what is heard by then was not told by a heartbeat
QUICK = Timings(boot=0.4, grace=0.0, start=0.05, notice=0.1, settle=0.1)


class Clock:
    """The machine's clock; a test stops it, and lets it go on from there."""

    def __init__(self) -> None:
        self._stopped: datetime | None = None
        self._behind = timedelta(0)

    def __call__(self) -> datetime:
        return self._stopped or datetime.now(UTC) - self._behind

    def stop(self) -> None:
        self._stopped = self()

    def go_on(self) -> None:
        assert self._stopped
        self._behind, self._stopped = datetime.now(UTC) - self._stopped, None


@asynccontextmanager
async def running(tmp_path, portal: StubPortal, *, count: int = 3, now: Clock | None = None, **more):
    """A simulation that reports to a portal, and a client for its switches."""
    token = tmp_path / "enrol-token"
    token.write_text("kce_fleet\n")
    settings = server.Settings(
        port=0,
        size=world.Size(nodes=count),
        pace=QUICK,
        portal=portal.url,
        enrol_token_file=token,
        heartbeat=more.pop("heartbeat", SELDOM_SECONDS),
        **more,
    )
    simulation = server.Simulation(settings, now=now or Clock())
    async with server.serving(simulation) as url, aiohttp.ClientSession(url) as http:
        yield simulation, http


@pytest.fixture
async def portal():
    async with StubPortal() as stub:
        yield stub


async def inject(http: aiohttp.ClientSession, **body) -> dict:
    async with http.post("/sim/faults", json=body) as response:
        assert response.status == 201, await response.text()
        return await response.json()


def lives(node: str) -> bool:
    """Returns whether the agent of the node still has anything to do."""
    return any(task.get_name() == f"agent {node}" for task in asyncio.all_tasks())


async def test_every_node_enrols_once_and_reports_its_inventory(tmp_path, portal):
    async with running(tmp_path, portal) as (simulation, _):
        await portal.heard_from(3)
        assert sorted(portal.enrolments) == ["gpu-0001", "gpu-0002", "gpu-0003"]
        report = next(report for report in portal.reports if report.node == "gpu-0002" and report.inventory)
        host = simulation.world.machines["gpu-0002"]
        assert (
            report.boot_id
            == host.boot_id
            == simulation.store.get("Node", "", "gpu-0002")["status"]["nodeInfo"]["bootID"]
        )
        assert report.inventory == host.inventory
        assert len(report.inventory.gpus) == 8


async def test_an_injected_xid_reaches_the_portal(tmp_path, portal):
    async with running(tmp_path, portal) as (_, http):
        await portal.heard_from(3)
        done = await inject(http, node="gpu-0001", kind="xid", code=79, gpu=2)
        await portal.until(lambda: portal.faults("gpu-0001"))
        (fault,) = portal.faults("gpu-0001")
        assert (fault.kind, fault.code, fault.pci, fault.source) == ("xid", 79, machine.pci(2), "kmsg")
        cause, message, _ = done["lines"]
        assert fault.message == message
        assert fault.lines_before.splitlines()[-1].endswith(f" {cause}")
        assert fault.gpu_uuid
        assert (fault.drill, fault.count) == (False, 1), "the second line of a lost GPU is no second fault"
        body = json.loads(portal.bodies[-1])
        assert body["version"] == 1
        assert body["faults"][0]["sequence"] == fault.sequence


async def test_a_drill_is_marked_and_an_sxid_is_one_fault(tmp_path, portal):
    async with running(tmp_path, portal) as (_, http):
        await portal.heard_from(3)
        await inject(http, node="gpu-0001", kind="xid", code=62, drill=True)
        await inject(http, node="gpu-0002", kind="sxid", code=20034)
        await inject(http, node="gpu-0003", kind="xid", code=13, count=3)
        await portal.until(lambda: all(portal.faults(f"gpu-000{number}") for number in (1, 2, 3)))
        assert [fault.drill for fault in portal.faults("gpu-0001")] == [True]
        assert [(fault.kind, fault.code, fault.count) for fault in portal.faults("gpu-0002")] == [("sxid", 20034, 1)]
        assert [(fault.code, fault.count) for fault in portal.faults("gpu-0003")] == [(13, 3)]


async def test_repeats_of_a_fault_are_reported_once_after_their_window(tmp_path, portal):
    clock = Clock()
    async with running(tmp_path, portal, now=clock) as (_, http):
        await portal.heard_from(3)
        clock.stop()
        for _ in range(3):
            await inject(http, node="gpu-0001", kind="xid", code=13)
            await portal.until(lambda: portal.faults("gpu-0001"))
        clock.go_on()
        await portal.until(lambda: sum(fault.count for fault in portal.faults("gpu-0001")) == 3)
        assert len(portal.faults("gpu-0001")) < 3


async def test_a_reboot_command_is_carried_out_once(tmp_path, portal):
    async with running(tmp_path, portal, heartbeat=0.5) as (simulation, _):
        await portal.heard_from(3)
        host = simulation.world.machines["gpu-0001"]
        before = host.boot_id
        command = portal.order("gpu-0001", "reboot")
        await portal.until(lambda: portal.results("gpu-0001"))
        (result,) = portal.results("gpu-0001")
        assert (result.id, result.status) == (command.id, "done")
        assert result.output == {"boot_id": host.boot_id, "before": before}
        portal.commands["gpu-0001"] = [command]  # a portal that lost the answer offers it again
        portal._announce()
        await portal.until(lambda: len(portal.results("gpu-0001")) == 2)
        assert len(host.boots) == 2
        assert nodes.ready_status(simulation.store.get("Node", "", "gpu-0001")) == "True"
        assert portal.enrolments.count("gpu-0001") == 1, "the token survives the boot"
        assert host.boots[-1].cause == "agent command"


async def test_a_reboot_command_for_another_boot_is_refused(tmp_path, portal):
    async with running(tmp_path, portal) as (simulation, _):
        await portal.heard_from(3)
        portal.order("gpu-0001", "reboot", boot_id="11111111-2222-3333-4444-555555555555")
        await portal.until(lambda: portal.results("gpu-0001"))
        assert portal.results("gpu-0001")[0].status == "refused"
        assert len(simulation.world.machines["gpu-0001"].boots) == 1


async def test_a_gpu_is_reset_by_command(tmp_path, portal):
    async with running(tmp_path, portal) as (simulation, http):
        await portal.heard_from(3)
        await inject(http, node="gpu-0001", kind="xid", code=48, gpu=3, cure="reset")
        await inject(http, node="gpu-0002", kind="xid", code=79, gpu=3)
        for node in ("gpu-0001", "gpu-0002"):
            gpu = simulation.world.machines[node].inventory.gpus[3]
            portal.order(node, "reset_gpu", gpu_uuid=gpu.uuid)
            await portal.until(lambda node=node: portal.results(node))
        assert portal.results("gpu-0001")[0].status == "done"
        assert portal.results("gpu-0002")[0].status == "failed"


async def test_checks_are_run_by_command(tmp_path, portal):
    async with running(tmp_path, portal) as (_, http):
        await portal.heard_from(3)
        await inject(http, node="gpu-0002", kind="xid", code=79, gpu=3)
        portal.order("gpu-0001", "run_check", checks=["pciebw", "remapped", "other"])
        portal.order("gpu-0002", "run_check", checks=["pciebw"])
        portal.order("gpu-0003", "run_check", checks=["other"])
        for node in ("gpu-0001", "gpu-0002", "gpu-0003"):
            await portal.until(lambda node=node: portal.results(node))
        (good,), (bad,), (unknown,) = (portal.results(f"gpu-000{number}") for number in (1, 2, 3))
        assert (good.status, good.message, len(good.output["checks"])) == ("done", "ok", 16)
        assert (bad.message, [one["status"] for one in bad.output["checks"]]) == ("fail", ["fail"] + ["pass"] * 7)
        assert unknown.status == "refused"


async def test_a_fault_that_outlives_a_reboot_is_reported_from_the_new_boot(tmp_path, portal):
    async with running(tmp_path, portal) as (simulation, http):
        await portal.heard_from(3)
        await inject(http, node="gpu-0001", kind="xid", code=79, cure="repair")
        async with http.post("/sim/nodes/gpu-0001/reboot") as response:
            assert response.status == 202
            before = (await response.json())["boot_id"]
        await portal.until(lambda: len(portal.faults("gpu-0001")) == 2)
        boots = [report.boot_id for report in portal.reports if report.node == "gpu-0001" and report.faults]
        assert boots == [before, simulation.world.machines["gpu-0001"].boot_id]


async def test_a_stopped_agent_is_silent_and_reports_missed_faults_later(tmp_path, portal):
    async with running(tmp_path, portal, heartbeat=0.2) as (_, http):
        await portal.heard_from(3)
        async with http.post("/sim/nodes/gpu-0001/agent", json={"running": False}) as response:
            assert await response.json() == {"node": "gpu-0001", "running": False}
        await portal.until(lambda: not lives("gpu-0001") and not portal.receiving)
        silent_since, others = portal.reports_of("gpu-0001"), portal.reports_of("gpu-0002")
        await inject(http, node="gpu-0001", kind="xid", code=62)
        await portal.until(lambda: portal.reports_of("gpu-0002") >= others + 3)
        assert portal.reports_of("gpu-0001") == silent_since
        async with http.post("/sim/nodes/gpu-0001/agent", json={"running": True}):
            await portal.until(lambda: portal.faults("gpu-0001"))


async def test_agents_wait_for_a_portal_that_is_down_and_lose_nothing(tmp_path, portal):
    portal.down = True
    async with running(tmp_path, portal) as (simulation, http):
        await portal.until(lambda: portal.turned_away >= 2)
        assert portal.enrolments == []
        portal.down = False
        await portal.heard_from(3)
        portal.down = True
        turned_away = portal.turned_away
        await inject(http, node="gpu-0001", kind="xid", code=62)
        await portal.until(lambda: portal.turned_away > turned_away)
        portal.down = False
        await portal.until(lambda: portal.faults("gpu-0001"))
        assert len(portal.faults("gpu-0001")) == 1
        assert simulation.fleet.agents["gpu-0001"].running


async def test_an_agent_enrols_again_when_its_token_is_refused(tmp_path, portal):
    async with running(tmp_path, portal) as (_, http):
        await portal.heard_from(3)
        portal.tokens.clear()
        await inject(http, node="gpu-0001", kind="xid", code=62)
        await portal.until(lambda: portal.faults("gpu-0001"))
        assert portal.enrolments.count("gpu-0001") == 2
