"""Group commit of calls and of credential lookups, and refusals beyond the bound."""

import asyncio
import threading
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent import app, credentials, writer
from kcover_portal.api.agent.group_commit import FULL_BATCH_CALLS, GroupCommit, QueueFull
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster
from tests.portal.api.door import Door, loop, report


class Work:
    """Doubles numbers; may be held up; notes each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, asked: Sequence[int]) -> list[int | Exception]:
        assert self.go.wait(60)
        self.batches.append(list(asked))
        if 99 in asked:
            raise LookupError("the whole batch")
        return [ValueError("odd") if one % 2 else one * 2 for one in asked]


async def test_each_call_gets_its_own_answer_or_error() -> None:
    gathering = GroupCommit(Work(), name="t")
    assert await asyncio.gather(*(gathering.ask(n) for n in (2, 4, 6))) == [4, 8, 12]
    with pytest.raises(ValueError, match="odd"):
        await gathering.ask(1)
    with pytest.raises(LookupError):
        await gathering.ask(99)
    assert await gathering.ask(8) == 16


async def test_calls_during_a_batch_form_the_next_batch() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t", together=10)
    calls = [asyncio.create_task(gathering.ask(2 * n, at_once=True)) for n in range(25)]
    await asyncio.sleep(0)  # now all of them wait
    work.go.set()
    assert await asyncio.gather(*calls) == [4 * n for n in range(25)]
    assert [len(batch) for batch in work.batches] == [1, 10, 10, 4]
    assert [one for batch in work.batches for one in batch] == [2 * n for n in range(25)]


async def test_calls_gather_for_a_moment_and_no_longer_once_they_are_enough() -> None:
    work = Work()
    gathering = GroupCommit(work, name="t")
    await asyncio.gather(*(gathering.ask(2) for _ in range(FULL_BATCH_CALLS // 2)))
    await asyncio.gather(*(gathering.ask(2) for _ in range(FULL_BATCH_CALLS + 1)))
    assert [len(batch) for batch in work.batches] == [FULL_BATCH_CALLS // 2, FULL_BATCH_CALLS, 1]


async def test_beyond_its_capacity_it_is_full() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t", capacity=3)
    calls = [asyncio.create_task(gathering.ask(2, at_once=True)) for _ in range(4)]  # one at work, three wait
    await asyncio.sleep(0)  # now all of them wait
    with pytest.raises(QueueFull):
        await gathering.ask(2)
    work.go.set()
    assert await asyncio.gather(*calls) == [4] * 4


async def test_a_call_that_is_handled_alone_takes_turns_with_the_others() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t", together=10)
    first = asyncio.create_task(gathering.ask(2, at_once=True))
    await asyncio.sleep(0)  # now all of them wait
    alone = [asyncio.create_task(gathering.ask(n, alone=sender)) for sender, n in (("a", 10), ("a", 12), ("b", 20))]
    others = [asyncio.create_task(gathering.ask(n)) for n in (4, 6)]
    await asyncio.sleep(0)  # now all of them wait
    work.go.set()
    assert await asyncio.gather(first, *alone, *others) == [4, 20, 24, 40, 8, 12]
    assert work.batches == [[2], [10], [4, 6], [20], [12]]


async def test_calls_that_are_handled_alone_count_towards_the_capacity() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t", capacity=2)
    calls = [asyncio.create_task(gathering.ask(2, alone="a")) for _ in range(3)]
    await asyncio.sleep(0)  # now all of them wait
    with pytest.raises(QueueFull):
        await gathering.ask(2)
    work.go.set()
    assert await asyncio.gather(*calls) == [4] * 3
    assert await gathering.ask(2) == 4


async def test_one_sender_takes_a_share_of_the_places() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t", capacity=9, each=2)
    calls = [asyncio.create_task(gathering.ask(2, at_once=True)) for _ in range(2)]
    await asyncio.sleep(0.01)
    calls += [asyncio.create_task(gathering.ask(2, sender=sender)) for sender in "aaab"]
    await asyncio.sleep(0.01)
    work.go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [int, int, int, int, QueueFull, int]
    assert await asyncio.gather(*(gathering.ask(2, sender="a") for _ in range(2))) == [4, 4]


async def test_a_cancelled_caller_does_not_disturb_the_batch() -> None:
    work = Work()
    work.go.clear()
    gathering = GroupCommit(work, name="t")
    gone = asyncio.create_task(gathering.ask(2, at_once=True))
    await asyncio.sleep(0)  # now all of them wait
    stays = asyncio.create_task(gathering.ask(4, at_once=True))
    gone.cancel()
    work.go.set()
    assert await stays == 8


def test_a_new_event_loop_starts_empty() -> None:
    gathering = GroupCommit(Work(), name="t")
    for _ in range(2):
        assert asyncio.run(gathering.ask(2)) == 4


async def test_bodies_are_held_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BUFFERED_BYTES", 100)
    held = writer.Writer()
    with held.room("a") as of_a, held.room("b") as of_b:
        of_a(60)
        of_b(40)
        with pytest.raises(QueueFull):
            of_a(1)
    with held.room("c") as of_c:
        of_c(100)


async def test_one_credential_takes_a_share_of_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BUFFERED_BYTES_PER_CREDENTIAL", 10)
    held = writer.Writer()
    with held.room("a") as first, held.room("a") as second, held.room("b") as other:
        first(6)
        with pytest.raises(QueueFull):
            second(5)
        other(10)
        second(4)
    with held.room("a") as again:
        again(10)


# --- credentials


class Clock:
    """For the module ``time``: stands still until it is set."""

    at = 1_000.0

    def monotonic(self) -> float:
        return self.at


class Later:
    """For Django's ``timezone``: two hours later than it is."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=2)


@pytest.fixture
def east(transactional_db: None, now: datetime) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now)


def make(east: Cluster, **more: Any) -> tuple[ApiToken, str]:
    return accounts.make_token("agent", cluster=east, created_by="t", now=datetime.now(UTC), **more)


def test_many_credentials_are_looked_up_at_once(east: Cluster) -> None:
    made = [make(east, node=f"gpu-{n}") for n in range(20)]
    digests = [accounts.digest(secret) for _, secret in made]
    known = credentials.Credentials()
    with CaptureQueriesContext(connection) as asked:
        found = known.look_up([*digests, "nobody"])
    assert [one.node for one in found[:-1]] == [f"gpu-{n}" for n in range(20)]
    assert isinstance(found[-1], Refusal)
    selects = [query for query in asked if query["sql"].startswith("SELECT")]
    assert len(selects) == 3  # what was revoked, the tokens, their cluster
    with CaptureQueriesContext(connection) as asked:
        known.look_up(digests)
    assert not asked


def test_a_known_credential_stays_known_after_a_slow_look_up(east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (make(east, node=node)[0].digest for node in ("gpu-1", "gpu-2"))
    clock, find_tokens = Clock(), accounts.find_tokens
    monkeypatch.setattr(credentials, "time", clock)
    known = credentials.Credentials()
    known.look_up([old])

    def slow(digests: Collection[str], *, now: datetime) -> dict[str, ApiToken]:
        found = find_tokens(digests, now=now)
        clock.at += credentials.REVOCATION_POLL_SECONDS + 1
        return found

    monkeypatch.setattr(accounts, "find_tokens", slow)
    assert [getattr(one, "node", one) for one in known.look_up([old, new])] == ["gpu-1", "gpu-2"]


def renewed(cluster: Cluster, node: str) -> tuple[ApiToken, str]:
    """A credential that is to take another's place once it is used."""
    made, secret = make(cluster, node=node)
    ApiToken.objects.filter(pk=made.pk).update(origin="renewal")
    return made, secret


def test_a_first_use_that_waits_for_a_lock_delays_no_other_credential(
    east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, new = renewed(east, "gpu-1")
    _, known = make(east, node="gpu-2")
    _, unknown = make(east, node="gpu-3")
    waits, go, begin_to_use = threading.Event(), threading.Event(), accounts.begin_to_use

    def waiting(token: ApiToken, *, now: datetime) -> bool:
        waits.set()
        assert go.wait(60)
        return begin_to_use(token, now=now)

    monkeypatch.setattr(accounts, "begin_to_use", waiting)
    heard = app.known_credentials

    async def found(secret: str) -> str:
        return (await asyncio.wait_for(heard.find(secret), 60)).node

    async def all_of_them() -> None:
        assert await found(known) == "gpu-2"
        first = asyncio.create_task(found(new))
        assert await asyncio.to_thread(waits.wait, 60)
        monkeypatch.setattr(credentials, "REVOCATION_POLL_SECONDS", -1.0)  # so that who is known is asked for again
        assert [await found(known), await found(unknown)] == ["gpu-2", "gpu-3"]
        assert not first.done()
        go.set()
        assert await first == "gpu-1"

    loop.run(all_of_them())


def test_a_cluster_whose_lock_is_held_keeps_no_other_from_its_first_uses(
    east: Cluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    west = Cluster.objects.create(name="west", created_at=now)
    digests = [renewed(cluster, node)[0].digest for node in ("gpu-1", "gpu-2") for cluster in (east, west)]
    asked, begin_to_use = [], accounts.begin_to_use

    def held(token: ApiToken, *, now: datetime) -> bool:
        asked.append(token.cluster)
        if token.cluster == east:
            raise OperationalError("canceling statement due to lock timeout")
        return begin_to_use(token, now=now)

    monkeypatch.setattr(accounts, "begin_to_use", held)
    known = credentials.Credentials()
    found = known.begin_uses(known.look_up(digests))  # type: ignore[arg-type]  # all of them are new
    assert [getattr(one, "node", type(one)) for one in found] == [OperationalError, "gpu-1", OperationalError, "gpu-2"]
    assert asked == [east, west, west]


def test_a_credential_withdrawn_before_its_first_use_is_refused(east: Cluster) -> None:
    made, _ = renewed(east, "gpu-1")
    known = credentials.Credentials()
    new = known.look_up([made.digest])
    accounts.revoke_token(made, actor="t", now=datetime.now(UTC))
    assert [type(one) for one in known.begin_uses(new)] == [Refusal]  # type: ignore[arg-type]
    assert [type(one) for one in known.look_up([made.digest])] == [Refusal]


def test_an_agents_use_is_noted_once_an_hour(east: Cluster) -> None:
    made, secret = make(east, node="gpu-1")
    now = datetime.now(UTC)
    for minutes, noted in ((0, 0), (59, 0), (61, 61)):
        accounts.find_tokens([made.digest], now=now + timedelta(minutes=minutes))
        made.refresh_from_db()
        assert made.last_used_at == now + timedelta(minutes=noted)
    assert accounts.digest(secret) == made.digest


def test_a_revoked_credential_is_accepted_for_a_few_seconds_at_most(
    east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, secret = make(east, node="gpu-1")
    door = Door(secret)
    assert door.report(report()).status == 202
    accounts.revoke_token(made, actor="t", now=datetime.now(UTC))
    monkeypatch.setattr(credentials, "REVOCATION_POLL_SECONDS", 0.0)
    assert door.report(report()).status == 401


def test_an_expired_credential_is_refused(east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = make(east, node="gpu-1", expires_at=datetime.now(UTC) + timedelta(hours=1))
    door = Door(secret)
    assert door.report(report()).status == 202
    monkeypatch.setattr(credentials, "timezone", Later())
    assert door.report(report()).status == 401


def test_a_full_buffer_returns_429_with_retry_after(east: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(make(east, node="gpu-1")[1])
    assert door.report(report()).status == 202
    monkeypatch.setattr(writer, "MAX_BUFFERED_BYTES", 10)
    answer = door.report(report())
    assert "Retry later" in answer.problem(429)
    assert int(answer.headers["retry-after"]) > 0
