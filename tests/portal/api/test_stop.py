"""A process of `live` that stops: open polls end, and no request leaves a traceback."""

import asyncio
import itertools
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.api import agent
from kcover_portal.api.agent import app
from kcover_portal.asgi.bodies import BodyBuffer
from kcover_portal.fleet.models import Cluster, Node
from tests import waiting
from tests.portal.api.door import loop
from tests.waiting import HANG_SECONDS

LONG_SECONDS = 600.0  # no poll ends by itself
pytestmark = pytest.mark.django_db(transaction=True)


def test_open_polls_end_one_after_the_other_and_later_ones_at_once(
    east: Cluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = app.polls
    monkeypatch.setattr(polls, "_stops", False)  # so it is afterwards
    for number in range(4):
        Node.objects.get_or_create(cluster=east, name=f"gpu-{number}", defaults={"created_at": now})

    async def poll() -> list[float]:
        ended = []
        running = asyncio.get_running_loop()

        async def one(number: int) -> None:
            assert await polls.wait(east.pk, f"gpu-{number}", seconds=LONG_SECONDS) == []
            ended.append(running.time())

        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(one(number))
                await waiting.until_async(lambda opened=number + 1: len(polls._open) == opened)
            assert ended == []
            polls.stop()
            polls.stop()  # each connection says it
        async with asyncio.timeout(HANG_SECONDS):
            await one(0)
        return [later - earlier for earlier, later in itertools.pairwise(ended[:4])]

    assert all(pause > 0 for pause in loop.run(poll()))


@pytest.mark.parametrize("part", ["agent", "page"])
def test_a_request_that_is_cut_off_gets_503(east: Cluster, part: str) -> None:
    sent: list[dict[str, Any]] = []
    asked = asyncio.Event()
    moment = datetime.now(UTC)
    _, secret = accounts.make_token("agent", cluster=east, node="gpu-1", created_by="test", now=moment)

    async def never() -> Any:
        asked.set()
        await asyncio.sleep(LONG_SECONDS)

    async def send(message: Any) -> None:
        sent.append(message)

    async def cut_off() -> None:
        headers = [(b"authorization", f"Bearer {secret}".encode()), (b"content-length", b"100")]
        scope = {"type": "http", "path": "/api/v1/agent/reports", "method": "POST", "query_string": b""}
        application = agent.application if part == "agent" else BodyBuffer(agent.application)
        task = asyncio.create_task(application({**scope, "headers": headers}, never, send))
        await asyncio.wait_for(asked.wait(), HANG_SECONDS)
        task.cancel()
        await task

    loop.run(cut_off())
    start, body = sent
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"5")
    assert json.loads(body["body"])["code"] == "portal_stops"
