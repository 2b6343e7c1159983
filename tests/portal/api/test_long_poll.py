"""The polls for commands of one node are bounded, so that a stolen credential does not take the others' connections."""

import asyncio
from datetime import datetime

import pytest

from kcover_portal.api.agent import app
from kcover_portal.api.agent.long_poll import BURST_POLLS, MAX_OPEN_POLLS, Polls
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster, Node
from tests.portal.api.door import loop

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("known", [True, False])
def test_one_poll_too_many_ends_the_oldest_of_the_node(east: Cluster, now: datetime, *, known: bool) -> None:
    if known:
        Node.objects.get_or_create(cluster=east, name="gpu-1", defaults={"created_at": now})
    name = "gpu-1" if known else "no-such-node"

    async def poll() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            polls = []
            for _ in range(MAX_OPEN_POLLS + 1):
                polls.append(group.create_task(app.polls.wait(east.pk, name, seconds=60.0)))
                await asyncio.sleep(0.05)  # the order in which they begin
            another = group.create_task(app.polls.wait(east.pk, "gpu-2", seconds=1.0))
            await asyncio.wait(polls, timeout=30.0, return_when=asyncio.FIRST_COMPLETED)
            ended = [one.done() for one in polls]
            for one in (*polls, another):
                one.cancel()
        return ended

    assert loop.run(poll()) == [True] + MAX_OPEN_POLLS * [False]


def test_a_node_that_polls_too_often_is_asked_to_wait() -> None:
    polls = Polls(clock=lambda: 1_000.0)
    assert not any(polls.rates.take((1, "gpu-1")) for _ in range(BURST_POLLS))
    with pytest.raises(Refusal) as refused:
        loop.run(polls.wait(1, "gpu-1", seconds=0))
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
