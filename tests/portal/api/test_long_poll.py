"""The polls for commands of one node are bounded, so that a stolen credential does not take the others' connections."""

import asyncio
from datetime import datetime

import pytest

from kcover_portal.api.agent import app
from kcover_portal.api.agent.long_poll import BURST_POLLS, MAX_OPEN_POLLS, Polls
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster, Node
from tests import waiting
from tests.portal.api.door import loop

LONG_SECONDS = 600.0  # no poll ends by itself
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("known", [True, False])
def test_a_poll_beyond_the_limit_ends_the_oldest_of_the_node(east: Cluster, now: datetime, *, known: bool) -> None:
    if known:
        Node.objects.get_or_create(cluster=east, name="gpu-1", defaults={"created_at": now})
    name = "gpu-1" if known else "no-such-node"

    async def poll() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            polls = []
            for number in range(1, MAX_OPEN_POLLS + 2):
                polls.append(group.create_task(app.polls.wait(east.pk, name, seconds=LONG_SECONDS)))
                opened = min(number, MAX_OPEN_POLLS)
                await waiting.until_async(lambda opened=opened: len(app.polls._open[east.pk, name]) == opened)
            another = group.create_task(app.polls.wait(east.pk, "gpu-2", seconds=LONG_SECONDS))
            await asyncio.wait(polls, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            ended = [one.done() for one in polls]
            for one in (*polls, another):
                one.cancel()
        return ended

    assert loop.run(poll()) == [True] + MAX_OPEN_POLLS * [False]


def test_a_node_that_polls_too_often_gets_429() -> None:
    polls = Polls(clock=lambda: 1_000.0)
    assert not any(polls.rates.take((1, "gpu-1")) for _ in range(BURST_POLLS))
    with pytest.raises(Refusal) as refused:
        loop.run(polls.wait(1, "gpu-1", seconds=0))
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
