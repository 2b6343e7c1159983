"""IPMI 2.0 over LAN (RMCP+): power and identity of a machine, and its switch, by pyghmi in a process for each call.

The name is resolved here, under the rules of ``outgoing``, and the process gets the address that was checked. The
password goes through its standard input. Both sides prove that they know it before anything is asked (RAKP).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from kcover import reasons
from kcover.machines import machine_drivers
from kcover_portal.lib import outgoing
from kcover_portal.machines.drivers import child_process
from kcover_portal.machines.drivers.values import Machine, Power, Seen, Switched, Unreadable, of_silence

PROGRAM: Final = Path(__file__).with_name("ipmi_call.py")
MAX_BYTES: Final = 4096  # of all answers
REQUESTS: Final = {Power.ON: "on", Power.OFF: "off"}
DONE, BUSY = 0x00, 0xC0  # completion codes (IPMI 2.0, table 5-2)
# A timeout within the controller, "response could not be provided", "duplicated request", and "unspecified".
UNCLEAR: Final = (0xC3, 0xCE, 0xCF, 0xFF)


def look(machine: Machine) -> Seen:
    """Reads the power and the system GUID. Raises Unreadable."""
    try:
        answers = _call(machine, "look")
    except outgoing.NoResponse as silence:
        raise Unreadable(silence.reason) from silence
    answer = answers[-1] if answers else {}
    if answer.get("power") not in (Power.ON, Power.OFF):
        raise Unreadable(_why(machine, answer), lasting=answer.get("error") == "credentials")
    return Seen(power=Power(answer["power"]), uuid=_uuid(answer.get("uuid")))


def switch(machine: Machine, seen: Seen, power: Power) -> Switched:
    """One chassis control request, which is sent once.

    The same session reads the system GUID first. A name that leads to another machine than at the look, or a cable in
    another socket, switches nothing.
    """
    try:
        answers = _call(machine, REQUESTS[power], uuid=seen.uuid.replace("-", ""))
    except outgoing.NoResponse as silence:
        return of_silence(silence)
    sent = any("sent" in answer for answer in answers)
    answer = answers[-1] if answers else {}
    code = answer.get("code")
    if not isinstance(code, int):
        refused = answer.get("error") in ("credentials", "another")
        return Switched(unclear=sent, later=not sent and not refused, reason=_why(machine, answer))
    answered = reasons.of("ipmi_answered", host=_host(machine), code=f"{code:02x}h")
    return Switched(taken=code == DONE, unclear=code in UNCLEAR, later=code == BUSY, reason=answered)


def _call(machine: Machine, act: str, *, uuid: str = "") -> Sequence[Mapping[str, Any]]:
    """The answers of one call, in their order. Raises NoResponse if it was not made."""
    parts = urlsplit(machine.url)
    host, port = parts.hostname or "", parts.port or machine_drivers.IPMI_PORT
    given = {
        "address": outgoing.addresses(host, port)[0],
        "port": port,
        "username": machine.username,
        "password": machine.password,
        "act": act,
        "seconds": machine.seconds,
        "uuid": uuid,
    }
    try:
        said = child_process.run(PROGRAM, json.dumps(given).encode(), seconds=machine.seconds, most=MAX_BYTES)
    except OSError as error:
        failed = reasons.of("host_not_answering", host=_host(machine), error=str(error)[: outgoing.MAX_ERROR])
        raise outgoing.NoResponse(failed, arrived=False) from error
    return read(said)


def read(said: bytes) -> Sequence[Mapping[str, Any]]:
    """The answers of the program. A line that was cut off by the deadline is none."""
    found = []
    for line in said.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict):
            found.append(answer)
    return found


def _why(machine: Machine, answer: Mapping[str, Any]) -> reasons.Reason:
    host, text = _host(machine), "".join(filter(str.isprintable, str(answer.get("text", ""))))
    match answer.get("error"):
        case "credentials":
            return reasons.of("ipmi_credentials", host=host, error=text)
        case "malformed":
            return reasons.of("ipmi_malformed", host=host, error=text)
        case "another":
            return reasons.of("ipmi_another_machine", host=host, uuid=_uuid(text) or "–")
        case "answered":
            return reasons.of("host_not_answering", host=host, error=text)
    return reasons.of("host_too_slow", host=host, seconds=f"{machine.seconds:g}")  # silent, or ended at its deadline


def _uuid(text: object) -> str:
    """The GUID as a UUID, its bytes as sent: firmware differs in their order (``machine_drivers.same_machine``)."""
    try:
        return str(UUID(hex=str(text)))
    except ValueError:
        return ""


def _host(machine: Machine) -> str:
    return urlsplit(machine.url).netloc
