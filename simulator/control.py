"""The HTTP API below ``/sim``: faults, nodes, agents and the API server, for people, tests and the console's demo
buttons.

Every response is JSON. An unknown node is 404 and lists the nodes that exist. An invalid body is 400 with ``field`` and
``reason``.
"""

import difflib
from typing import Any

from aiohttp import web

from simulator import answers
from simulator.kubeapi import server
from simulator.witnesses.all_witnesses import Witnesses
from simulator.world import boards, injector, nodes, random_faults, replacements, virtual_agents
from simulator.world.world import World

Object = dict[str, Any]

_MAX_NAMES = 20  # node names in a 404


class Control:
    """The routes for one world, its API server, its agents and its random faults."""

    def __init__(
        self,
        world: World,
        api: server.ApiServer,
        *,
        fleet: virtual_agents.AgentFleet,
        random: random_faults.RandomFaults | None,
        witnesses: Witnesses,
    ) -> None:
        self._world, self._api, self._fleet, self._random_faults = world, api, fleet, random
        self._witnesses = witnesses

    def add_routes(self, app: web.Application) -> None:
        app.router.add_routes(
            [
                web.post("/sim/faults", self._inject),
                web.get("/sim/nodes", self._nodes),
                web.get("/sim/nodes/{node}", self._node),
                web.post("/sim/nodes/{node}/reboot", self._reboot),
                web.post("/sim/nodes/{node}/cure", self._cure),
                web.post("/sim/nodes/{node}/owner", self._own),
                web.post("/sim/nodes/{node}/speed", self._speed),
                web.post("/sim/nodes/{node}/agent", self._agent),
                web.post("/sim/nodes/{node}/gpus/{index}/move", self._move_gpu),
                web.post("/sim/pods/{namespace}/{pod}/log", self._print),
                web.post("/sim/exporter", self._export),
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
        body = await answers.body(request)
        try:
            order = injector.parse(body)
            if order.node not in self._world.machines:
                return self._unknown(order.node)
            lines = injector.inject(self._world, order)
        except injector.OrderError as error:
            return answers.invalid(error.field, error.reason)
        done = {"node": order.node, "boot_id": self._world.machines[order.node].boot_id, "lines": list(lines)}
        return answers.document({**done, "count": order.count, "cure": order.cure}, status=201)

    # Nodes

    async def _nodes(self, request: web.Request) -> web.Response:
        return answers.document({"nodes": [self._summary(name) for name in self._world.machines]})

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        return answers.document(self._truth(name)) if name in self._world.machines else self._unknown(name)

    async def _reboot(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        host = self._world.machines[name]
        before = host.boot_id
        if not host.reboot("requested"):
            return answers.document({"error": f"{name} is {host.power}", "power": host.power}, status=409)
        return answers.document({"node": name, "power": host.power, "boot_id": before}, status=202)

    async def _cure(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        host = self._world.machines[name]
        cured = len(host.faults)
        host.repair()
        return answers.document({"node": name, "cured": cured, "power": host.power})

    async def _own(self, request: web.Request) -> web.Response:
        """Gives the machine of a node a Machine or a NodeClaim, whose deletion replaces it."""
        name, body = request.match_info["node"], await answers.body(request)
        if name not in self._world.machines:
            return self._unknown(name)
        kind = body.get("kind") if isinstance(body, dict) else None
        if kind not in replacements.KINDS or self._world.owners is None:
            return answers.invalid("kind", f"must be one of {', '.join(replacements.KINDS)}")
        made = self._world.owners.stand_for(name, kind)
        return answers.document({"node": name, "object": made["metadata"]["name"]}, status=201)

    async def _speed(self, request: web.Request) -> web.Response:
        """How fast the GPUs and links of a node are, as NCCL tests measure it, and whether NCCL fails on it."""
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        body = await answers.body(request)
        speed, fails = (body.get("speed"), body.get("nccl_fails", False)) if isinstance(body, dict) else (None, False)
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 <= speed <= 1:
            return answers.invalid("speed", "must be a number from 0 to 1")
        if not isinstance(fails, bool):
            return answers.invalid("nccl_fails", "must be true or false")
        host = self._world.machines[name]
        host.speed, host.nccl_fails = float(speed), fails
        return answers.document({"node": name, "speed": speed, "nccl_fails": fails})

    async def _agent(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        if name not in self._world.machines:
            return self._unknown(name)
        body = await answers.body(request)
        wanted = body.get("running") if isinstance(body, dict) else None
        if not isinstance(wanted, bool):
            return answers.invalid("running", "must be true or false")
        agent = self._fleet.agents.get(name)
        if agent is None:
            return answers.document({"error": f"{name} has no agent"}, status=409)
        agent.wanted = wanted
        if wanted:
            agent.start()
        else:
            agent.stop()
        return answers.document({"node": name, "running": agent.running})

    async def _move_gpu(self, request: web.Request) -> web.Response:
        """Moves a GPU into a slot of another node; a new GPU takes its place."""
        body = await answers.body(request)
        name, wanted = request.match_info["node"], body.get("to") if isinstance(body, dict) else None
        for one in (name, wanted):
            if one not in self._world.machines:
                return self._unknown(str(one))
        slot = body.get("slot", 0)
        source, target = self._world.machines[name], self._world.machines[str(wanted)]
        index = request.match_info["index"]
        if not index.isdigit() or int(index) >= source.gpus:
            return answers.invalid("index", f"must be a number below {source.gpus}")
        if type(slot) is not int or not 0 <= slot < target.gpus:
            return answers.invalid("slot", f"must be a number from 0 to {target.gpus - 1}")
        moved = boards.move_gpu(source, int(index), target, slot)
        return answers.document({"serial": moved.serial, "uuid": moved.uuid, "from": name, "to": wanted, "slot": slot})

    async def _print(self, request: web.Request) -> web.Response:
        """A pod prints a line."""
        body = await answers.body(request)
        line = body.get("line") if isinstance(body, dict) else None
        if not isinstance(line, str) or not line or "\n" in line:
            return answers.invalid("line", "must be one line of text")
        namespace, name = (request.match_info[part] for part in ("namespace", "pod"))
        pod = self._world.objects.find("Pod", namespace, name)
        if pod is None:
            return answers.document({"error": f"no such pod: {namespace}/{name}"}, status=404)
        self._api.logs.write(pod, line)
        return answers.document({"pod": f"{namespace}/{name}", "node": pod["spec"].get("nodeName", "")}, status=201)

    async def _export(self, request: web.Request) -> web.Response:
        body = await answers.body(request)
        url, token = (body.get(name) if isinstance(body, dict) else None for name in ("url", "token"))
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            return answers.invalid("url", "must be the address that takes CloudEvents")
        if not isinstance(token, str):
            return answers.invalid("token", "must be a string")
        self._witnesses.exporter.send_to(url, token)
        return answers.document({"url": url})

    async def _state(self, request: web.Request) -> web.Response:
        machines = self._world.machines
        power: dict[str, int] = {}
        for host in machines.values():
            power[host.power] = power.get(host.power, 0) + 1
        random = self._random_faults
        return answers.document(
            {
                "now": self._world.agenda.now().isoformat(),
                "version": self._world.objects.version,
                "power": power,
                "faulty": sum(bool(host.faults) for host in machines.values()),
                "agents": {
                    "running": sum(agent.running for agent in self._fleet.agents.values()),
                    "reports": sum(agent.reports for agent in self._fleet.agents.values()),
                },
                "weather": random
                and {
                    "faults_per_hour": random.faults_per_hour,
                    "noise_per_hour": round(random.noise_per_hour, 1),
                    "compression": round(random.compression, 1),
                    "seen": random.seen,
                },
                "nodes": [self._truth(name) for name in machines],
            }
        )

    # The API server

    async def _calls(self, request: web.Request) -> web.Response:
        filters = {name: request.query.get(name, "") for name in ("verb", "resource", "node")}
        filters["verb"] = filters["verb"].lower()
        return answers.document(self._api.calls.report(**filters))

    async def _forget_calls(self, request: web.Request) -> web.Response:
        self._api.calls.reset()
        return answers.document({"total": 0})

    async def _api_faults(self, request: web.Request) -> web.Response:
        return answers.document({"pending": self._api.faults.pending(), "hanging": self._api.faults.hanging()})

    async def _add_api_fault(self, request: web.Request) -> web.Response:
        body = await answers.body(request)
        if not isinstance(body, dict):
            return answers.invalid("body", "must be a JSON object")
        try:
            self._api.faults.add(body)
        except ValueError as error:
            field, _, reason = str(error).partition(": ")
            return answers.invalid(field, reason)
        return answers.document({"pending": self._api.faults.pending()}, status=201)

    async def _clear_api_faults(self, request: web.Request) -> web.Response:
        self._api.faults.clear(request.query.get("name"))
        return answers.document({"pending": self._api.faults.pending()})

    async def _cut_watches(self, request: web.Request) -> web.Response:
        return answers.document({"cut": self._api.cut_watches()})

    async def _compact(self, request: web.Request) -> web.Response:
        self._api.compact()
        return answers.document({"version": self._world.objects.version})

    # Parts of the responses

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
                    "kind": active.kind,
                    "code": active.code,
                    "gpu": active.gpu,
                    "cure": active.cure,
                    "returns": active.comes_back,
                    "since": active.since.isoformat(),
                    "drill": active.drill,
                }
                for active in host.faults
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
        body = {"error": f"no such node: {name}", "near": near, "nodes": known[:_MAX_NAMES], "count": len(known)}
        return answers.document(body, status=404)
