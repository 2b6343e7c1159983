"""``/sim``: the switches of the world, for people, tests and the console's demo buttons.

Every answer is JSON. An unknown node is 404 with what there is, a body that makes no sense 400 with ``field`` and
``reason``.
"""

import difflib
import json
from typing import Any

from aiohttp import web

from simulator.kubeapi import server
from simulator.world import injector, live, nodes, virtual_agents
from simulator.world.world import World

Object = dict[str, Any]

_SHOWN = 20  # names that a 404 lists


class Control:
    """The routes over one world, its API server, its agents and its weather."""

    def __init__(
        self, world: World, api: server.ApiServer, *, fleet: virtual_agents.Fleet, weather: live.Weather | None
    ) -> None:
        self._world, self._api, self._fleet, self._weather = world, api, fleet, weather

    def add_routes(self, app: web.Application) -> None:
        """Serve ``/sim`` in an application."""
        app.router.add_routes(
            [
                web.post("/sim/faults", self._inject),
                web.get("/sim/nodes", self._nodes),
                web.get("/sim/nodes/{node}", self._node),
                web.post("/sim/nodes/{node}/reboot", self._reboot),
                web.post("/sim/nodes/{node}/cure", self._cure),
                web.post("/sim/nodes/{node}/agent", self._agent),
                web.get("/sim/state", self._state),
                web.get("/sim/calls", self._calls),
                web.delete("/sim/calls", self._forget_calls),
                web.get("/sim/api-faults", self._api_faults),
                web.post("/sim/api-faults", self._add_api_fault),
                web.delete("/sim/api-faults", self._clear_api_faults),
                web.post("/sim/watches/cut", self._cut_watches),
                web.post("/sim/compact", self._compact),
            ]
        )

    # Faults

    async def _inject(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            order = injector.parse(body)
            if order.node not in self._world.machines:
                return self._unknown(order.node)
            lines = injector.inject(self._world, order)
        except injector.OrderError as error:
            return _refused(error.field, error.reason)
        done = {"node": order.node, "boot_id": self._world.machines[order.node].boot_id, "lines": list(lines)}
        return _answer({**done, "count": order.count, "cure": order.cure}, status=201)

    # Nodes

    async def _nodes(self, request: web.Request) -> web.Response:
        return _answer({"nodes": [self._summary(name) for name in self._world.machines]})

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        return _answer(self._truth(name)) if name in self._world.machines else self._unknown(name)

    async def _reboot(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        host = self._world.machines[name]
        before = host.boot_id
        if not host.reboot("asked for"):
            return _answer({"error": f"{name} is {host.power}", "power": host.power}, status=409)
        return _answer({"node": name, "power": host.power, "boot_id": before}, status=202)

    async def _cure(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        host = self._world.machines[name]
        cured = len(host.faults)
        host.repair()
        return _answer({"node": name, "cured": cured, "power": host.power})

    async def _agent(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        body = await _body(request)
        wanted = body.get("running") if isinstance(body, dict) else None
        if not isinstance(wanted, bool):
            return _refused("running", "true or false is needed")
        agent = self._fleet.agents.get(name)
        if agent is None:
            return _answer({"error": f"{name} has no agent"}, status=409)
        agent.wanted = wanted
        if wanted:
            agent.start()
        else:
            agent.stop()
        return _answer({"node": name, "running": agent.running})

    async def _state(self, request: web.Request) -> web.Response:
        machines = self._world.machines
        power: dict[str, int] = {}
        for host in machines.values():
            power[host.power] = power.get(host.power, 0) + 1
        weather = self._weather
        return _answer(
            {
                "now": self._world.agenda.now().isoformat(),
                "version": self._world.objects.version,
                "power": power,
                "faulty": sum(bool(host.faults) for host in machines.values()),
                "agents": {
                    "running": sum(agent.running for agent in self._fleet.agents.values()),
                    "reports": sum(agent.reports for agent in self._fleet.agents.values()),
                },
                "weather": weather
                and {
                    "faults_per_hour": weather.faults_per_hour,
                    "noise_per_hour": round(weather.noise_per_hour, 1),
                    "compression": round(weather.compression, 1),
                    "seen": weather.seen,
                },
                "nodes": [self._truth(name) for name in machines],
            }
        )

    # The API server

    async def _calls(self, request: web.Request) -> web.Response:
        asked = {name: request.query.get(name, "") for name in ("verb", "resource", "node")}
        return _answer(self._api.calls.report(**asked))

    async def _forget_calls(self, request: web.Request) -> web.Response:
        self._api.calls.reset()
        return _answer({"total": 0})

    async def _api_faults(self, request: web.Request) -> web.Response:
        return _answer({"pending": self._api.faults.pending(), "hanging": self._api.faults.hanging()})

    async def _add_api_fault(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if not isinstance(body, dict):
            return _refused("body", "a JSON object is accepted")
        try:
            self._api.faults.add(body)
        except ValueError as error:
            field, _, reason = str(error).partition(": ")
            return _refused(field, reason)
        return _answer({"pending": self._api.faults.pending()}, status=201)

    async def _clear_api_faults(self, request: web.Request) -> web.Response:
        self._api.faults.clear(request.query.get("name"))
        return _answer({"pending": self._api.faults.pending()})

    async def _cut_watches(self, request: web.Request) -> web.Response:
        return _answer({"cut": self._api.cut_watches()})

    async def _compact(self, request: web.Request) -> web.Response:
        self._api.compact()
        return _answer({"version": self._world.objects.version})

    # Inside

    def _summary(self, name: str) -> Object:
        host, spec = self._world.machines[name], self._world.specs[name]
        node = self._world.objects.find("Node", "", name)
        return {
            "name": name,
            "pool": spec.pool,
            "gpus": host.gpus,
            "power": host.power,
            "ready": node is not None and nodes.ready_status(node) == "True",
            "unschedulable": bool(node and node["spec"].get("unschedulable")),
            "boot_id": host.boot_id,
            "faults": len(host.faults),
        }

    def _truth(self, name: str) -> Object:
        host = self._world.machines[name]
        agent = self._fleet.agents.get(name)
        return {
            **self._summary(name),
            "boots": [{"boot_id": boot.boot_id, "at": boot.at.isoformat(), "cause": boot.cause} for boot in host.boots],
            "faults": [
                {
                    "kind": standing.kind,
                    "code": standing.code,
                    "gpu": standing.gpu,
                    "cure": standing.cure,
                    "returns": standing.comes_back,
                    "since": standing.since.isoformat(),
                    "drill": standing.drill,
                }
                for standing in host.faults
            ],
            "agent": agent
            and {
                "running": agent.running,
                "reports": agent.reports,
                "reported_at": agent.reported_at and agent.reported_at.isoformat(),
            },
        }

    def _unknown(self, name: str) -> web.Response:
        known = list(self._world.machines)
        near = difflib.get_close_matches(name, known, n=3)
        body = {"error": f"no such node: {name}", "near": near, "nodes": known[:_SHOWN], "count": len(known)}
        return _answer(body, status=404)


async def _body(request: web.Request) -> Any:
    """The decoded body. A body that is no JSON is 400."""
    try:
        return json.loads(await request.read() or b"{}")
    except ValueError as error:
        body = json.dumps({"field": "body", "reason": f"not JSON: {error}"})
        raise web.HTTPBadRequest(text=body, content_type="application/json") from error


def _refused(field: str, reason: str) -> web.Response:
    return _answer({"field": field, "reason": reason}, status=400)


def _answer(body: Object, *, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)
