"""A controller over IPMI as a process: pyghmi's own server. ``python -m tests.portal.machines.bmc_server MODE UUID``.

It prints its port, and then each change of the power that it carries out. MODE: ``plain``; ``lost``: it carries out a
change and does not answer; ``busy``: it refuses a change for now; ``refuses``: for good; ``no_response``: it says that
it has lost the answer; ``swapped``: from the second look on, it is another machine.
"""

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

from pyghmi.ipmi import bmc
from pyghmi.ipmi.private import serversession

USERNAME, PASSWORD = "operator", "never shown"
CODES = {"busy": 0xC0, "refuses": 0xD5, "no_response": 0xCE}
NO_CIPHER_SUITE, SHA1 = 0x11, 1


class Session(serversession.ServerSession):
    """pyghmi's session answers any proposal with cipher suite 3. A controller refuses what it does not support."""

    def create_open_session_response(self, request: Any) -> bytearray:
        answer: bytearray = super().create_open_session_response(request)
        return answer if request[12] == SHA1 else bytearray([request[0], NO_CIPHER_SUITE, 0, 0]) + request[4:8]


class Bmc(bmc.Bmc):
    def __init__(self, mode: str, guid: str) -> None:
        super().__init__({USERNAME: PASSWORD}, port=0, address="::ffff:127.0.0.1")
        self.port = self.serversocket.getsockname()[1]
        self.mode, self.guid, self.power = mode, uuid.UUID(guid), "on"

    def get_system_guid(self) -> uuid.UUID:
        found = self.guid
        if self.mode == "swapped":
            self.guid = uuid.UUID(int=self.guid.int + 1)
        return found

    def get_power_state(self) -> str:
        return self.power

    def power_off(self) -> int:
        return self._switch("off")

    def power_on(self) -> int:
        return self._switch("on")

    def _switch(self, power: str) -> int:
        if self.mode in CODES:
            return CODES[self.mode]
        self.power = power
        print(power, flush=True)
        return 0

    def control_chassis(self, request: Any, session: Any) -> None:
        if self.mode == "lost":
            session.send_ipmi_response = lambda **_: None
        super().control_chassis(request, session)


class Running:
    """A running controller. ``switched``: what it carried out."""

    def __init__(self, mode: str, guid: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.portal.machines.bmc_server", mode, guid], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"ipmi://127.0.0.1:{int(self._process.stdout.readline())}"

    def stop(self) -> list[str]:
        """Ends it. Returns what it carried out."""
        self._process.kill()
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            said = lines.read().split()
        self._process.wait()
        return said


@contextlib.contextmanager
def running(mode: str, guid: str) -> Iterator[Running]:
    made = Running(mode, guid)
    try:
        yield made
    finally:
        if made._process.returncode is None:
            made.stop()


if __name__ == "__main__":
    serversession.ServerSession = Session
    server = Bmc(*sys.argv[1:])
    print(server.port, flush=True)
    server.listen()
