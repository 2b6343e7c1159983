"""A flood of forged tokens at the agents' endpoint: the places of genuine pods, and the cost for the API server."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from kcover_portal.api.agent import service_accounts
from kcover_portal.kube import port
from tests import waiting
from tests.kube_fake import FakeCluster
from tests.portal.api import pods
from tests.portal.api.door import Door, encoded, loop, report
from tests.portal.api.pods import Agent

pytestmark = pytest.mark.django_db(transaction=True)


class Crowd:
    """Calls whose reviews last for as long as the test wants."""

    def __init__(self, kube: FakeCluster) -> None:
        self._review, self._slow, self._go = kube.review_token, set[str](), threading.Event()
        self.under_way = 0

    def __call__(self, *agents: Agent) -> list[asyncio.Task[int]]:
        self._slow |= {one.secret or "" for one in agents}
        return [asyncio.create_task(asked(one)) for one in agents]

    def review(self, token: str, *, audiences: Sequence[str]) -> port.TokenIdentity | None:
        if token in self._slow:
            self.under_way += 1
            self._go.wait(60)
        return self._review(token, audiences=audiences)

    def go(self) -> None:
        self._go.set()


@pytest.fixture
def kube(now: datetime) -> Iterator[FakeCluster]:
    with pods.east(now) as made:
        yield made


@pytest.fixture
def crowd(kube: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    made = Crowd(kube)
    monkeypatch.setattr(kube, "review_token", made.review)
    yield made
    made.go()


async def asked(one: Door) -> int:
    return (await one.ask("POST", "reports", encoded(report()), X_Kcover_Cluster="east")).status


def forged(kube: FakeCluster, number: int, *, pod: str = "") -> Agent:
    """A token of the right shape that the cluster does not know."""
    agent = Agent(kube, **{"jti": f"forged {number}", "kubernetes.io": {"pod": {"uid": pod or f"{number}"}}})
    kube.remove_token(agent.secret or "")
    return agent


def of_pod(kube: FakeCluster, uid: str, **more: Any) -> Agent:
    return Agent(kube, **{"kubernetes.io": {"pod": {"uid": uid}}}, **more)


def test_forged_tokens_do_not_delay_known_pods(
    kube: FakeCluster, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_SECONDS", 0.0)
    monkeypatch.setattr(service_accounts, "MAX_QUEUED_REVIEWS", 6)
    agent, rotated = of_pod(kube, "uid-1"), of_pod(kube, "uid-1", jti="next")
    assert agent.report(report()).status == 202

    async def all_at_once() -> list[int]:
        strangers = crowd(*(forged(kube, number) for number in range(7)))
        await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)  # the seventh
        heard = [await asked(agent), await asked(rotated)]
        crowd.go()
        return [*heard, *sorted(await asyncio.gather(*strangers))]

    assert loop.run(all_at_once()) == [202, 202, *[401] * 6, 429]


def test_a_flood_of_forged_tokens_does_not_keep_out_a_new_pod(
    kube: FakeCluster, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's list of pods tells it from the forged, which go on holding every place of the strangers."""
    monkeypatch.setattr(service_accounts, "MAX_QUEUED_REVIEWS", 6)
    monkeypatch.setattr(service_accounts, "LIST_PODS_FROM_QUEUE_LENGTH", 4)
    kube.add_node("gpu-1")
    agent = of_pod(kube, kube.add_pod("kcover-system", "agent", node="gpu-1").uid)

    async def while_they_wait() -> list[int]:
        strangers = crowd(*(forged(kube, number) for number in range(7)))
        await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
        heard = await asked(agent)
        await waiting.until_async(lambda: kube.called("list_pods"))
        async with asyncio.timeout(60):
            while heard == 429:
                heard = await asked(agent)
        late = await asked(forged(kube, 7))
        held = sum(not one.done() for one in strangers)
        crowd.go()
        await asyncio.gather(*strangers)
        return [heard, late, held]

    assert loop.run(while_they_wait()) == [202, 429, 6]
    assert len(kube.called("list_pods")) == 1  # what a flood costs the API server


def test_forged_tokens_of_one_pod_do_not_delay_another_pod(
    kube: FakeCluster, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_accounts, "REVIEW_VALID_SECONDS", 0.0)
    monkeypatch.setattr(service_accounts, "MAX_QUEUED_REVIEWS", 4)
    robbed, other = of_pod(kube, "uid-1"), of_pod(kube, "uid-2", jti="2")
    assert [one.report(report()).status for one in (robbed, other)] == [202, 202]

    async def all_at_once() -> list[int]:
        thieves = crowd(*(forged(kube, number, pod="uid-1") for number in range(5)))
        await asyncio.wait(thieves, return_when=asyncio.FIRST_COMPLETED)
        heard = await asked(other)
        crowd.go()
        return [heard, *sorted(await asyncio.gather(*thieves))]

    assert loop.run(all_at_once()) == [202, 401, 401, 429, 429, 429]


def test_a_cluster_that_does_not_list_its_pods_leaves_them_with_the_strangers(
    kube: FakeCluster, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_accounts, "LIST_PODS_FROM_QUEUE_LENGTH", 1)
    kube.fail("list_pods", port.RefusedByServer("pods is forbidden"), times=99)
    agent = of_pod(kube, "uid-1")

    async def beside_one() -> list[int]:
        (stranger,) = crowd(forged(kube, 0))
        await waiting.until_async(lambda: crowd.under_way)
        heard = await asked(agent)
        await waiting.until_async(lambda: kube.called("list_pods"))
        crowd.go()
        return [heard, await stranger]

    assert loop.run(beside_one()) == [202, 401]
