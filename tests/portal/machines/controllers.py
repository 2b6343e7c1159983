"""A management controller in tests: a Redfish service over HTTP with one system, whose answers the test sets."""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USERNAME, PASSWORD = "operator", "never shown"
SYSTEMS = "/redfish/v1/Systems"
WANTED = {"On": "On", "ForceOff": "Off"}


class Controller:
    """``resets``: the requests that had their effect. ``statuses``: the answers to the next resets, then 204.

    ``after``: a reset with an error status has its effect. ``cut``: the next reset gets no answer. ``switched``: called
    after each effect with the power.
    """

    def __init__(self, *, uuid: str) -> None:
        self.power, self.uuid, self.kinds = "On", uuid, ["On", "ForceOff"]
        self.resets: list[str] = []
        self.asked: list[str] = []
        self.statuses: list[int] = []
        self.after = self.cut = self.broken = False
        self.switched: Callable[[str], object] = lambda power: None
        self.documents: dict[str, Mapping[str, Any]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def document(self, path: str) -> Mapping[str, Any] | None:
        where = f"{SYSTEMS}/1"
        reset = {"target": f"{where}/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": self.kinds}
        system = {"UUID": self.uuid, "SerialNumber": "SN1", "Manufacturer": "Acme", "Model": "G8"}
        known: dict[str, Mapping[str, Any]] = {
            "/redfish/v1/": {"Systems": {"@odata.id": SYSTEMS}},
            SYSTEMS: {"Members": [{"@odata.id": where}]},
            where: {**system, "PowerState": self.power, "Actions": {"#ComputerSystem.Reset": reset}},
            **self.documents,
        }
        return known.get(path)

    def reset(self, kind: str) -> int:
        self.asked.append(kind)
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 204 or self.after:
            self.resets.append(kind)
            self.power = WANTED[kind]
            self.switched(self.power)
        return status


def _handler(controller: Controller) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                return self._say(401)
            found = controller.document(self.path)
            if controller.broken or found is None:
                return self._say(503 if controller.broken else 404)
            return self._say(200, json.dumps(found).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers.get("Authorization") != expected:
                return self._say(401)
            cut, controller.cut = controller.cut, False
            if cut and not controller.after:
                controller.asked.append(body["ResetType"])
                self.close_connection = True
                return None
            status = controller.reset(body["ResetType"])
            if cut:
                self.close_connection = True
                return None
            return self._say(status)

        def _say(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
