"""The WebSocket of pages: permissions, messages, and the end of a connection when the permission ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from kcover_portal.accounts.models import RoleBinding
from kcover_portal.asgi import application
from kcover_portal.console import consumers
from kcover_portal.console.consumers import CLOSE_CODE_SIGNED_OUT, CLOSE_CODE_TOO_MANY, PagesConsumer
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import doorbell
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
MARKER = "marker"  # a topic of which nothing else tells


class Socket(ApplicationCommunicator):
    """A page's socket. (channels.testing would need daphne.)"""

    def __init__(self, client: Client, *, origin: str = "http://testserver") -> None:
        headers = [(b"host", b"testserver"), (b"origin", origin.encode())]
        cookie = client.cookies.get(settings.SESSION_COOKIE_NAME)
        if cookie:
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie.value}".encode()))
        scope = {"type": "websocket", "path": "/ws/pages", "headers": headers, "query_string": b"", "subprotocols": []}
        super().__init__(application, scope)

    async def connect(self) -> bool:
        """Returns whether the connection is accepted."""
        await self.send_input({"type": "websocket.connect"})
        return (await self.receive_output(timeout=HANG_SECONDS))["type"] == "websocket.accept"

    async def hear(self) -> dict:
        """The next frame."""
        message = await self.receive_output(timeout=HANG_SECONDS)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def hear_of(self, topic: str) -> list[dict]:
        """The frames about a topic that were told until now; those of a marker that is told now come after them."""
        await sync_to_async(doorbell.publish)(MARKER, 1)
        frames: list[dict] = []
        while (frame := await self.hear())["t"] != MARKER:
            frames.append(frame)
        return [frame for frame in frames if frame["t"] == topic]

    async def closed_with(self) -> int:
        """The code with which the socket is closed."""
        message = await self.receive_output(timeout=HANG_SECONDS)
        assert message["type"] == "websocket.close", message
        return int(message["code"])

    async def hang_up(self) -> None:
        """What closing the page does."""
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(timeout=HANG_SECONDS)


@pytest.fixture
async def listen(person) -> AsyncIterator[Callable[..., Awaitable[Socket]]]:
    """Opens a page's socket for a person of a role; hangs up at the end."""
    opened: list[Socket] = []
    doorbell.attach(asyncio.get_running_loop())

    async def open_page(role: str | None, **more: object) -> Socket:
        socket = Socket(await sync_to_async(person)(role, **more))
        assert await socket.connect()
        opened.append(socket)
        if role:
            assert await socket.hear() == {"t": "resync", "id": 0}  # it has joined
            await socket.hear_of("")  # leaves out what making the person told of
        return socket

    yield open_page
    for socket in opened:
        await socket.hang_up()


async def tell(topic: str, *ids: int, cluster: str = "") -> None:
    records = [{"topic": topic, "id": record, "cluster": cluster} for record in ids]
    await get_channel_layer().group_send(doorbell.PAGES, {"type": "records.written", "records": records})


async def test_an_anonymous_socket_is_closed_with_a_known_code():
    socket = Socket(Client())
    assert await socket.connect()
    assert await socket.closed_with() == CLOSE_CODE_SIGNED_OUT
    await socket.hang_up()


async def test_a_socket_of_a_person_without_a_role_is_closed(listen):
    assert await (await listen(None)).closed_with() == CLOSE_CODE_SIGNED_OUT


async def test_a_repeated_signal_is_delivered_once_a_round(listen):
    socket = await listen("viewer")
    await tell("rescue", *[7] * 40)
    assert await socket.hear_of("rescue") == [{"t": "rescue", "id": 7}]
    await asyncio.gather(*(tell("rescue", 8) for _ in range(40)))
    frames = await socket.hear_of("rescue")
    assert frames[0] == {"t": "rescue", "id": 8}
    assert len(frames) < 40  # one in each round, of which a busy machine may make several


async def test_a_storm_of_signals_is_delivered_as_one_without_a_single_row(listen):
    socket = await listen("viewer")
    await tell("node", *range(60))
    assert await socket.hear() == {"t": "node", "id": 0}


async def test_a_page_receives_signals_of_its_own_clusters_only(listen, now):
    east = await Cluster.objects.acreate(name="east", created_at=now)
    socket = await listen("viewer", cluster=east)
    await tell("node", 1, cluster="west")
    await tell("node", 2, cluster="east")
    assert await socket.hear_of("node") == [{"t": "node", "id": 2}]


async def test_a_page_receives_a_beat_while_nothing_changes(listen, monkeypatch):
    monkeypatch.setattr(PagesConsumer, "beat_seconds", 0.1)
    socket = await listen("viewer")
    assert await socket.hear() == {"t": "beat", "id": 0}


async def test_a_role_that_is_taken_away_closes_the_socket(listen, monkeypatch):
    monkeypatch.setattr(PagesConsumer, "recheck_seconds", 0.1)
    socket = await listen("viewer")
    await RoleBinding.objects.all().adelete()
    assert await socket.closed_with() == CLOSE_CODE_SIGNED_OUT


async def test_a_session_that_cannot_be_read_again_closes_the_socket(listen, monkeypatch):
    """One failed read of the database ended the look: a disabled person heard of every record until the page closed."""
    monkeypatch.setattr(PagesConsumer, "recheck_seconds", 0.1)
    socket = await listen("viewer")

    def unreadable(session_key):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(consumers, "_visible", unreadable)
    assert await socket.closed_with() == consumers.CLOSE_CODE_ERROR


async def test_a_page_of_another_site_cannot_connect(person):
    client = await sync_to_async(person)("viewer")
    assert not await Socket(client, origin="http://evil.example").connect()


async def test_a_session_has_a_bounded_number_of_sockets(person) -> None:
    client = await sync_to_async(person)("viewer")
    sockets = [Socket(client) for _ in range(PagesConsumer.max_per_session + 1)]
    assert [await socket.connect() for socket in sockets] == [True] * PagesConsumer.max_per_session + [False]
    await sockets[0].hang_up()
    again = Socket(client)
    assert await again.connect()
    other = Socket(await sync_to_async(person)("viewer"))
    assert await other.connect()
    for socket in (*sockets[1:-1], again, other):
        await socket.hang_up()


async def test_a_page_that_sends_messages_is_closed_once(listen) -> None:
    socket = await listen("viewer")
    for _ in range(2 * PagesConsumer.max_received):
        await socket.send_input({"type": "websocket.receive", "text": "not json"})
    assert await socket.closed_with() == CLOSE_CODE_TOO_MANY
    await socket.hang_up()
    assert socket.output_queue.empty()
