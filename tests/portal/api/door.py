"""The agents' endpoint for a test: the whole ASGI application, called in this process, and reports for it."""

import asyncio
import functools
import gzip
import inspect
import json
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from django.db import connections

from kcover_portal.asgi import application

CHUNK = 64 * 1024
T = TypeVar("T")


class Loop:
    """The event loop of a server process: one for all tests, with one thread for what asks the database."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._thread = ThreadPoolExecutor(1)

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.get_loop().set_default_executor(self._thread)
        return self._runner.run(what)

    def close(self) -> None:
        if self._runner is not None:
            self._thread.submit(connections.close_all).result()
            self._runner.close()


loop = Loop()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    def problem(self, status: int) -> str:
        """The detail of the problem document; asserts the shape that every one of them has."""
        assert self.status == status, self.body
        assert self.headers["content-type"] == "application/problem+json"
        assert self.body["type"] == "about:blank"
        assert self.body["title"]
        assert self.body["status"] == status
        detail = self.body["detail"]
        for one in self.body.get("errors", ()):
            assert detail == f"{one['field']}: {one['reason']}"
        return detail


class Door:
    """An agent's way in. ``secret`` None: no Authorization header at all."""

    def __init__(self, secret: str | None) -> None:
        self.secret = secret

    def report(self, body: Any, **headers: str) -> Answer:
        return self.call("POST", "reports", encoded(body), **headers)

    def enrol(self, body: Any, **headers: str) -> Answer:
        return self.call("POST", "enrol", encoded(body), **headers)

    def commands(self, query: str = "") -> Answer:
        return self.call("GET", "commands", query=query)

    def call(self, method: str, path: str, body: bytes = b"", *, query: str = "", **headers: str) -> Answer:
        return loop.run(self.ask(method, path, body, query=query, **headers))

    async def ask(self, method: str, path: str, body: bytes = b"", *, query: str = "", **headers: str) -> Answer:
        """One request. The body comes in chunks and, unless ``Content_Length`` is given, with its length told."""
        named = {"content-length": str(len(body)), **{k.lower().replace("_", "-"): v for k, v in headers.items()}}
        if self.secret is not None:
            named.setdefault("authorization", f"Bearer {self.secret}")
        sent: list[dict[str, Any]] = []
        chunks = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)] or [b""]
        messages = [
            {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(dict(message))

        scope = {
            "type": "http",
            "method": method,
            "path": f"/api/v1/agent/{path}",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items() if value],
        }
        await application(scope, receive, send)
        start, *rest = sent
        content = b"".join(message.get("body", b"") for message in rest)
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        assert answered["content-length"] == str(len(content))
        return Answer(start["status"], answered, json.loads(content))


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def packed(body: Any) -> bytes:
    return gzip.compress(encoded(body))


def report(*faults: Any, node: str = "gpu-1", **changes: Any) -> dict[str, Any]:
    """A good report of that node; a change to None takes the key out."""
    good = {
        "version": 1,
        "node": node,
        "boot_id": "b0a7c1de-0000-4000-8000-000000000001",
        "batch_id": str(uuid.uuid4()),
        "agent": "1.0.0",
        "sent_at": moment(),
        "faults": list(faults),
        "checks": [],
        **changes,
    }
    return {key: value for key, value in good.items() if value is not None}


def fault(**changes: Any) -> dict[str, Any]:
    """A good fault; without a log sequence, so that each one counts."""
    return {"kind": "xid", "code": 79, "pci": "0000:4e:00", "message": "NVRM: Xid", "source": "kmsg", **changes}


def check(**changes: Any) -> dict[str, Any]:
    return {"name": "remapped", "device": "GPU-1", "status": "pass", "value": 0, "unit": "rows", **changes}


def moment(off: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + off).isoformat().replace("+00:00", "Z")


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like ``parametrize``, in one test: the tables are emptied after all of the cases, not after each of them."""
    split = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for case in cases:
                values = dict(zip(split, case if len(split) > 1 else (case,), strict=True))
                with subtests.test(msg=repr(case)[:120]):
                    test(**fixtures, **values)

        taken = inspect.signature(test)
        wanted = [one for name, one in taken.parameters.items() if name not in split]
        asks = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = taken.replace(parameters=[*wanted, asks])  # type: ignore[attr-defined]  # what pytest reads
        return run

    return decorate
