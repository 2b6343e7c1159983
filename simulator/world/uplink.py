"""The agents' line to the portal for hundreds of agents in one event loop: the real wire format, without threads."""

import asyncio
import contextlib
import gzip
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import aiohttp

from agents import VERSION, credential, portal, uplink
from agents.store import Store
from agents.uplink import UplinkError
from kcover import fault, wire

log = logging.getLogger(__name__)

_TIMEOUT = 15.0  # seconds for everything that is no long poll
_AT_ONCE = 24  # reports and enrolments under way at the same time: a fleet that starts must not bury its portal


class Trunk:
    """What all lines share: the HTTP session and the bound on requests at once."""

    def __init__(self, url: str, *, token: str, clock: Callable[[], datetime], cluster: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.token, self.clock, self.cluster = token, clock, cluster
        self.gate = asyncio.Semaphore(_AT_ONCE)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=75),
            headers={"User-Agent": f"kcover-agent/{VERSION} (simulated)"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def answers(self) -> bool:
        """Whether somebody is there: any HTTP answer under 500 will do."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(f"{self.url}/healthz", timeout=aiohttp.ClientTimeout(total=5)) as response:
                return response.status < 500
        return False

    async def close(self) -> None:
        """End all connections."""
        await self.session.close()


class Line:
    """One node's line; its own token is kept in the node's store, as a real agent's is."""

    def __init__(self, trunk: Trunk, *, node: str, store: Store) -> None:
        self._trunk, self._node, self._store = trunk, node, store
        self._enrolling = asyncio.Lock()
        stored = store.read(credential.FILE)
        self._own: str | None = json.loads(stored)["token"] if stored else None

    async def post_report(self, body: bytes) -> wire.Answer:
        """See ``agents.uplink.Uplink.post_report``."""
        headers = {"Content-Type": "application/json"}
        if len(body) >= portal.GZIP_FROM:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        async with self._trunk.gate:
            answered = await self._call("POST", portal.REPORTS, body=body, headers=headers)
        return uplink.read_answer(*answered, now=self._trunk.clock())

    async def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        """See ``agents.uplink.Uplink.poll_commands``."""
        path = f"{portal.COMMANDS}?node={self._node}&wait={int(wait)}"
        answered = await self._call("GET", path, patience=wait)
        return uplink.read_answer(*answered, now=self._trunk.clock()).commands

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> portal.Answered:
        bearer = await self._bearer()
        answered = await self._exchange(method, path, bearer, body=body, headers=headers, patience=patience)
        if answered[0] == 401 and bearer != self._trunk.token:
            if self._own == bearer:
                self._own = None
            bearer = await self._bearer()
            answered = await self._exchange(method, path, bearer, body=body, headers=headers, patience=patience)
        return answered

    async def _bearer(self) -> str:
        if not uplink.needs_enrolment(self._trunk.token):
            return self._trunk.token
        async with self._enrolling:  # reports and polls want a token at the same time, one is enough
            if self._own is None:
                self._own = await self._enrol()
            return self._own

    async def _enrol(self) -> str:
        body = json.dumps({"node": self._node}).encode()
        headers = {"Content-Type": "application/json"}
        status, given, answer = await self._exchange(
            "POST", portal.ENROL, self._trunk.token, body=body, headers=headers
        )
        try:
            uplink.check_status(status, given, answer, now=self._trunk.clock())
            content: Any = json.loads(answer)
            own = {"node": self._node, "token": str(content["token"]), "expires_at": content.get("expires_at")}
        except UplinkError as error:  # whatever it is, no report is to be dropped or set aside over it
            raise UplinkError(f"enrolment: {error}", retry_after=error.retry_after) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UplinkError(f"enrolment: answer not understood: {error}") from error
        self._store.write(credential.FILE, json.dumps(own).encode())
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
    ) -> portal.Answered:
        sent = {**(headers or {}), "Authorization": f"Bearer {bearer}"}
        if self._trunk.cluster:
            sent["X-Kcover-Cluster"] = self._trunk.cluster
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT + patience)
        url = self._trunk.url + path
        try:
            async with self._trunk.session.request(method, url, data=body, headers=sent, timeout=timeout) as response:
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UplinkError(f"{method} {path}: {type(error).__name__}: {error}") from error
