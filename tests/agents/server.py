"""A portal for one test: a real HTTP server that records requests and gives the answers that the test sets."""

import gzip
import http.server
import json
import ssl
import subprocess
import threading
import time
import urllib.parse

from kcover import wire
from tests import waiting


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        status, headers, answer = self.server.portal.post(self.path, dict(self.headers), body)
        self._answer(status, headers, answer)

    def do_GET(self):
        self._answer(*self.server.portal.get(self.path, dict(self.headers)))

    def _answer(self, status, headers, answer):
        if self.command == "POST" and self.server.portal.cut:
            self.server.portal.cut -= 1
            self.close_connection = True  # what was sent is kept, and nobody is told
            return
        content = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that is killed in mid-call is part of the tests


class FakePortal:
    def __init__(self):
        self.reports = []  # every body, decoded
        self.bearers = []
        self.enrolled = []
        self.keys = []  # of each enrolment; None: none was sent
        self.renewed = []  # bearers that asked for their next one
        self.connections = set()
        self.answers = []  # (status, headers) to give instead of 202, first to last
        self.preflights = []  # every body of a preflight report, decoded
        self.preflight_answers = []  # (status, body) to give instead of 202, first to last
        self.evidence = {}  # bytes of each bundle
        self.chunks = []  # (parameters, bytes) of every request about evidence
        self.evidence_answers = []  # (status, body) to give instead of 202, first to last; None: 202
        self.commands = []
        self.peers = ["10.0.0.2"]  # what the portal names; anything else is sent as it is
        self.renewals = []  # statuses to give instead of 201, first to last
        self.tokens = None  # bearers taken; None: all
        self.enrols = True  # whether enrolment tokens are taken
        self.expires_at = "2099-01-01T00:00:00Z"
        self.cut = 0  # answers to reports that never arrive
        self.patience = 1.0  # the longest that a poll waits, in seconds
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.portal = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def speak_tls(self, folder):
        """Speaks TLS from now on. Returns the file with its certificate, for the name localhost. Raises OSError or
        subprocess.CalledProcessError if openssl cannot make one."""
        key, certificate = folder / "key.pem", folder / "ca.pem"
        subprocess.run(
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -keyout {key} "
            f"-out {certificate} -subj /CN=localhost -addext subjectAltName=DNS:localhost".split(),
            capture_output=True,
            check=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")
        return certificate

    def post(self, path, headers, body):
        bearer = headers["Authorization"].removeprefix("Bearer ")
        if path == "/api/v1/agent/enrol":
            if bearer.startswith("kca_"):
                self.renewed.append(bearer)
                if self.renewals and (status := self.renewals.pop(0)) != 201:
                    return status, {}, {"detail": "bidden"}
                return 201, {}, {"token": f"kca_r{len(self.renewed)}", "expires_at": self.expires_at}
            if not self.enrols:
                return 401, {}, {"detail": "expired"}
            asked = json.loads(body)
            self.enrolled.append((asked["node"], bearer))
            self.keys.append(asked.get("key"))
            return 201, {}, {"token": f"kca_{len(self.enrolled)}", "expires_at": self.expires_at}
        if path == "/api/v1/agent/preflight":
            self.preflights.append(json.loads(body))
            status, answer = self.preflight_answers.pop(0) if self.preflight_answers else (202, {})
            return status, {}, answer
        if path.startswith("/api/v1/agent/evidence"):
            return self._take_evidence(path, body)
        self.bearers.append(bearer)
        if self.tokens is not None and bearer not in self.tokens:
            return 401, {}, {"detail": "no such token"}
        report = wire.decode(body)
        self.reports.append(report.report)
        assert report.rejected == ()
        if self.answers:
            status, extra = self.answers.pop(0)
            if status != 202:
                return status, extra, {"detail": "bidden"}
        answer = wire.Answer(accepted=len(report.report.faults), commands=tuple(self.commands))
        return 202, {}, wire.encode_answer(answer)

    def _take_evidence(self, path, body):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
        self.chunks.append((query, body))
        if self.evidence_answers and (bidden := self.evidence_answers.pop(0)) is not None:
            return bidden[0], {}, bidden[1]
        stored = self.evidence.setdefault(query["bundle"], b"")
        if int(query["offset"]) == len(stored):
            self.evidence[query["bundle"]] = stored + body
        return 202, {}, {"received": len(self.evidence[query["bundle"]])}

    def get(self, path, headers):
        if path == "/api/v1/agent/peers":
            return 200, {}, {"peers": self.peers}
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        until = time.monotonic() + min(float(query["wait"][0]), self.patience)
        while not self.commands and time.monotonic() < until:
            time.sleep(0.02)
        return 200, {}, {"commands": [wire.encode_command(command) for command in self.commands]}

    @property
    def faults(self):
        return [fault for report in self.reports for fault in report.faults]

    @property
    def results(self):
        return [result for report in self.reports for result in report.command_results]

    def wait_for(self, condition):
        waiting.until(condition)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
