"""Connects hundreds of agents in one event loop to the portal: the real wire format, without threads."""

import asyncio
import contextlib
import gzip
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import aiohttp

from agents import VERSION
from agents.host.store import Store
from agents.uplink import credential, http, protocol
from agents.uplink.protocol import UplinkError
from kcover import wire
from kcover.evidence import bundle
from kcover.faults import fault

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 15.0  # except for long polls
_MAX_CONCURRENT_CALLS = 24  # concurrent reports and enrolments: a fleet that starts must not overload the portal


class PortalSession:
    """Shared by all uplinks: the HTTP session and the limit on concurrent requests."""

    def __init__(self, url: str, *, token: str, clock: Callable[[], datetime], cluster: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.token, self.clock, self.cluster = token, clock, cluster
        self.gate = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=75),
            headers={"User-Agent": f"kcover-agent/{VERSION} (simulated)"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def responds(self) -> bool:
        """Return whether the portal responds: any HTTP status under 500."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(f"{self.url}/healthz", timeout=aiohttp.ClientTimeout(total=5)) as response:
                return response.status < 500
        return False

    async def close(self) -> None:
        await self.session.close()


class NodeUplink:
    """The uplink of one node. Its own token is kept in the node's store, as a real agent's is."""

    def __init__(self, session: PortalSession, *, node: str, store: Store) -> None:
        self._session, self._node, self._store = session, node, store
        self._enrolling = asyncio.Lock()
        self._enrolment_key = protocol.new_enrolment_key()
        stored = store.read(credential.CREDENTIAL_FILE)
        self._own: str | None = json.loads(stored)["token"] if stored else None

    async def post_report(self, body: bytes) -> wire.Answer:
        headers = {"Content-Type": "application/json"}
        if len(body) >= http.GZIP_MIN_BYTES:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        async with self._session.gate:
            answered = await self._call("POST", http.REPORTS_PATH, body=body, headers=headers)
        return protocol.parse_answer(*answered, now=self._session.clock())

    async def post_evidence(self, upload: bundle.Upload, chunk: bytes) -> int:
        """See ``agents.uplink.protocol.Uplink``."""
        path = f"{http.EVIDENCE_PATH}?{urlencode(upload.query())}"
        headers = {"Content-Type": "application/octet-stream"}
        async with self._session.gate:
            answered = await self._call("POST", path, body=chunk, headers=headers)
        return protocol.parse_received(*answered, now=self._session.clock())

    async def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        path = f"{http.COMMANDS_PATH}?node={self._node}&wait={int(wait)}"
        answered = await self._call("GET", path, patience=wait)
        return protocol.parse_answer(*answered, now=self._session.clock()).commands

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> http.HttpAnswer:
        bearer = await self._bearer()
        answered = await self._exchange(method, path, bearer, body=body, headers=headers, patience=patience)
        if answered[0] == 401 and bearer != self._session.token:
            if self._own == bearer:
                self._own = None
            bearer = await self._bearer()
            answered = await self._exchange(method, path, bearer, body=body, headers=headers, patience=patience)
        return answered

    async def _bearer(self) -> str:
        if not protocol.is_enrolment_token(self._session.token):
            return self._session.token
        async with self._enrolling:  # reports and polls need a token at the same time; enrol once
            if self._own is None:
                self._own = await self._enrol()
            return self._own

    async def _enrol(self) -> str:
        body = protocol.enrolment_body(self._node, key=self._enrolment_key)
        headers = {"Content-Type": "application/json"}
        status, given, answer = await self._exchange(
            "POST", http.ENROL_PATH, self._session.token, body=body, headers=headers
        )
        try:
            protocol.raise_for_status(status, given, answer, now=self._session.clock())
            content: Any = json.loads(answer)
            own = {"node": self._node, "token": str(content["token"]), "expires_at": content.get("expires_at")}
        except UplinkError as error:  # no report may be dropped because of this error
            raise UplinkError(f"enrolment: {error}", retry_after=error.retry_after) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UplinkError(f"enrolment: invalid response: {error}") from error
        self._store.write(credential.CREDENTIAL_FILE, json.dumps(own).encode())
        self._enrolment_key = protocol.new_enrolment_key()
        return str(own["token"])

    async def _exchange(
        self,
        method: str,
        path: str,
        bearer: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> http.HttpAnswer:
        sent = {**(headers or {}), "Authorization": f"Bearer {bearer}"}
        if self._session.cluster:
            sent["X-Kcover-Cluster"] = self._session.cluster
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS + patience)
        url = self._session.url + path
        try:
            async with self._session.session.request(method, url, data=body, headers=sent, timeout=timeout) as response:
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UplinkError(f"{method} {path}: {type(error).__name__}: {error}") from error


class NoUplink:
    """The uplink of an agent whose reports the event loop sends."""

    def post_report(self, body: bytes) -> wire.Answer:
        raise UplinkError("the event loop sends the reports")

    def post_preflight(self, body: bytes) -> None:
        raise UplinkError("virtual nodes have no preflight reports")

    def post_evidence(self, upload: bundle.Upload, chunk: bytes) -> int:
        raise UplinkError("the event loop uploads evidence")

    def fetch_peers(self) -> tuple[str, ...]:
        raise UplinkError("virtual nodes have no timer for checks")

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        raise UplinkError("the event loop polls for commands")

    def close(self) -> None: ...
