"""The controllers of simulated machines, over HTTP."""

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from simulator import redfish
from simulator.world import injector, machine

NODE = "gpu-0001"
RESET = f"{redfish.SYSTEMS}/{NODE}/Actions/ComputerSystem.Reset"


@pytest.fixture
async def client(cluster):
    app = web.Application()
    redfish.Redfish(cluster.world, cluster.api.faults).add_routes(app)
    auth = {"Authorization": aiohttp.encode_basic_auth(redfish.USERNAME, redfish.PASSWORD)}
    async with TestServer(app) as served, aiohttp.ClientSession(served.make_url("/"), headers=auth) as session:
        yield session


async def reset(client, kind: str) -> int:
    async with client.post(RESET, json={"ResetType": kind}) as answer:
        return answer.status


async def power(client) -> str:
    async with client.get(f"{redfish.SYSTEMS}/{NODE}") as answer:
        return (await answer.json())["PowerState"]


async def test_a_machine_is_switched_off_and_on(cluster, client):
    host = cluster.world.machines[NODE]
    old = host.boot_id
    assert await power(client) == "On"
    assert await reset(client, "ForceOff") == 204
    assert (await power(client), host.power) == ("Off", machine.OFF)
    assert await reset(client, "ForceOff") == 409
    cluster.advance(500)
    assert host.boot_id == old
    assert await reset(client, "On") == 204
    cluster.advance(500)
    assert (await power(client), host.power) == ("On", machine.UP)
    assert host.boot_id != old
    assert cluster.node(NODE)["status"]["nodeInfo"]["bootID"] == host.boot_id
    assert await reset(client, "On") == 409


async def test_a_machine_that_is_switched_off_while_it_boots_stays_off(cluster, client):
    host = cluster.world.machines[NODE]
    host.reboot("requested")
    assert await reset(client, "ForceOff") == 204
    cluster.advance(500)
    assert host.power == machine.OFF
    assert not host.reboot("requested")


@pytest.mark.parametrize("cure", ["power_cycle", "repair"])
async def test_only_a_power_cycle_brings_some_machines_back(cluster, client, cure):
    host = cluster.world.machines[NODE]
    order = injector.parse({"node": NODE, "code": 79, "cure": cure, "returns": False})
    injector.inject(cluster.world, order)
    host.reboot("requested")
    cluster.advance(500)
    assert host.power == machine.DEAD
    assert await reset(client, "ForceRestart") == 204
    cluster.advance(300)
    assert (host.power, len(host.faults)) == ((machine.UP, 0) if cure == "power_cycle" else (machine.DEAD, 1))


async def test_a_reboot_does_not_cure_a_fault_that_needs_a_power_cycle(cluster):
    host = cluster.world.machines[NODE]
    injector.inject(cluster.world, injector.parse({"node": NODE, "code": 79, "cure": "power_cycle"}))
    host.reboot("requested")
    cluster.advance(500)
    assert (host.power, len(host.faults)) == (machine.UP, 1)


async def test_a_request_without_the_password_is_refused(client):
    wrong = {"Authorization": aiohttp.encode_basic_auth("x", "y")}
    async with client.post(RESET, json={"ResetType": "ForceOff"}, headers=wrong) as answer:
        assert answer.status == 401
    assert await power(client) == "On"


async def test_a_planned_fault_meets_the_reset(cluster, client):
    for after in (False, True):
        cluster.api.faults.add({"status": 500, "match": f"POST {RESET}$", "body": "ForceOff", "after": after})
        assert await reset(client, "ForceOff") == 500
        assert await power(client) == ("Off" if after else "On")


async def test_the_identity_is_that_of_the_node(cluster, client):
    async with client.get(f"{redfish.SYSTEMS}/{NODE}") as answer:
        uuid = (await answer.json())["UUID"]
    assert uuid.lower() == cluster.node(NODE)["status"]["nodeInfo"]["systemUUID"]
