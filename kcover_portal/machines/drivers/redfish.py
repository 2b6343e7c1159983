"""Redfish (DMTF DSP0266): power, identity and serial number of a machine, and its switch.

Every call is one request under the rules of ``outgoing``: time limit, blocked addresses, no redirect. The libraries
sushy and redfish make calls of their own, which follow redirects and check no address. The links that a controller
gives are paths of the same server, so the password goes nowhere else.
"""

import base64
import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kcover import reasons
from kcover_portal.lib import outgoing
from kcover_portal.machines.drivers import values
from kcover_portal.machines.drivers.values import Machine, Power, Seen, Switched, Unreadable

ROOT: Final = "/redfish/v1/"
MAX_BYTES: Final = 1024 * 1024
MAX_TEXT: Final = 120  # characters of a serial number or a name
REQUESTS: Final = {Power.ON: "On", Power.OFF: "ForceOff"}
LATER: Final = (408, 409, 425, 429, 503)  # not accepted now; another attempt may succeed
LASTING: Final = (400, 401, 403, 404, 405, 410, 501)
PATH: Final = re.compile(r"/redfish/v1/[A-Za-z0-9._~%@:()'$&*+,;=/#-]*")


def look(machine: Machine) -> Seen:
    """Reads the system by its links from the service root, within the machine's time. Raises Unreadable."""
    until = time.monotonic() + machine.seconds
    systems = _link(_get(machine, ROOT, until=until), "Systems", machine)
    return read_system(machine, _get(machine, _member(machine, _get(machine, systems, until=until)), until=until))


def read_system(machine: Machine, system: Mapping[str, Any]) -> Seen:
    """What a ComputerSystem says. Raises Unreadable."""
    reset = _part(_part(system, "Actions"), "#ComputerSystem.Reset")
    kinds = reset.get("ResetType@Redfish.AllowableValues")
    state = system.get("PowerState")
    return Seen(
        power={"On": Power.ON, "Off": Power.OFF}.get(state if isinstance(state, str) else "", Power.OTHER),
        uuid=_text(system, "UUID"),
        serial=_text(system, "SerialNumber"),
        maker=_text(system, "Manufacturer"),
        model=_text(system, "Model"),
        target=_path(reset.get("target"), machine),
        kinds=tuple(map(str, kinds)) if isinstance(kinds, list) else None,
    )


def switch(machine: Machine, seen: Seen, power: Power) -> Switched:
    """One request to the system's reset action."""
    wanted = REQUESTS[power]
    if seen.kinds is not None and wanted not in seen.kinds:
        return Switched(reason=reasons.of("redfish_reset_missing", host=_host(machine), kind=wanted))
    try:
        reply = outgoing.request(
            "POST",
            machine.url + seen.target,
            body=json.dumps({"ResetType": wanted}).encode(),
            seconds=machine.seconds,
            headers={**_headers(machine), "Content-Type": "application/json"},
            most=MAX_BYTES,
            verify=machine.verify,
        )
    except outgoing.NoResponse as silence:
        return values.of_silence(silence)
    return values.of_answer(reply.status, host=_host(machine), later=LATER)


def _get(machine: Machine, path: str, *, until: float) -> Mapping[str, Any]:
    try:
        reply = outgoing.request(
            "GET",
            machine.url + path,
            seconds=max(until - time.monotonic(), 0.1),
            headers=_headers(machine),
            most=MAX_BYTES,
            verify=machine.verify,
        )
    except outgoing.NoResponse as silence:
        raise Unreadable(silence.reason) from silence
    if not 200 <= reply.status < 300:
        answered = reasons.of("host_answered", host=_host(machine), status=str(reply.status))
        raise Unreadable(answered, lasting=reply.status in LASTING)
    if len(reply.data) > MAX_BYTES:
        raise Unreadable(reasons.of("answer_too_large", host=_host(machine), bytes=MAX_BYTES))
    try:
        found = json.loads(reply.data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(reasons.of("answer_not_json", host=_host(machine), error=str(error)[:200])) from error
    if not isinstance(found, dict):
        raise _malformed(machine, path)
    return found


def _headers(machine: Machine) -> dict[str, str]:
    headers = {"Accept": "application/json", "OData-Version": "4.0"}
    if machine.username or machine.password:
        pair = f"{machine.username}:{machine.password}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    return headers


def _member(machine: Machine, systems: Mapping[str, Any]) -> str:
    """The path of the machine's system."""
    members = systems.get("Members")
    listed = members if isinstance(members, list) else []
    paths = [_path(one.get("@odata.id"), machine) for one in listed if isinstance(one, dict)]
    if machine.system:
        paths = [path for path in paths if path.rstrip("/").rpartition("/")[2] == machine.system]
    if len(paths) != 1:
        many = reasons.of("redfish_systems", host=_host(machine), count=len(paths), setting="system")
        missing = reasons.of("redfish_system_missing", host=_host(machine), system=machine.system)
        raise Unreadable(missing if machine.system else many, lasting=True)
    return paths[0]


def _link(found: Mapping[str, Any], name: str, machine: Machine) -> str:
    return _path(_part(found, name).get("@odata.id"), machine)


def _path(value: object, machine: Machine) -> str:
    """A path of this server. Raises Unreadable for anything else, such as an address of another server."""
    if not isinstance(value, str) or not PATH.fullmatch(value) or ".." in value:
        raise _malformed(machine, str(value)[:MAX_TEXT])
    return value


def _malformed(machine: Machine, path: str) -> Unreadable:
    return Unreadable(reasons.of("redfish_malformed", host=_host(machine), path=path), lasting=True)


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return "".join(filter(str.isprintable, value))[:MAX_TEXT].strip() if isinstance(value, str) else ""


def _host(machine: Machine) -> str:
    return urlsplit(machine.url).netloc
