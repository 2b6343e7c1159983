"""The controllers of all machines as one Redfish service (a rack manager): power, identity, and the reset action.

A planned fault of ``/sim/api-faults`` also meets the resets here, as ``POST /redfish/v1/Systems/NODE/Actions/…``.
"""

import base64
import binascii
from typing import Any, Final

from aiohttp import web

from simulator.kubeapi import faults, responses
from simulator.world import machine, nodes
from simulator.world.world import World

USERNAME, PASSWORD = "operator", "simulated"  # nosec B105
SYSTEMS: Final = "/redfish/v1/Systems"
RESETS: Final = ("On", "ForceOff", "ForceRestart")
Object = dict[str, Any]


class Redfish:
    """The routes for one world."""

    def __init__(self, world: World, api_faults: faults.ApiFaults) -> None:
        self._world, self._faults = world, api_faults
        self._uuids = {name: nodes.system_uuid(number) for number, name in enumerate(world.machines)}
        self._serials = {name: nodes.serial_number(number) for number, name in enumerate(world.machines)}

    def add_routes(self, app: web.Application) -> None:
        """Adds the service below ``/redfish``."""
        app.router.add_get("/redfish/v1/", self._root)
        app.router.add_get(SYSTEMS, self._systems)
        app.router.add_get(SYSTEMS + "/{node}", self._system)
        app.router.add_post(SYSTEMS + "/{node}/Actions/ComputerSystem.Reset", self._reset)

    async def _root(self, request: web.Request) -> web.Response:
        body = {"@odata.id": "/redfish/v1/", "RedfishVersion": "1.15.0", "Systems": {"@odata.id": SYSTEMS}}
        return web.json_response(body)

    async def _systems(self, request: web.Request) -> web.Response:
        _authenticate(request)
        members = [{"@odata.id": f"{SYSTEMS}/{name}"} for name in self._world.machines]
        body = {"@odata.id": SYSTEMS, "Members": members, "Members@odata.count": len(members)}
        return web.json_response(body)

    async def _system(self, request: web.Request) -> web.Response:
        _authenticate(request)
        name, host = self._machine(request)
        where = f"{SYSTEMS}/{name}"
        reset = {"target": f"{where}/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": RESETS}
        return web.json_response(
            {
                "@odata.id": where,
                "Id": name,
                "UUID": self._uuids[name].upper(),
                "SerialNumber": self._serials[name],
                "Manufacturer": "Simulated",
                "Model": "GPU server",
                "PowerState": "Off" if host.power == machine.OFF else "On",
                "Actions": {"#ComputerSystem.Reset": reset},
            }
        )

    async def _reset(self, request: web.Request) -> web.StreamResponse:
        _authenticate(request)
        name, host = self._machine(request)
        raw = await request.read()
        fault = self._faults.take(method="POST", verb="reset", path=request.path_qs, body=raw)
        if fault is None:
            return _carry_out(host, raw)
        if fault.status == faults.HOLD:
            done = _carry_out(host, raw) if fault.after else None
            await self._faults.hold(fault)
            if done is None and not responses.client_left(request):
                return _carry_out(host, raw)
            return done or web.Response(status=503)
        if fault.after:
            _carry_out(host, raw)
        if fault.status == faults.TIMEOUT:
            await self._faults.hold(fault)
        return responses.fault_response(request, fault, group="", plural="systems", name=name)

    def _machine(self, request: web.Request) -> tuple[str, machine.Machine]:
        name = request.match_info["node"]
        if name not in self._world.machines:
            raise web.HTTPNotFound(text="no such system")
        return name, self._world.machines[name]


def _carry_out(host: machine.Machine, raw: bytes) -> web.Response:
    """One reset. 409 if the machine is in that state already."""
    wanted = next((kind for kind in RESETS if f'"{kind}"'.encode() in raw), None)
    if wanted is None:
        return web.json_response({"error": {"code": "Base.1.8.ActionParameterValueNotInList"}}, status=400)
    done = host.power_off() if wanted != "On" else host.power_on()
    if wanted == "ForceRestart":
        done = host.power_on()
    return (
        web.Response(status=204) if done else web.json_response({"error": {"code": "Base.1.8.NoOperation"}}, status=409)
    )


def _authenticate(request: web.Request) -> None:
    """Raises HTTP 401 unless the user and the password are the service's."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    try:
        pair = base64.b64decode(given, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        pair = ""
    if scheme != "Basic" or pair != f"{USERNAME}:{PASSWORD}":
        raise web.HTTPUnauthorized
