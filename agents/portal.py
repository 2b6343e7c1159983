"""The portal over HTTP/1.1: the uplink of a real agent, with its token and the line it keeps open."""

import gzip
import http.client
import json
import logging
import os
import pathlib
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import datetime

from agents import VERSION, credential, uplink
from agents.store import Store
from agents.uplink import UplinkError
from kcover import fault, wire

log = logging.getLogger(__name__)

REPORTS = "/api/v1/agent/reports"
COMMANDS = "/api/v1/agent/commands"
ENROL = "/api/v1/agent/enrol"
MAX_ANSWER = 1 << 20
HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")  # how OpenSSL finds a certificate in a folder
GZIP_FROM = 1024  # under this, compressing costs more than it saves

Answered = tuple[int, Mapping[str, str], bytes]


class Portal:
    """An ``Uplink``. Reports and the long poll have a connection each, so that a waiting poll holds no report back.

    With an enrolment token the node's own token is asked for once and kept in the store (readable by its owner only),
    and renewed by itself from then on: the enrolment token is needed no more, unless the portal takes neither.
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
    ) -> None:
        """``token`` is asked at each call, as the file behind it may be rotated. ``cluster`` names the cluster where
        the token does not (a Kubernetes service-account token). Raises OSError for an unreadable ``ca_file``."""
        self._node, self._token, self._clock = node, token, clock
        self._cluster = cluster
        trust = Trust(ca_file) if url.startswith("https:") else None
        self._reports, self._commands = (_Line(url, trust=trust, timeout=timeout) for _ in range(2))
        self._enrolling = threading.Lock()
        self._keeper = credential.Keeper(store, node=node, clock=clock)

    @property
    def enrolled(self) -> bool:
        """Whether this node has a token of its own from enrolling."""
        return self._keeper.own is not None

    def post_report(self, body: bytes) -> wire.Answer:
        """See ``Uplink.post_report``."""
        headers = {"Content-Type": "application/json"}
        if len(body) >= GZIP_FROM:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        answered = self._call(self._reports, "POST", REPORTS, body=body, headers=headers)
        return uplink.read_answer(*answered, now=self._clock())

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        """See ``Uplink.poll_commands``."""
        query = urllib.parse.urlencode({"node": self._node, "wait": int(wait)})
        answered = self._call(self._commands, "GET", f"{COMMANDS}?{query}", patience=wait)
        return uplink.read_answer(*answered, now=self._clock()).commands

    def close(self) -> None:
        """See ``Uplink.close``."""
        self._reports.close()
        self._commands.close()

    def _call(
        self,
        line: "_Line",
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> Answered:

        def sent_with(bearer: str) -> Answered:
            return line.call(
                method, path, body=body, headers={**(headers or {}), **self._headers(bearer)}, patience=patience
            )

        bearer = self._bearer(line)
        answered = sent_with(bearer)
        for _ in range(2):  # the credential before, and one from enrolling anew
            if answered[0] != 401 or bearer == (given := self._given()):
                break
            log.warning("the portal no longer takes this node's token, trying with another")
            bearer = self._another(bearer, given, line)
            answered = sent_with(bearer)
        return answered

    def _headers(self, bearer: str) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {bearer}", "User-Agent": f"kcover-agent/{VERSION}"}
        return headers | ({"X-Kcover-Cluster": self._cluster} if self._cluster else {})

    def _bearer(self, line: "_Line") -> str:
        given = self._given()
        if given and not uplink.needs_enrolment(given):
            return given
        with self._enrolling:
            own = self._keeper.own
            if own is None and not given:
                raise UplinkError("no token is given, and this node has not enrolled")
            if own is None:
                return self._enrol(given, line).token
            if self._keeper.is_due():
                self._renew(own.token, line)
                own = self._keeper.own or own
            return own.token

    def _given(self) -> str:
        """The token as it is now: a kubelet writes a new one every hour or so. "" where it was taken away after
        enrolling."""
        try:
            return self._token()
        except FileNotFoundError as error:
            if self.enrolled:
                return ""
            raise UplinkError(f"the token cannot be read: {error}") from error
        except OSError as error:
            raise UplinkError(f"the token cannot be read: {error}") from error

    def _another(self, bearer: str, given: str, line: "_Line") -> str:
        """What to show instead of a token that the portal does not take. Raises UplinkError where nothing can be had:
        the node's own stays, and is tried again with the next call, as it may have been a proxy that refused it."""
        if given and not uplink.needs_enrolment(given):
            return given
        with self._enrolling:
            if self._keeper.refused(bearer) and self._keeper.own:
                return self._keeper.own.token
            if not given:
                raise UplinkError(
                    f"the portal takes the credential of node {self._node} no more, and there is no enrolment token: "
                    "make one (manage.py token create --kind agent) and give it as KCOVER_AGENT_TOKEN or in its file"
                )
            return self._enrol(given, line).token

    def _enrol(self, token: str, line: "_Line") -> credential.Credential:
        """Trade an enrolment token for the node's own one, and keep that. Raises UplinkError."""
        answer = self._ask(token, line, what="enrolment")
        try:
            own = self._keeper.enrolled(answer)
        except ValueError as error:
            raise UplinkError(f"enrolment: answer not understood: {error}") from error
        log.info("enrolled as %s until %s", self._node, own.expires_at)
        return own

    def _renew(self, token: str, line: "_Line") -> None:
        """Trade the node's own token for its next one, if that can be had and kept."""
        try:
            if self._keeper.renewed(self._ask(token, line, what="renewal")):
                log.info("this node's credential is renewed")
        except (UplinkError, ValueError) as error:
            log.warning("credential not renewed yet: %s", error)

    def _ask(self, token: str, line: "_Line", *, what: str) -> bytes:
        """What the portal gives for this token. Raises UplinkError."""
        body = json.dumps({"node": self._node}).encode()
        headers = self._headers(token) | {"Content-Type": "application/json"}
        status, answered, answer = line.call("POST", ENROL, body=body, headers=headers)
        try:
            uplink.check_status(status, answered, answer, now=self._clock())
        except UplinkError as error:  # whatever it is, no report is to be dropped or set aside over it
            raise UplinkError(f"{what}: {error}", retry_after=error.retry_after) from error
        return answer


class Trust:
    """Whose certificates are believed: those of ``ca_file``, else the system's.

    The system's bundle costs 2.5 MiB for as long as an agent lives. Where its certificates lie in a folder by hash too,
    OpenSSL finds there the one that it needs, and the bundle is read only if that did not do.
    """

    def __init__(self, ca_file: pathlib.Path | None) -> None:
        """Raises OSError for an unreadable ``ca_file``."""
        by_hash = _system_folder() if ca_file is None else None
        self.context = ssl.create_default_context(cafile=ca_file, capath=by_hash)
        self._whole = by_hash is None

    def widen(self) -> bool:
        """Take the system's bundle in, after a certificate was not believed. False: it is in already."""
        if self._whole:
            return False
        self._whole = True
        self.context.load_default_certs()
        return True


def _system_folder() -> pathlib.Path | None:
    """The folder in which the system keeps certificates by hash, if it does and nobody has named another place."""
    paths = ssl.get_default_verify_paths()
    if not paths.capath or os.environ.keys() & {paths.openssl_cafile_env, paths.openssl_capath_env}:
        return None
    folder = pathlib.Path(paths.capath)
    return folder if any(HASHED.fullmatch(entry.name) for entry in folder.iterdir()) else None


class _Line:
    """One kept-alive connection. Every failure is an UplinkError; one thread at a time, a lock sees to it."""

    def __init__(self, url: str, *, trust: Trust | None, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._trust, self._timeout = trust, timeout
        self._connection: http.client.HTTPConnection | None = None
        self._guard = threading.Lock()
        self._closed = False

    def call(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str], patience: float = 0.0
    ) -> Answered:
        """One request; the answer may take ``patience`` seconds more than the line's own time limit.

        A kept-alive connection that the other side has closed meanwhile is opened again, once: every request of an
        agent may be sent twice.
        """
        with self._guard:
            for fresh in (self._connection is None, True, True):
                if self._closed:
                    raise UplinkError("closed")
                try:
                    return self._exchange(method, path, body=body, headers=headers, patience=patience)
                except (OSError, http.client.HTTPException) as error:
                    self._drop()
                    if isinstance(error, ssl.SSLCertVerificationError) and self._trust and self._trust.widen():
                        continue
                    if fresh or isinstance(error, TimeoutError):
                        raise UplinkError(f"{method} {path}: {type(error).__name__}: {error}") from error
            raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """End a call under way, and allow no other."""
        self._closed = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("the line was down already")
        if self._guard.acquire(timeout=1.0):  # a call that is still connecting keeps its socket until it gives up
            try:
                self._drop()
            finally:
                self._guard.release()

    def _exchange(
        self, method: str, path: str, *, body: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Answered:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(self._timeout + patience)
        connection.request(method, self._base + path, body=body, headers=dict(headers))
        response = connection.getresponse()
        content = response.read(MAX_ANSWER + 1)
        if len(content) > MAX_ANSWER or response.will_close:
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
