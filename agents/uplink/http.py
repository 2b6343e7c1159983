"""The uplink of a real agent: HTTP/1.1 to the portal, with the credential of the node."""

import gzip
import http.client
import logging
import pathlib
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import datetime

from agents import VERSION
from agents.host.store import Store
from agents.uplink import credential, protocol
from agents.uplink.protocol import UplinkError
from agents.uplink.trust import TrustStore, hashed_certificates
from kcover import wire
from kcover.evidence import bundle
from kcover.faults import fault

log = logging.getLogger(__name__)

REPORTS_PATH = "/api/v1/agent/reports"
COMMANDS_PATH = "/api/v1/agent/commands"
PREFLIGHT_PATH = "/api/v1/agent/preflight"
PEERS_PATH = "/api/v1/agent/peers"
EVIDENCE_PATH = "/api/v1/agent/evidence"
ENROL_PATH = "/api/v1/agent/enrol"
MAX_ANSWER_BYTES = 1 << 20
GZIP_MIN_BYTES = 1024  # for smaller bodies, compressing costs more than it saves

HttpAnswer = tuple[int, Mapping[str, str], bytes]


class HttpUplink:
    """An ``Uplink``. Reports, the long poll, preflight and evidence have a connection each, so no slow answer delays a
    report. Peers are fetched once an hour, on the connection of preflight.

    With an enrolment token, the node asks once for its own token, keeps it in the store (readable only by its owner)
    and renews it from then on. The enrolment token is needed again only if the portal no longer accepts that token.
    """

    def __init__(
        self,
        *,
        url: str,
        node: str,
        token: Callable[[], str],
        store: Store,
        clock: Callable[[], datetime],
        cluster: str | None = None,
        ca_file: pathlib.Path | None = None,
        timeout: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
        trust: TrustStore | None = None,
        connection: "Callable[..., Connection] | None" = None,
    ) -> None:
        """``token`` is called for each request, because the file behind it may be rotated. ``cluster`` names the
        cluster if the token does not (a Kubernetes service account token). ``connection`` opens a connection; None
        opens a ``Connection``. Raises OSError for an unreadable ``ca_file``."""
        self._node, self._token, self._clock = node, token, clock
        self._cluster = cluster
        if trust is None and url.startswith("https:"):
            trust = TrustStore(ca_file, hashed_folder=hashed_certificates() if ca_file is None else None)
        opened = connection or Connection
        self._connections = [opened(url, trust=trust, timeout=timeout) for _ in range(4)]
        self._reports, self._commands, self._preflight, self._evidence = self._connections
        self._enrolling = threading.Lock()
        self._enrolment_key = protocol.new_enrolment_key()
        self._credentials = credential.CredentialStore(store, node=node, clock=clock, monotonic=monotonic)

    @property
    def enrolled(self) -> bool:
        """True if this node has a credential from enrolling."""
        return self._credentials.own is not None

    def post_report(self, body: bytes) -> wire.Answer:
        headers = {"Content-Type": "application/json"}
        if len(body) >= GZIP_MIN_BYTES:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        answer = self._call(self._reports, "POST", REPORTS_PATH, body=body, headers=headers)
        return protocol.parse_answer(*answer, now=self._clock())

    def post_preflight(self, body: bytes) -> None:
        answer = self._call(
            self._preflight, "POST", PREFLIGHT_PATH, body=body, headers={"Content-Type": "application/json"}
        )
        protocol.raise_for_status(*answer, now=self._clock())

    def post_evidence(self, upload: bundle.Upload, chunk: bytes) -> int:
        path = f"{EVIDENCE_PATH}?{urllib.parse.urlencode(upload.query())}"
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._call(self._evidence, "POST", path, body=chunk, headers=headers)
        return protocol.parse_received(*answer, now=self._clock())

    def fetch_peers(self) -> tuple[str, ...]:
        return protocol.parse_peers(*self._call(self._preflight, "GET", PEERS_PATH), now=self._clock())

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        query = urllib.parse.urlencode({"node": self._node, "wait": int(wait)})
        answer = self._call(self._commands, "GET", f"{COMMANDS_PATH}?{query}", extra_seconds=wait)
        return protocol.parse_answer(*answer, now=self._clock()).commands

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _call(
        self,
        connection: "Connection",
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        extra_seconds: float = 0.0,
    ) -> HttpAnswer:

        def send(bearer: str) -> HttpAnswer:
            return connection.call(
                method,
                path,
                body=body,
                headers={**(headers or {}), **self._headers(bearer)},
                extra_seconds=extra_seconds,
            )

        bearer = self._bearer(connection)
        answer = send(bearer)
        for _ in range(2):  # first the previous credential, then a new enrolment
            if answer[0] != 401 or bearer == (given := self._configured_token()):
                break
            log.warning("the portal refused the token of this node; trying another one")
            bearer = self._next_bearer(bearer, given, connection)
            answer = send(bearer)
        return answer

    def _headers(self, bearer: str) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {bearer}", "User-Agent": f"kcover-agent/{VERSION}"}
        return headers | ({"X-Kcover-Cluster": self._cluster} if self._cluster else {})

    def _bearer(self, connection: "Connection") -> str:
        given = self._configured_token()
        if given and not protocol.is_enrolment_token(given):
            return given
        with self._enrolling:
            own = self._credentials.own
            if own is None and not given:
                raise UplinkError("no token is configured, and this node has not enrolled")
            if own is None:
                return self._enrol(given, connection).token
            if self._credentials.is_renewal_due():
                self._renew(own.token, connection)
                own = self._credentials.own or own
            return own.token

    def _configured_token(self) -> str:
        """The configured token as it is now, because a kubelet rotates it about every hour.

        Empty if it was removed after enrolling.
        """
        try:
            return self._token()
        except FileNotFoundError as error:
            if self.enrolled:
                return ""
            raise UplinkError(f"the token cannot be read: {error}") from error
        except OSError as error:
            raise UplinkError(f"the token cannot be read: {error}") from error

    def _next_bearer(self, bearer: str, given: str, connection: "Connection") -> str:
        """The token to try after the portal refused one. Raises UplinkError if there is none. The node's own
        credential is kept and tried again with the next call, because a proxy may have refused it."""
        if given and not protocol.is_enrolment_token(given):
            return given
        with self._enrolling:
            if self._credentials.reject(bearer) and self._credentials.own:
                return self._credentials.own.token
            if not given:
                raise UplinkError(
                    f"the portal no longer accepts the credential of node {self._node}, and there is no "
                    "enrolment token: create one (manage.py token create --kind agent) and "
                    "set KCOVER_AGENT_TOKEN or KCOVER_AGENT_TOKEN_FILE"
                )
            return self._enrol(given, connection).token

    def _enrol(self, token: str, connection: "Connection") -> credential.Credential:
        """Trade an enrolment token for a credential of this node, and store it. Raises UplinkError. The key stays the
        same until an answer arrives, so that a retry gets the credential of the answer that was lost."""
        answer = self._request_token(token, connection, what="enrolment", key=self._enrolment_key)
        try:
            own = self._credentials.store_enrolled(answer)
        except ValueError as error:
            raise UplinkError(f"enrolment: the answer of the portal cannot be read: {error}") from error
        self._enrolment_key = protocol.new_enrolment_key()
        log.info("enrolled node %s; the credential is valid until %s", self._node, own.expires_at)
        return own

    def _renew(self, token: str, connection: "Connection") -> None:
        """Trade the node's credential for its successor, if the portal gives one and it can be stored."""
        try:
            if self._credentials.store_renewed(self._request_token(token, connection, what="renewal")):
                log.info("renewed the credential of this node")
        except (UplinkError, ValueError) as error:
            log.warning("could not renew the credential yet: %s", error)

    def _request_token(self, token: str, connection: "Connection", *, what: str, key: str = "") -> bytes:
        """The portal's answer to a request with this token. ``key``: of an enrolment. Raises UplinkError."""
        body = protocol.enrolment_body(self._node, key=key)
        headers = self._headers(token) | {"Content-Type": "application/json"}
        status, response_headers, answer = connection.call("POST", ENROL_PATH, body=body, headers=headers)
        try:
            protocol.raise_for_status(status, response_headers, answer, now=self._clock())
        except UplinkError as error:  # a plain UplinkError, so that no report is dropped or deferred because of it
            raise UplinkError(f"{what}: {error}", retry_after=error.retry_after) from error
        return answer


class Connection:
    """One kept-alive connection, used by one thread at a time. Every failure is an UplinkError."""

    def __init__(self, url: str, *, trust: TrustStore | None, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._trust, self._timeout = trust, timeout
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        extra_seconds: float = 0.0,
    ) -> HttpAnswer:
        """Send one request. The answer may take ``extra_seconds`` longer than the timeout of the connection.

        A kept-alive connection that the other side closed meanwhile is opened again, once. Every request of an agent
        may safely be sent twice.
        """
        with self._lock:
            for fresh in (self._connection is None, True, True):
                if self._closed:
                    raise UplinkError("the connection is closed")
                try:
                    return self._exchange(method, path, body=body, headers=headers, extra_seconds=extra_seconds)
                except (OSError, http.client.HTTPException) as error:
                    self._drop()
                    if self._trust and self._trust.may_accept_after(error):
                        continue
                    if fresh or isinstance(error, TimeoutError):
                        raise UplinkError(f"{method} {path}: {type(error).__name__}: {error}") from error
            raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Abort a call in progress and allow no other."""
        self._closed = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("the connection was already closed")
        if self._lock.acquire(timeout=1.0):  # a call that is still connecting keeps its socket until it gives up
            try:
                self._drop()
            finally:
                self._lock.release()

    def _exchange(
        self, method: str, path: str, *, body: bytes | None, headers: Mapping[str, str], extra_seconds: float
    ) -> HttpAnswer:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(self._timeout + extra_seconds)
        connection.request(method, self._base + path, body=body, headers=dict(headers))
        response = connection.getresponse()
        content = response.read(MAX_ANSWER_BYTES + 1)
        if len(content) > MAX_ANSWER_BYTES or response.will_close:
            self._drop()
        return response.status, {name.title(): value for name, value in response.headers.items()}, content

    def _connect(self) -> http.client.HTTPConnection:
        if self._trust is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._trust.context)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
