"""One call to a controller over IPMI, as a program of its own: a request on standard input, answers on output.

It imports pyghmi and nothing of the portal. pyghmi shares sockets, sessions and a thread within a process, prints, and
waits without a limit of its own. So the portal starts this file for each call, and ends it at a deadline.

Input: one JSON object with ``address`` (numeric), ``port``, ``username``, ``password``, ``act`` (look, on, off),
``seconds`` and ``uuid`` (the system GUID that an earlier look found; "" for none). Output: lines of JSON.
``{"sent": true}`` comes before the request that switches the power is sent. The last line is ``{"power", "uuid"}``,
``{"code"}`` (completion code of the request) or ``{"error", "text"}``.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import IO, Any, Final

# IPMI 1.5, which does not encrypt, is refused below.
from pyghmi.ipmi.private.session import Session  # nosec B415

CHASSIS, APPLICATION = 0x00, 0x06  # network functions (IPMI 2.0, table 5-1)
GET_STATUS, CONTROL = 0x01, 0x02  # of the chassis (28.2, 28.3)
GET_SYSTEM_GUID: Final = 0x37  # 22.14
CONTROLS: Final = {"off": 0, "on": 1}
OPERATOR: Final = 3  # the least privilege that may switch the power
GUID_BYTES: Final = 16
MAX_TEXT: Final = 200
MARGIN_SECONDS: Final = 1.0  # after its deadline the program ends itself, should the portal have died
WRONG_PASSWORD: Final = "Incorrect password"
WRONG_ACCOUNT: Final = ("Invalid role", "Unauthorized role", "Unauthorized name", "Invalid username")


def main() -> None:
    """Reads one request, makes the call, and writes the answers."""
    wanted = json.loads(sys.stdin.read())
    signal.setitimer(signal.ITIMER_REAL, wanted["seconds"] + MARGIN_SECONDS)  # SIGALRM ends the process
    with os.fdopen(os.dup(1), "w") as answers, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # pyghmi prints to standard output
        try:
            call(wanted, answers)
        except Exception as error:  # of pyghmi, which raises anything for a malformed packet
            _say(answers, _failure(error))
    os._exit(0)  # pyghmi's thread does not end by itself


def call(wanted: Mapping[str, Any], answers: IO[str]) -> None:
    """Logs on, makes the call and logs out."""
    session = Session(
        wanted["address"], wanted["username"], wanted["password"], port=wanted["port"], privlevel=OPERATOR
    )
    if session.ipmiversion != 2.0:
        _say(answers, {"error": "malformed", "text": "IPMI 1.5, which does not encrypt"})
    elif wanted["act"] == "look":
        _say(answers, _look(session))
    elif wanted["uuid"] and (found := _guid(session)) != wanted["uuid"]:  # its name or cable leads elsewhere by now
        _say(answers, {"error": "another", "text": found})
    else:
        _say(answers, {"sent": True})
        _say(answers, _switch(session, CONTROLS[wanted["act"]], until=time.monotonic() + wanted["seconds"]))
    session.logout()


def _look(session: Any) -> Mapping[str, Any]:
    status = session.raw_command(netfn=CHASSIS, command=GET_STATUS)
    if "error" in status:
        return {"error": "answered", "text": status["error"]}
    return {"power": "on" if status["data"][0] & 1 else "off", "uuid": _guid(session)}


def _guid(session: Any) -> str:
    """The system GUID in hex, its bytes as sent; "" if the controller does not give one."""
    guid = session.raw_command(netfn=APPLICATION, command=GET_SYSTEM_GUID)
    known = "error" not in guid and len(guid["data"]) == GUID_BYTES
    return bytes(guid["data"]).hex() if known else ""


def _switch(session: Any, control: int, *, until: float) -> Mapping[str, Any]:
    """Sends one request, once. ``raw_command`` with retries would send it again, also in a second session."""
    got: list[Mapping[str, Any]] = []
    session.raw_command(netfn=CHASSIS, command=CONTROL, data=[control], retry=False, callback=got.append)
    while not got and time.monotonic() < until:
        session.wait_for_rsp(timeout=until - time.monotonic())
    session.incommand = False  # so that logout() need not wait for the answer
    return {"code": got[0]["code"]} if got else {"error": "silent", "text": ""}


def _failure(error: Exception) -> Mapping[str, Any]:
    """Why there is no answer, by the text of pyghmi's exception: it has no codes for these."""
    text = str(error)
    if type(error).__name__ != "IpmiException":
        return {"error": "malformed", "text": f"{type(error).__name__}: {text}"[:MAX_TEXT]}
    if text.startswith((WRONG_PASSWORD, *WRONG_ACCOUNT)):
        return {"error": "credentials", "text": text[:MAX_TEXT]}
    silent = text in ("None", "timeout", "Session no longer connected")
    return {"error": "silent" if silent else "answered", "text": text[:MAX_TEXT]}


def _say(answers: IO[str], answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
