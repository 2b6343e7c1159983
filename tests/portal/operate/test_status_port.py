"""Autopilot's port without a token, in front of a server that stands for the portal."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from kcover.checks import autopilot
from kcover_portal.operate.status_port import MAX_REQUESTS, StatusPort

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(application, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(
    portal: Handler, token: Callable[[], str] = lambda: "secret", names: Collection[str] = ()
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the port, which forwards to ``portal``."""
    application = web.Application()
    application.router.add_get("/base/api/v1/status", portal)
    async with (
        served(application) as url,
        served(StatusPort(portal=f"{url}/base/", token=token, names=names).application()) as own,
        aiohttp.ClientSession(own, headers={"User-Agent": "curl/8"}) as client,
    ):
        yield client


async def test_the_query_and_the_token_are_sent_and_nothing_else() -> None:
    asked = []

    async def portal(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(status=400, text="no such check", headers={"Set-Cookie": "a=b", "Retry-After": "7"})

    async with opened(portal) as client:
        own = {"Authorization": "Bearer mine", "Cookie": "sessionid=x", "X-Kcover-Cluster": "west"}
        asked_for = URL("/status?check=pciebw%2Cdcgm&nodelabel=a%3Db%26c", encoded=True)
        async with client.get(asked_for, headers=own) as answer:
            assert (answer.status, await answer.text()) == (400, "no such check")
            assert answer.headers["Retry-After"] == "7"
            assert "Set-Cookie" not in answer.headers
    (request,) = asked
    assert request.raw_path == "/base/api/v1/status?check=pciebw%2Cdcgm&nodelabel=a%3Db%26c"
    assert request.headers["Authorization"] == "Bearer secret"
    assert not {"Cookie", "X-Kcover-Cluster"} & set(request.headers)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", request.headers["X-Status-Address"])


@pytest.mark.parametrize("check", autopilot.CHECKS)
async def test_a_path_names_its_check(check: str) -> None:
    asked = []

    async def portal(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.Response()

    async with opened(portal) as client:
        await client.get(f"/{check}?host=gpu-1")
        await client.get(f"/{check}")
        async with client.get(f"/{check}?check=ping") as answer:
            assert answer.status == 400
    assert asked == [f"/base/api/v1/status?check={check}&host=gpu-1", f"/base/api/v1/status?check={check}"]


@pytest.mark.parametrize("headers", [{"User-Agent": "Mozilla/5.0 (X11)"}, {"Origin": "http://evil"}])
async def test_browsers_are_refused(headers: dict[str, str]) -> None:
    async def portal(request: web.Request) -> web.Response:
        raise AssertionError("asked")

    async with opened(portal) as client, client.get("/status", headers=headers) as answer:
        assert answer.status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:3333", 403),
        ("10.0.0.1.evil.example", 403),
        ("10.0.0.1:3333", 200),
        ("[::1]:3333", 200),
        ("localhost:3333", 200),
        ("autopilot-healthchecks.autopilot.svc:3333", 200),
        ("autopilot-healthchecks.autopilot.svc.cluster.local.:3333", 200),
        ("Checks.example", 200),
    ],
)
async def test_a_name_that_is_not_its_own_is_refused(host: str, status: int) -> None:
    """A page of that name could start checks by a request of the same origin."""

    async def portal(request: web.Request) -> web.Response:
        return web.Response()

    async with (
        opened(portal, names=["checks.example"]) as client,
        client.get("/status", headers={"Host": host}) as answer,
    ):
        assert answer.status == status


async def test_a_rotated_token_is_read_again_and_a_missing_token_is_a_502(tmp_path: Path) -> None:
    file, seen = tmp_path / "token", []

    async def portal(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response()

    file.write_text("first")
    async with opened(portal, file.read_text) as client:
        await client.get("/status")
        file.write_text("second")
        await client.get("/status")
        file.unlink()
        async with client.get("/status") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (502, "5")
    assert seen == ["Bearer first", "Bearer second"]


async def test_an_answer_that_breaks_off_breaks_off_here() -> None:
    async def portal(request: web.Request) -> web.StreamResponse:
        sent = web.StreamResponse()
        await sent.prepare(request)
        await sent.write(b"Checking status")
        assert request.transport
        request.transport.abort()
        return sent

    async with opened(portal) as client, client.get("/status") as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_requests_under_way_are_bounded() -> None:
    async def portal(request: web.Request) -> web.StreamResponse:
        sent = web.StreamResponse()
        await sent.prepare(request)
        await sent.write(b"\n")
        await release.wait()
        return sent

    release = asyncio.Event()
    async with opened(portal) as client:
        waiting = [await client.get("/status") for _ in range(MAX_REQUESTS)]
        async with client.get("/status") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
        release.set()
        for one in waiting:
            await one.read()
        async with client.get("/status") as answer:
            assert answer.status == 200
